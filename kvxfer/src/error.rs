use std::io;

use crate::reason::Reason;

/// Why a transfer did not end in a commit. The state is then in nobody's use: neither side keeps half of one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This side gave up; the peer was told.
    #[error("transfer given up: {0}")]
    GaveUp(Reason),
    /// The peer gave up and said why.
    #[error("peer gave the transfer up: {0}")]
    PeerGaveUp(Reason),
    /// The connection could not be made.
    #[error("data endpoint {endpoint} unreachable: {fault}")]
    Unreachable { endpoint: String, fault: io::Error },
    /// The connection ended in the middle.
    #[error("connection cut: {}", .0.as_ref().map_or_else(|| "ended by the peer".to_owned(), ToString::to_string))]
    Cut(Option<io::Error>),
}

impl Error {
    /// Whether handing the state over anew, under a new ticket, may succeed.
    pub fn worth_retrying(&self) -> bool {
        match self {
            Error::GaveUp(reason) | Error::PeerGaveUp(reason) => reason.worth_retrying(),
            Error::Unreachable { .. } | Error::Cut(_) => true,
        }
    }

    /// The same error again, for a second listener.
    pub(crate) fn same(&self) -> Error {
        let again = |fault: &io::Error| io::Error::new(fault.kind(), fault.to_string());
        match self {
            Error::GaveUp(reason) => Error::GaveUp(reason.clone()),
            Error::PeerGaveUp(reason) => Error::PeerGaveUp(reason.clone()),
            Error::Unreachable { endpoint, fault } => {
                Error::Unreachable { endpoint: endpoint.clone(), fault: again(fault) }
            }
            Error::Cut(fault) => Error::Cut(fault.as_ref().map(again)),
        }
    }

    /// The reason that was said or heard, if any.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Error::GaveUp(reason) | Error::PeerGaveUp(reason) => Some(reason),
            Error::Unreachable { .. } | Error::Cut(_) => None,
        }
    }

    /// The label under which faults of this kind are counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Error::GaveUp(reason) | Error::PeerGaveUp(reason) => reason.kind(),
            Error::Unreachable { .. } => "unreachable",
            Error::Cut(_) => "cut",
        }
    }
}
