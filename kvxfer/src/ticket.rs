use std::fmt;
use std::str::FromStr;

use crate::layout::Layout;

/// Names one reservation on one decode worker; written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(pub [u8; 16]);

/// A random id made at each start of a receiver's process, and for each call that sends: neither end takes anything from
/// another start or attempt than the one it began with.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub [u8; 16]);

/// Numbers the connections of one transfer. A number is used once: what replaces a dead link has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u16);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Known to the two ends of one transfer only; keys the greeting and every digest. What a decode worker issues is bound to both ends
/// before it does ([`crate::EndKey::bind`]).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

/// What a sender must know to hand one sequence's state over.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub id: TicketId,
    /// host:port of the receiver's data listener.
    pub endpoint: String,
    pub secret: Secret,
    /// Of the receiver that issued the ticket.
    pub incarnation: Incarnation,
    /// The sender's own layout; the receiver compares it with its own.
    pub layout: Layout,
    /// Tokens the state has consumed: the prompt's length.
    pub state_pos: u32,
}

/// What a receiver holds against a sender's greeting.
#[derive(Clone, Debug)]
pub struct Expected {
    pub secret: Secret,
    pub incarnation: Incarnation,
    pub layout: Layout,
    pub state_pos: u32,
    /// Set once the hand-over was committed: a sender that lost the answer gets it again.
    pub committed: Option<Receipt>,
}

/// Both ends agree on this after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub segments: u32,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ticket id must be 32 hexadecimal digits")]
pub struct BadTicketId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{have} bytes instead of {need}")]
pub struct BadLength {
    pub have: usize,
    pub need: usize,
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], BadLength> {
    let have = bytes.len();
    bytes.try_into().map_err(|_| BadLength { have, need: N })
}

impl TryFrom<&[u8]> for Incarnation {
    type Error = BadLength;

    fn try_from(bytes: &[u8]) -> Result<Incarnation, BadLength> {
        exactly(bytes).map(Incarnation)
    }
}

impl TryFrom<&[u8]> for Secret {
    type Error = BadLength;

    fn try_from(bytes: &[u8]) -> Result<Secret, BadLength> {
        exactly(bytes).map(Secret)
    }
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TicketId {
    type Err = BadTicketId;

    fn from_str(text: &str) -> Result<TicketId, BadTicketId> {
        // from_str_radix alone would take a sign
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(id) if digits => Ok(TicketId(id.to_be_bytes())),
            Ok(_) | Err(_) => Err(BadTicketId),
        }
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
