use proto::status::Fault;
use proto::v1::ErrorReason;
use tonic::Status;

use crate::ledger::Failure;

/// Why a call of the decode service failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A message that is wrong by itself.
    #[error("{}", .0.message)]
    Message(Fault),
    #[error("{field} differs between the two workers")]
    Mismatch { field: &'static str },
    #[error("this worker is draining")]
    Draining,
    #[error("no such ticket, or its tokens are taken already")]
    UnknownTicket,
    #[error("nothing arrived before the deadline")]
    Deadline,
    #[error("the lease expired before the state was committed")]
    LeaseExpired,
    #[error("the state was not handed over: {why}")]
    Transfer { why: String, worth_retrying: bool },
    /// The state says something else than the request.
    #[error("{field}: the prefill worker used another one")]
    OtherRequest { field: &'static str },
    #[error(transparent)]
    Engine(#[from] engine::Error),
    #[error("{0}")]
    Internal(&'static str),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::LeaseExpired => Error::LeaseExpired,
            Failure::Transfer { why, worth_retrying } => Error::Transfer { why, worth_retrying },
        }
    }
}

impl Error {
    fn fault(&self) -> Fault {
        let told = |reason| Fault::new(reason, self.to_string());
        match self {
            Error::Message(fault) => fault.clone(),
            Error::Mismatch { field } => told(ErrorReason::Mismatch).with_field(*field),
            Error::Draining => told(ErrorReason::Draining),
            Error::UnknownTicket => told(ErrorReason::UnknownTicket),
            Error::Deadline => told(ErrorReason::Deadline),
            Error::LeaseExpired => told(ErrorReason::LeaseExpired),
            Error::Transfer { worth_retrying, .. } => {
                let fault = told(ErrorReason::TransferFailed);
                if *worth_retrying { fault } else { Fault { retry_after: None, ..fault } }
            }
            Error::OtherRequest { field } => told(ErrorReason::Mismatch).with_field(*field),
            Error::Engine(error) => host::fault(error),
            Error::Internal(_) => told(ErrorReason::Internal),
        }
    }
}

/// The one place where an error of this service becomes a status.
pub(crate) fn status(error: &Error) -> Status {
    let fault = error.fault();
    match fault.reason {
        ErrorReason::Internal | ErrorReason::WorkerLost => tracing::error!(%error, "call failed"),
        _ => tracing::info!(%error, "call ended"),
    }
    fault.to_status()
}
