use crate::ends::TicketBook;
use crate::error::Error;
use crate::frame::{Frame, Hello};
use crate::key::TransferKey;
use crate::local::Lent;
use crate::manifest::Manifest;
use crate::reason::Reason;
use crate::recv::check_hello;
use crate::ticket::{Expected, Incarnation, LinkId, TicketId};
use crate::wire::{Turn, Wire};

/// A greeting that was accepted.
pub(super) struct Greeted {
    pub(super) id: TicketId,
    pub(super) sender: Incarnation,
    pub(super) link: LinkId,
    pub(super) links: u16,
    pub(super) lent: Option<Lent>,
    pub(super) expected: Expected,
    pub(super) manifest: Manifest,
}

impl Greeted {
    pub(super) fn key(&self) -> TransferKey {
        let Expected { secret, state_pos, incarnation, .. } = &self.expected;
        TransferKey::derive(secret, &self.id, *state_pos, incarnation, &self.sender)
    }
}

/// Reads up to the sender's word that it keeps the connection. What its transfer had on the way may come before.
pub(super) async fn rest(wire: &mut Wire) -> bool {
    loop {
        match wire.frame() {
            Ok(Some(Frame::Keep)) => {
                wire.renew();
                return true;
            }
            Ok(Some(Frame::Heartbeat | Frame::Commit { .. })) => {}
            Ok(Some(_)) | Err(_) => return false,
            Ok(None) => match wire.turn().await {
                Ok(Turn::Written | Turn::Read) => {}
                Ok(Turn::Ended) | Err(_) => return false,
            },
        }
    }
}

pub(super) async fn read_hello(wire: &mut Wire) -> Result<Hello, Error> {
    let protocol = |fault: String| Error::GaveUp(Reason::Protocol { fault });
    loop {
        match wire.frame() {
            Ok(Some(Frame::Hello(hello))) => return Ok(hello),
            Ok(Some(other)) => return Err(protocol(format!("{} before the greeting", other.name()))),
            Ok(None) => {}
            Err(fault) => return Err(protocol(fault.to_string())),
        }
        match wire.turn().await {
            Ok(Turn::Written | Turn::Read) => {}
            Ok(Turn::Ended) => return Err(Error::Cut(None)),
            Err(fault) => return Err(Error::Cut(Some(fault))),
        }
    }
}

pub(super) fn greet<B: TicketBook>(hello: Hello, book: &B) -> Result<Greeted, Reason> {
    let expected = book.look_up(&hello.ticket).ok_or(Reason::UnknownTicket)?;
    let manifest = check_hello(&hello, &expected)?;
    let Hello { ticket: id, sender, link, links, lent, .. } = hello;
    Ok(Greeted { id, sender, link, links, lent, expected, manifest })
}
