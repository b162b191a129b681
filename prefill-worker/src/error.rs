use proto::status::Fault;
use proto::v1::ErrorReason;
use tonic::Status;

/// Why a prompt's state was not handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A message that is wrong by itself.
    #[error("{}", .0.message)]
    Message(Fault),
    #[error("{field} differs between the two workers{}", .values.as_ref().map_or_else(String::new, |v| format!(": {v}")))]
    Mismatch { field: String, values: Option<String> },
    #[error("this worker is draining")]
    Draining,
    #[error(transparent)]
    Engine(#[from] engine::Error),
    #[error("the state was not handed over: {0}")]
    Transfer(kvxfer::Error),
    /// The receiver may hold the state or not: its ticket must be fenced off before anybody goes on.
    #[error("nobody knows whether the state was handed over: {0}")]
    InDoubt(kvxfer::Error),
    #[error("{0}")]
    Internal(&'static str),
}

impl Error {
    fn fault(&self) -> Fault {
        let told = |reason| Fault::new(reason, self.to_string());
        match self {
            Error::Message(fault) => fault.clone(),
            Error::Mismatch { field, .. } => told(ErrorReason::Mismatch).with_field(field),
            Error::Draining => told(ErrorReason::Draining),
            Error::Engine(error) => host::fault(error),
            Error::Transfer(error) => {
                let fault = match error.reason() {
                    Some(kvxfer::Reason::LeaseExpired) => told(ErrorReason::LeaseExpired),
                    Some(kvxfer::Reason::StaleIncarnation) => told(ErrorReason::StaleIncarnation),
                    Some(kvxfer::Reason::Mismatch { field }) => told(ErrorReason::Mismatch).with_field(field),
                    Some(kvxfer::Reason::Cancelled) => told(ErrorReason::Cancelled),
                    Some(_) | None => told(ErrorReason::TransferFailed),
                };
                if error.worth_retrying() { fault } else { Fault { retry_after: None, ..fault } }
            }
            Error::InDoubt(_) => told(ErrorReason::TransferFailed),
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
