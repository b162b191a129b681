//! The two halves together: as values, over bytes that go wrong on their way, and over real sockets.

mod book;
mod corruption;
mod fuzzed;
mod kept;
mod loopback;
mod pair;
mod refusals;
mod same_host;
mod state;
mod storm;
mod timing;
mod tls;
