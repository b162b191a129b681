//! The one error of this crate, and how a status becomes it.

use std::{fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::v1::ErrorReason;

const DOMAIN: &str = "tandem";
const PREFIX: &str = "ERROR_REASON_";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// One of the contract's, as docs/errors.md explains them.
    Contract(ErrorReason),
    /// No connection to the router could be made, or it broke.
    Unreachable,
    /// The stream broke, and the answer to the same request does not begin with what was delivered.
    Diverged,
    /// The stream had a gap, or ended without a finish or an error.
    Malformed,
    /// A newer router's reason, or the gRPC code of what only a proxy said.
    Other(String),
}

impl Reason {
    fn named(name: &str) -> Self {
        ErrorReason::from_str_name(&format!("{PREFIX}{name}"))
            .map_or_else(|| Self::Other(name.to_owned()), Self::Contract)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Contract(reason) => reason.as_str_name().trim_start_matches(PREFIX),
            Self::Unreachable => "UNREACHABLE",
            Self::Diverged => "DIVERGED",
            Self::Malformed => "MALFORMED",
            Self::Other(name) => name,
        })
    }
}

/// A call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Error {
    pub reason: Reason,
    pub message: String,
    pub code: Code,
    /// The request's field that is to blame, by its path, such as `sampling.top_p`.
    pub field: Option<String>,
    /// After which time asking again can help; `None` if it can't.
    pub retry_after: Option<Duration>,
    /// Names the request in the router's logs; empty before there was one.
    pub request_id: String,
    /// Tokens that were delivered before.
    pub delivered: u32,
}

impl Error {
    pub(crate) fn new(reason: Reason, code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            reason,
            message,
            code,
            field: None,
            retry_after: None,
            request_id: String::new(),
            delivered: 0,
        }
    }

    /// Something about the client itself is wrong; nothing was asked.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        let reason = Reason::Contract(ErrorReason::InvalidField);
        Self { field: Some(field.to_owned()), ..Self::new(reason, Code::InvalidArgument, message) }
    }

    pub(crate) fn deadline() -> Self {
        let reason = Reason::Contract(ErrorReason::Deadline);
        Self::new(reason, Code::DeadlineExceeded, "the time that the client gave is over")
    }

    /// Whether the same request may be asked again.
    pub fn again(&self) -> bool {
        self.retry_after.is_some() || self.reason == Reason::Unreachable
    }

    /// Reads the status that a call ended with.
    pub(crate) fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let Some(info) = details.error_info().filter(|info| info.domain == DOMAIN) else {
            return Self::new(by_code(status.code()), status.code(), status.message());
        };
        Self {
            field: info.metadata.get("field").cloned(),
            retry_after: details.retry_info().map(|retry| retry.retry_delay.unwrap_or_default()),
            ..Self::new(Reason::named(&info.reason), status.code(), status.message())
        }
    }
}

/// The reason of a status without one of ours: it comes from a library or a proxy on the way, never from a router.
fn by_code(code: Code) -> Reason {
    let name = match code {
        // hyper calls what was not sent any more before a connection closed cancelled
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => return Reason::Unreachable,
        Code::DeadlineExceeded => return Reason::Contract(ErrorReason::Deadline),
        Code::Ok => "OK",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    };
    Reason::named(name)
}
