use std::time::Duration;

/// How long each side waits for the other before it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A peer that sends nothing for this long is taken for dead.
    pub stall: Duration,
    /// A side with nothing to say says so this often. A sender whose source computes for minutes is no stall.
    pub heartbeat: Duration,
    /// The sink may take this long for one segment, or for the commit.
    pub sink: Duration,
    /// A receiver without any connection to its sender waits this long for a new one.
    pub relink: Duration,
    /// Connections a transfer has at most; a small one has fewer.
    pub links: u16,
    /// The connection and the greeting together may take this long.
    pub greeting: Duration,
    /// A connection is kept for this long without a transfer, by its sender; half as long again by its receiver, so that it is not the
    /// one to close. Less than what forgets idle connections on the way: that takes minutes.
    pub idle: Duration,
    /// A greeting on a connection that was kept is answered within this, or the connection is taken for dead.
    pub kept: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            stall: Duration::from_secs(2),
            heartbeat: Duration::from_millis(400),
            sink: Duration::from_secs(10),
            relink: Duration::from_secs(1),
            links: 4,
            greeting: Duration::from_secs(2),
            idle: Duration::from_secs(30),
            kept: Duration::from_millis(200),
        }
    }
}

/// Bytes of state for which one more connection is worth its greeting.
const BYTES_A_LINK: u64 = 64 << 20;

impl Pace {
    /// Connections for a state of so many bytes.
    pub(crate) fn links_for(&self, bytes: u64) -> u16 {
        u16::try_from(bytes.div_ceil(BYTES_A_LINK)).unwrap_or(u16::MAX).clamp(1, self.links.max(1))
    }
}

/// Segments one transfer may have unacknowledged, however small they are.
pub(crate) const MOST_UNACKED: usize = 4096;

/// A receiver's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of payload one transfer may have unacknowledged, over all its links. A manifest's largest segment, which each
    /// of them must have room for, raises it.
    pub window: u64,
    /// Bytes all transfers together may have unacknowledged; a transfer that finds no room waits.
    pub staging: u64,
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one transfer.
    pub links: u16,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { window: 16 << 20, staging: 256 << 20, connections: 256, links: 8 }
    }
}
