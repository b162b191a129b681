use std::future::Future;

use bytes::Bytes;

use crate::error::Error;
use crate::reason::Reason;
use crate::segment::{Segment, SegmentId};
use crate::ticket::{Expected, Receipt, TicketId};

/// Where a sender's segments come from.
pub trait Source: Send {
    /// The next segment once it exists; `None` after the last. Latents may come chunk by chunk in any cut, with the
    /// keys of the index pools that close in each run of tokens cut alike ([`crate::segment::chunk`]); what is
    /// overwritten until the end (recurrent state, tails, hidden vector, sampling) must come last.
    ///
    /// Must be cancel safe: a call dropped before it is ready loses nothing.
    fn next(&mut self) -> impl Future<Output = Result<Option<Segment>, Reason>> + Send;
}

impl<S: Source> Source for &mut S {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        S::next(self).await
    }
}

/// Where a receiver's segments go: room that was reserved for one sequence. Dropping it before the commit gives the room
/// back, whatever was already written.
pub trait Sink: Send + 'static {
    /// Takes one segment, verified, each part exactly once. Ready when the bytes are no longer needed.
    fn accept(&mut self, id: SegmentId, payload: Bytes) -> impl Future<Output = Result<(), Reason>> + Send;

    /// Everything is there: put the state into use, or say why not (the lease ran out). Takes effect in its last step or
    /// not at all, so that dropping the call earlier leaves nothing behind. From then on [`TicketBook::look_up`] has the
    /// receipt, for a sender that loses the answer.
    fn commit(&mut self, receipt: Receipt) -> impl Future<Output = Result<(), Reason>> + Send;
}

/// The tickets a receiver has issued. Calls are short and do not block.
pub trait TicketBook: Send + Sync + 'static {
    type Sink: Sink;

    /// What a sender must bring for this ticket; `None` when there is none.
    fn look_up(&self, id: &TicketId) -> Option<Expected>;

    /// Hands out the room, to one transfer at most.
    fn open(&self, id: &TicketId) -> Result<Self::Sink, Reason>;

    /// The sender is alive: the lease starts anew.
    fn renew(&self, id: &TicketId);

    /// Ready when the ticket of a transfer under way is worth nothing any more: its lease ended, or nobody wants it.
    fn revoked(&self, id: &TicketId) -> impl Future<Output = Reason> + Send;

    /// The transfer that opened the ticket is over; its sink is dropped already.
    fn close(&self, id: &TicketId, end: &Result<Receipt, Error>);
}
