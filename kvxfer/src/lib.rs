//! Move one sequence's state between workers exactly once, or say why not.
//!
//! The prefill worker calls [`Sender::send`] with a [`Source`]; the decode worker runs [`serve`] with a [`TicketBook`] that hands
//! out a [`Sink`] for each ticket it issued. This crate knows no engine: state is [`Segment`]s, addressed by layer, token
//! and head, so the two sides may page and place theirs as they like.
//!
//! ```text
//! sender                                   receiver
//! Hello(ticket, incarnations, link, layout, proof) ->   looks the ticket up and checks; a further link joins its transfer
//!                                        <- Welcome     accepted by this incarnation
//!                                        <- Credit      there is staging room: so many bytes may be unacknowledged
//! Segment(latents, index keys) as prefill goes ->       digest verified, then to the sink
//!                                        <- Ack         the sink has it: credit again
//!                                        <- Again       digest wrong: once more, then the end
//! Segment(recurrent, tails, hidden, ...)   ->
//! Commit(state_pos, incarnation, totals)   ->           all parts there, all taken, lease held?
//!                                        <- Committed
//! ```
//!
//! A transfer has one connection, or several, each with its own credit. One that dies or stalls is replaced under the next
//! link number, and what was not acknowledged on it goes out again. A sender that lost the answer to its commit asks again
//! on a new link: [`Verdict`] says what it learned. After a commit both ends keep the connections for a while, and the next
//! transfer between them begins on those, with `Keep` and its own `Hello`: nothing else passes from one to the other.
//!
//! Either side may say `Abort(reason)` at any point, and says `Heartbeat` when it has nothing else to say.

mod awake;
mod binding;
mod ends;
mod error;
mod frame;
pub mod fuzz;
mod key;
mod landing;
mod layout;
mod local;
mod manifest;
mod meters;
mod pace;
mod reason;
mod recv;
mod sampling;
pub mod segment;
mod send;
mod ticket;
mod verdict;
mod wire;

#[cfg(target_endian = "big")]
compile_error!("numbers travel little-endian and are shared with the wire without conversion");

pub use binding::{EndKey, NobodysKey, PublicEnd};
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
pub use send::driver::Sender;
pub use ticket::{BadLength, BadTicketId, Expected, Incarnation, Receipt, Secret, Ticket, TicketId};
pub use verdict::Verdict;
pub use wire::Stream;

#[cfg(test)]
mod tests;
