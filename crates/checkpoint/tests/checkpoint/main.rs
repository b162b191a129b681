//! Model folders as they are, in every format, and with one thing wrong at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod folder;
mod formats;
mod published;
mod refusals;
mod synthetic;
