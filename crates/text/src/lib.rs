//! A checkpoint's tokenizer and chat template: text to tokens and back, never half a character.
//!
//! The router calls in for every request it serves, and `tandem generate --single-process` for its one. Calls
//! nothing of ours: files of a checkpoint's folder go in, values come out.

mod chat;
mod decoder;
mod error;
mod stop;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use decoder::Decoder;
pub use error::Error;
pub use stop::{Checked, StopMatcher};
pub use tokenizer::Tokenizer;
