use engine::Error;
use proto::status::Fault;
use proto::v1::ErrorReason;

/// What one of the engine's errors means to a caller.
pub fn fault(error: &Error) -> Fault {
    let message = error.to_string();
    match error {
        // A full queue is no room: another worker may have it.
        Error::NoRoom(_) | Error::QueueFull { .. } => Fault::new(ErrorReason::NoRoom, message),
        Error::EmptyPrompt => Fault::invalid("prompt", message),
        Error::TooLong { field, .. } => Fault::new(ErrorReason::ContextLength, message).with_field(*field),
        Error::UnknownToken { field, .. } => Fault::invalid(*field, message),
        Error::DeadlinePassed { .. } => Fault::new(ErrorReason::Deadline, message),
        Error::SlowReader { .. } => Fault::new(ErrorReason::Overloaded, message),
        // This engine can not go on with the sequence; another one can start it anew.
        Error::Pool(_)
        | Error::NotFinite { .. }
        | Error::StateLost
        | Error::Device { .. }
        | Error::Stopped => Fault::new(ErrorReason::WorkerLost, message),
        Error::BeyondReservation { .. }
        | Error::Misshapen { .. }
        | Error::Incomplete { .. }
        | Error::WrongRole { .. }
        | Error::Model(_)
        | Error::Checkpoint(_)
        | Error::Programs(_)
        | Error::Plugin(_)
        | Error::Thread(_) => Fault::new(ErrorReason::Internal, message),
    }
}

#[cfg(test)]
mod tests;
