use std::fmt;

/// Why one side gives a transfer up; travels to the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Whoever asked for the hand-over no longer wants it.
    Cancelled,
    /// The receiver holds no such ticket, or the sender does not know its secret.
    UnknownTicket,
    /// Another transfer of this ticket is under way, or one failed.
    TicketUsed,
    /// The ticket was issued by an earlier start of the receiver's process.
    StaleIncarnation,
    /// The first field of layout, or the position, in which the two sides differ.
    Mismatch {
        field: String,
    },
    LeaseExpired,
    /// A segment's digest was wrong, twice.
    Corrupt {
        segment: String,
    },
    /// The sender wants to commit, but this has not arrived.
    Incomplete {
        missing: String,
    },
    /// A frame that its reader cannot accept.
    Protocol {
        fault: String,
    },
    /// The other side showed no life.
    Stalled,
    /// What produces the state failed.
    Source {
        fault: String,
    },
    /// What takes the state in failed.
    Sink {
        fault: String,
    },
    Draining,
}

/// Longest text a reason carries, bytes.
pub(crate) const MOST_TEXT: usize = 120;

impl Reason {
    /// Wire code and text.
    pub(crate) fn parts(&self) -> (u8, &str) {
        match self {
            Reason::Cancelled => (1, ""),
            Reason::UnknownTicket => (2, ""),
            Reason::TicketUsed => (3, ""),
            Reason::StaleIncarnation => (4, ""),
            Reason::Mismatch { field } => (5, field),
            Reason::LeaseExpired => (6, ""),
            Reason::Corrupt { segment } => (7, segment),
            Reason::Incomplete { missing } => (8, missing),
            Reason::Protocol { fault } => (9, fault),
            Reason::Stalled => (10, ""),
            Reason::Source { fault } => (11, fault),
            Reason::Sink { fault } => (12, fault),
            Reason::Draining => (13, ""),
        }
    }

    pub(crate) fn from_parts(code: u8, text: &str) -> Option<Reason> {
        let own = || text.to_owned();
        Some(match code {
            1 => Reason::Cancelled,
            2 => Reason::UnknownTicket,
            3 => Reason::TicketUsed,
            4 => Reason::StaleIncarnation,
            5 => Reason::Mismatch { field: own() },
            6 => Reason::LeaseExpired,
            7 => Reason::Corrupt { segment: own() },
            8 => Reason::Incomplete { missing: own() },
            9 => Reason::Protocol { fault: own() },
            10 => Reason::Stalled,
            11 => Reason::Source { fault: own() },
            12 => Reason::Sink { fault: own() },
            13 => Reason::Draining,
            _ => return None,
        })
    }

    /// Whether a new hand-over of the same state may succeed.
    pub fn worth_retrying(&self) -> bool {
        match self {
            Reason::UnknownTicket
            | Reason::TicketUsed
            | Reason::StaleIncarnation
            | Reason::LeaseExpired
            | Reason::Corrupt { .. }
            | Reason::Stalled
            | Reason::Source { .. }
            | Reason::Sink { .. }
            | Reason::Draining => true,
            Reason::Cancelled | Reason::Mismatch { .. } => false,
            Reason::Incomplete { .. } | Reason::Protocol { .. } => false,
        }
    }

    /// Whether the peer broke the protocol, so that nothing more can be learned from it.
    pub(crate) fn is_of_the_peer(&self) -> bool {
        matches!(self, Reason::Protocol { .. } | Reason::StaleIncarnation)
    }

    /// The label under which faults of this kind are counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Reason::Cancelled => "cancelled",
            Reason::UnknownTicket => "unknown_ticket",
            Reason::TicketUsed => "ticket_used",
            Reason::StaleIncarnation => "stale_incarnation",
            Reason::Mismatch { .. } => "mismatch",
            Reason::LeaseExpired => "lease_expired",
            Reason::Corrupt { .. } => "corrupt",
            Reason::Incomplete { .. } => "incomplete",
            Reason::Protocol { .. } => "protocol",
            Reason::Stalled => "stalled",
            Reason::Source { .. } => "source",
            Reason::Sink { .. } => "sink",
            Reason::Draining => "draining",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Cancelled => f.write_str("cancelled"),
            Reason::UnknownTicket => f.write_str("unknown ticket"),
            Reason::TicketUsed => f.write_str("ticket already used"),
            Reason::StaleIncarnation => f.write_str("ticket of an earlier incarnation"),
            Reason::Mismatch { field } => write!(f, "{field} differs"),
            Reason::LeaseExpired => f.write_str("lease expired"),
            Reason::Corrupt { segment } => write!(f, "{segment} arrived corrupt twice"),
            Reason::Incomplete { missing } => write!(f, "{missing} never arrived"),
            Reason::Protocol { fault } => write!(f, "bad frame: {fault}"),
            Reason::Stalled => f.write_str("no progress"),
            Reason::Source { fault } => write!(f, "source failed: {fault}"),
            Reason::Sink { fault } => write!(f, "sink failed: {fault}"),
            Reason::Draining => f.write_str("draining"),
        }
    }
}
