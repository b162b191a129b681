//! What `pjrt` promises, run against the plugin at hand: `TANDEM_PJRT_PLUGIN`, or the pinned CPU plugin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "contract/execute.rs"]
mod execute;
#[path = "contract/setup.rs"]
mod setup;
