//! The engine on the CPU plugin, with models whose greedy tokens `transformers` computed. State arrays begin as NaN.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod demo;
mod devices;
mod drafts;
mod hand_over;
mod prefix_cache;
mod requests;
mod rig;
