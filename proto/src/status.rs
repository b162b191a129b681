//! One shape for every error on the wire: a gRPC status with `google.rpc.ErrorInfo` (domain `tandem`), and
//! `google.rpc.RetryInfo` where a retry can help.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::v1::ErrorReason;

const DOMAIN: &str = "tandem";
const PREFIX: &str = "ERROR_REASON_";

/// Why a call failed, whose fault it is, and whether asking again can help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// From the one list in `errors.proto`.
    pub reason: ErrorReason,
    /// For a person: lower case, without full stop.
    pub message: String,
    /// The request's field that is wrong, or the first layout or fingerprint field that differs.
    pub field: Option<String>,
    /// When to ask again, if that can help.
    pub retry_after: Option<Duration>,
}

impl Fault {
    /// A fault without a field; retry advice follows the reason.
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), field: None, retry_after: retry_advice(reason) }
    }

    /// The request's `field` is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorReason::InvalidField, message) }
    }

    /// Names the field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The status that carries this fault.
    pub fn to_status(&self) -> Status {
        let mut metadata = HashMap::new();
        if let Some(field) = &self.field {
            metadata.insert("field".to_owned(), field.clone());
        }
        let mut details = ErrorDetails::with_error_info(reason_name(self.reason), DOMAIN, metadata);
        if let (ErrorReason::InvalidField, Some(field)) = (self.reason, &self.field) {
            details.add_bad_request_violation(field, &self.message);
        }
        if let Some(after) = self.retry_after {
            details.set_retry_info(Some(after));
        }
        Status::with_error_details(code(self.reason), &self.message, details)
    }

    /// Reads a status back. One that carries no reason of ours is judged by its code: a peer that can't be reached
    /// is lost, everything unknown is our own fault.
    pub fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        let reason = info
            .and_then(|info| ErrorReason::from_str_name(&format!("{PREFIX}{}", info.reason)))
            .unwrap_or_else(|| reason_of(status.code()));
        Self {
            reason,
            message: status.message().to_owned(),
            field: info.and_then(|info| info.metadata.get("field").cloned()),
            retry_after: details
                .retry_info()
                .and_then(|retry| retry.retry_delay)
                .or_else(|| retry_advice(reason)),
        }
    }
}

/// The reason's name as it stands in `ErrorInfo`, for example `NO_ROOM`.
pub fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// The gRPC code of a reason.
pub fn code(reason: ErrorReason) -> Code {
    match reason {
        ErrorReason::InvalidField | ErrorReason::ContextLength => Code::InvalidArgument,
        ErrorReason::UnknownModel | ErrorReason::UnknownTicket => Code::NotFound,
        ErrorReason::Overloaded | ErrorReason::NoRoom | ErrorReason::RateLimited => Code::ResourceExhausted,
        ErrorReason::NoWorker | ErrorReason::WorkerLost | ErrorReason::Draining => Code::Unavailable,
        ErrorReason::StaleIncarnation | ErrorReason::Mismatch => Code::FailedPrecondition,
        ErrorReason::LeaseExpired | ErrorReason::TransferFailed => Code::Aborted,
        ErrorReason::Deadline => Code::DeadlineExceeded,
        ErrorReason::Cancelled => Code::Cancelled,
        ErrorReason::Unauthenticated => Code::Unauthenticated,
        ErrorReason::Forbidden => Code::PermissionDenied,
        ErrorReason::Internal | ErrorReason::Unspecified => Code::Internal,
    }
}

fn reason_of(code: Code) -> ErrorReason {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ErrorReason::InvalidField,
        Code::ResourceExhausted => ErrorReason::Overloaded,
        Code::Unavailable => ErrorReason::WorkerLost,
        Code::DeadlineExceeded => ErrorReason::Deadline,
        Code::Cancelled => ErrorReason::Cancelled,
        Code::Unauthenticated => ErrorReason::Unauthenticated,
        Code::PermissionDenied => ErrorReason::Forbidden,
        _ => ErrorReason::Internal,
    }
}

fn retry_advice(reason: ErrorReason) -> Option<Duration> {
    match reason {
        ErrorReason::Overloaded | ErrorReason::RateLimited | ErrorReason::NoWorker => {
            Some(Duration::from_secs(1))
        }
        ErrorReason::NoRoom => Some(Duration::from_millis(200)),
        ErrorReason::WorkerLost
        | ErrorReason::Draining
        | ErrorReason::TransferFailed
        | ErrorReason::LeaseExpired
        | ErrorReason::StaleIncarnation => Some(Duration::from_millis(50)),
        ErrorReason::Unspecified
        | ErrorReason::InvalidField
        | ErrorReason::UnknownModel
        | ErrorReason::ContextLength
        | ErrorReason::UnknownTicket
        | ErrorReason::Mismatch
        | ErrorReason::Deadline
        | ErrorReason::Cancelled
        | ErrorReason::Unauthenticated
        | ErrorReason::Forbidden
        | ErrorReason::Internal => None,
    }
}

#[cfg(test)]
mod tests;
