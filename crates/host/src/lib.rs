//! A loaded model in the contracts' words: what it is, how busy it is, what went wrong.
//!
//! Both worker binaries load their engine here and speak of it with what this room gives them: the record they join with,
//! the load they report, the layout and fingerprint they compare, and the fault behind each of the engine's errors. It
//! calls `engine` and `checkpoint` to load, and puts their answers into `proto`'s and `kvxfer`'s types.

mod call;
mod fault;
mod ladder;
mod load;
mod words;

pub use call::{deadline, span};
pub use fault::fault;
pub use ladder::ladder;
pub use load::{Error, Host};
pub use words::{fingerprint_difference, layout, layout_message, logprobs};
