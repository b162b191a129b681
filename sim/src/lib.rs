//! The whole cluster under injected faults, by seed.
//!
//! The real router, the real workers' services, schedulers, pools and transfers run in one process on virtual time, each on a
//! host of a simulated network ([`turmoil`]); only the device is played (`engine::fake`). [`Plan`] makes faults from a seed: hosts crash
//! and come back, links break, hold and lose what is sent, bytes of transfers change. After each run the promises are
//! checked: the right tokens, exactly once; nothing held; every request ended by its deadline. A seed that broke one is a
//! named test from then on (`tests/seeds`).

mod corrupt;
mod network;
mod plan;

pub use corrupt::Noise;
pub use network::Simulated;
pub use plan::{Fault, Fleet, Plan, Timed};
