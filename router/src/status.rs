//! What an operator sees: a page at `/`, live, and the same as JSON for scripts.
//!
//! Requests leave a line in the [`Journal`] while they are served; everything else is read from where it is kept anyway, and only
//! while somebody looks. Nothing of a prompt, an answer or a tenant is in it.

mod journal;
mod page;
mod snapshot;
#[cfg(test)]
mod tests;

pub(crate) use journal::{Journal, Story};
pub(crate) use page::routes;
