//! The whole cluster under injected faults, by seed.
//!
//! The real router, the real workers' services, schedulers, pools and transfers run in one process on virtual time, each on a
//! host of a simulated network ([`turmoil`]); only the device is played (`engine::fake`). [`Plan`] makes faults from a seed: hosts crash
//! and come back, links break, hold and lose what is sent, in one direction or both, clocks jump, and what a transfer writes is changed,
//! doubled, swapped, dropped, cut off or said again to whoever listens there later. After each run the promises are
//! checked: the right tokens, exactly once; nothing held; every request ended by its deadline. A seed that broke one is a
//! named test from then on (`tests/seeds`).
//!
//! A seed is a run: whatever is drawn is drawn from it, also by tokio (see `.cargo/config.toml`), and what happens in a run
//! happens again in the next one of that seed, in the same order and at the same time.

mod corrupt;
mod network;
mod plan;

pub use corrupt::{Damage, Noise};
pub use network::Simulated;
pub use plan::{Fault, Fleet, Plan, Timed};
