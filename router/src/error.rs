//! Everything that can end a request, and the two tables that tell clients about it.

use std::time::Duration;

use axum::http::StatusCode;
use proto::status::Fault;
use proto::v1::{ErrorReason, Role};

/// Why a request was refused or ended early. Which variant it is says whose fault it is; [`Error::fault`] says
/// whether asking again can help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client's: a field is wrong.
    #[error("{field}: {why}")]
    Invalid { field: String, why: String },
    /// The client's: no such model here.
    #[error("model: {model:?} is not served here, {served:?} is")]
    UnknownModel { model: String, served: String },
    /// The client's: prompt and output do not fit the context.
    #[error("{field}: {tokens} tokens do not fit the context of {context}")]
    ContextLength { field: String, tokens: u64, context: u32 },
    /// The client's: the HTTP body is over the limit.
    #[error("body: larger than the limit of {limit} bytes")]
    BodyTooLarge { limit: usize },
    /// Nobody's: more requests than the router takes at once.
    #[error("{in_flight} requests are in flight and none ended within {waited:?}")]
    Overloaded { in_flight: usize, waited: Duration },
    /// The client's: it has not shown who it is, or may not do this.
    #[error(transparent)]
    Denied(#[from] identity::Denied),
    /// The client's: its tenant has used what it may.
    #[error(transparent)]
    Over(#[from] identity::Over),
    /// The router is going down.
    #[error("the router is draining")]
    Draining,
    /// The cluster has no worker for a role.
    #[error("no {} worker is ready for model {model:?}", role_name(*role))]
    NoWorker { role: Role, model: String },
    /// The cluster has workers of both roles, but none that belong together.
    #[error("prefill worker {prefill:?} and decode worker {decode:?} differ in {field}")]
    Mismatch { field: &'static str, prefill: String, decode: String },
    /// The request's time is over.
    #[error("the deadline passed while {stage}")]
    Deadline { stage: &'static str },
    /// A worker died, or is not reached any more.
    #[error("{} worker {worker:?} was lost: {why}", role_name(*role))]
    Lost { role: Role, worker: String, why: String },
    /// Whatever serves the request dies: it is not tried on more workers.
    #[error(
        "{losses} workers in a row were lost under this request, which is not started again; the last: {last}"
    )]
    Deadly { losses: u32, last: String },
    /// A worker ended it, for the reason that it gave.
    #[error("{} worker {worker:?}: {}", role_name(*role), fault.message)]
    Worker { role: Role, worker: String, fault: Fault },
    /// Ours or a worker's, never the client's.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// A wrong field.
    pub fn invalid(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), why: why.into() }
    }

    /// What every client is told, whichever door it came through; `to_status` of it is the gRPC answer.
    pub fn fault(&self) -> Fault {
        let message = self.to_string();
        match self {
            Self::Invalid { field, .. } => Fault::invalid(field.as_str(), message),
            Self::UnknownModel { .. } => Fault::new(ErrorReason::UnknownModel, message).with_field("model"),
            Self::ContextLength { field, .. } => {
                Fault::new(ErrorReason::ContextLength, message).with_field(field.as_str())
            }
            Self::BodyTooLarge { .. } => Fault::invalid("body", message),
            Self::Overloaded { .. } => Fault::new(ErrorReason::Overloaded, message),
            Self::Denied(denied) if denied.is_known() => Fault::new(ErrorReason::Forbidden, message),
            Self::Denied(_) => Fault::new(ErrorReason::Unauthenticated, message),
            Self::Over(identity::Over::Tokens { after, .. }) => {
                Fault { retry_after: Some(*after), ..Fault::new(ErrorReason::RateLimited, message) }
            }
            Self::Over(identity::Over::InFlight { .. }) => Fault::new(ErrorReason::RateLimited, message),
            Self::Draining => Fault::new(ErrorReason::Draining, message),
            Self::NoWorker { .. } => Fault::new(ErrorReason::NoWorker, message),
            Self::Mismatch { field, .. } => Fault::new(ErrorReason::Mismatch, message).with_field(*field),
            Self::Deadline { .. } => Fault::new(ErrorReason::Deadline, message),
            Self::Lost { .. } => Fault::new(ErrorReason::WorkerLost, message),
            Self::Deadly { .. } => {
                Fault { retry_after: None, ..Fault::new(ErrorReason::WorkerLost, message) }
            }
            Self::Worker { fault, .. } => Fault { message, ..fault.clone() },
            Self::Internal(_) => Fault::new(ErrorReason::Internal, message),
        }
    }

    /// This, as the last of so many deaths under one request.
    pub(crate) fn as_the_cause(&self, losses: u32) -> Self {
        Self::Deadly { losses, last: self.to_string() }
    }

    /// The HTTP status of this error.
    pub(crate) fn http_status(&self) -> StatusCode {
        match self {
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            other => http_status(other.fault().reason),
        }
    }

    /// The label value of metrics.
    pub(crate) fn outcome(&self) -> String {
        proto::status::reason_name(self.fault().reason).to_lowercase()
    }
}

/// The HTTP status of each reason.
fn http_status(reason: ErrorReason) -> StatusCode {
    match reason {
        ErrorReason::InvalidField | ErrorReason::ContextLength => StatusCode::BAD_REQUEST,
        ErrorReason::UnknownModel => StatusCode::NOT_FOUND,
        ErrorReason::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorReason::Forbidden => StatusCode::FORBIDDEN,
        ErrorReason::Overloaded | ErrorReason::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorReason::NoWorker
        | ErrorReason::NoRoom
        | ErrorReason::Draining
        | ErrorReason::WorkerLost
        | ErrorReason::TransferFailed
        | ErrorReason::LeaseExpired
        | ErrorReason::UnknownTicket
        | ErrorReason::StaleIncarnation
        | ErrorReason::Mismatch => StatusCode::SERVICE_UNAVAILABLE,
        ErrorReason::Deadline => StatusCode::GATEWAY_TIMEOUT,
        // The client closed the request; nginx's number for it, since HTTP has none.
        ErrorReason::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        ErrorReason::Internal | ErrorReason::Unspecified => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A role as people say it.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Unspecified => "unspecified",
    }
}
