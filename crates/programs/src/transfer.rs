//! Programs that move the state of one sequence between the state arrays and the host: what a hand-over sends and receives.
//!
//! Each touches the named slot or pages and leaves every other one as it was, bit for bit.

mod latents;
mod pages;
mod sampling;
mod slot;

pub use latents::{export_latents, import_latents};
pub use pages::copy_page;
pub use sampling::set_sampling;
pub use slot::{export_slot, import_slot};

#[cfg(test)]
mod tests;
