//! What `pjrt` promises, run against the plugin at hand: `TANDEM_PJRT_PLUGIN`, or the pinned CPU plugin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "contract/arrays.rs"]
mod arrays;
#[path = "contract/cached.rs"]
mod cached;
#[path = "contract/donate.rs"]
mod donate;
#[path = "contract/events.rs"]
mod events;
#[path = "contract/execute.rs"]
mod execute;
#[path = "contract/pieces.rs"]
mod pieces;
#[path = "contract/plugin.rs"]
mod plugin;
#[path = "contract/setup.rs"]
mod setup;
#[path = "contract/sharded.rs"]
mod sharded;
