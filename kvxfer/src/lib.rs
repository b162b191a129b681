//! Move one sequence's state between workers exactly once, or say why not.
//!
//! The prefill worker calls [`send`] with a [`Source`]; the decode worker runs [`serve`] with a [`TicketBook`] that hands
//! out a [`Sink`] for each ticket it issued. This crate knows no engine: state is [`Segment`]s, addressed by layer, token
//! and head, so the two sides may page and place theirs as they like.
//!
//! ```text
//! sender                                   receiver
//! Hello(ticket, incarnation, layout, proof) ->          looks the ticket up, checks, waits for staging room
//!                                        <- Welcome     so many bytes may be unacknowledged
//! Segment(latents, index keys) as prefill goes ->       digest verified, then to the sink
//!                                        <- Ack         the sink has it: credit again
//!                                        <- Again       digest wrong: once more, then the end
//! Segment(recurrent, tails, hidden, ...)   ->
//! Commit(state_pos, incarnation, totals)   ->           all parts there, all taken, lease held?
//!                                        <- Committed
//! ```
//!
//! Either side may say `Abort(reason)` at any point, and says `Heartbeat` when it has nothing else to say.

mod ends;
mod error;
mod frame;
pub mod fuzz;
mod key;
mod layout;
mod manifest;
mod meters;
mod pace;
mod reason;
mod recv;
mod sampling;
pub mod segment;
mod send;
mod ticket;
mod wire;

#[cfg(target_endian = "big")]
compile_error!("numbers travel little-endian and are shared with the wire without conversion");

pub use ends::{Sink, Source, TicketBook};
pub use error::Error;
pub use layout::{Difference, Layout};
pub use manifest::{Manifest, NotInManifest};
pub use meters::{Meters, Staged};
pub use pace::{Bounds, Pace};
pub use reason::Reason;
pub use recv::driver::Receiver;
pub use recv::listener::serve;
pub use sampling::{BadSampling, FirstToken, SamplingState};
pub use segment::{Projection, Segment, SegmentId};
pub use send::driver::{Unsent, send, send_over};
pub use ticket::{BadLength, BadTicketId, Expected, Incarnation, Receipt, Secret, Ticket, TicketId};

#[cfg(test)]
mod tests;
