use crate::error::Error;
use crate::ticket::Receipt;

/// How a hand-over ended, as far as the sender can know. It always learns one of these.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// The receiver holds the state and uses it.
    Held(Receipt),
    /// The receiver does not hold the state and will not: handing it over under a new ticket makes no second copy.
    Revoked(Error),
    /// The receiver was asked to commit, and nobody could be reached who knows whether it did. It may hold the state or not:
    /// whoever goes on must fence this ticket's incarnation off first.
    Unknown(Error),
}
