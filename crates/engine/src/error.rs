use statepool::{NoRoom, PoolError};

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pool has no room for the sequence.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The pool was asked for what can not be: a mistake of this engine that ends one request.
    #[error("pool: {0}")]
    Pool(PoolError),
    /// As many prompts wait already as may wait.
    #[error("{waiting} prompts wait, no more are taken")]
    QueueFull {
        /// Prompts that wait.
        waiting: usize,
    },
    /// The prompt has no token.
    #[error("prompt: is empty")]
    EmptyPrompt,
    /// More tokens than the model's context holds.
    #[error("{field}: {tokens} tokens, the context holds {context}")]
    TooLong {
        /// What is too long.
        field: &'static str,
        /// Tokens given.
        tokens: u64,
        /// The longest sequence.
        context: u32,
    },
    /// A token id is not in the vocabulary.
    #[error("{field}: token id {id} is not in the vocabulary of {vocabulary}")]
    UnknownToken {
        /// Where it was given.
        field: &'static str,
        /// The id.
        id: u32,
        /// Ids of the model.
        vocabulary: usize,
    },
    /// A position beyond what was reserved.
    #[error("{field}: reaches position {end}, the reservation holds {capacity} tokens")]
    BeyondReservation {
        /// What reaches too far.
        field: &'static str,
        /// The first position that is not needed any more.
        end: u64,
        /// Tokens reserved.
        capacity: u32,
    },
    /// Imported values of the wrong count.
    #[error("{field}: {got} values given, {expected} expected")]
    Misshapen {
        /// What was imported.
        field: &'static str,
        /// Values that the layout asks for.
        expected: usize,
        /// Values given.
        got: usize,
    },
    /// The sequence was started before all of its state was imported.
    #[error("state: {missing} is not imported")]
    Incomplete {
        /// The first part that is missing.
        missing: String,
    },
    /// The engine has no programs for this: it was started in another role.
    #[error("role: this engine does no {phase}")]
    WrongRole {
        /// The phase asked for.
        phase: &'static str,
    },
    /// The deadline passed.
    #[error("deadline: passed during {phase}")]
    DeadlinePassed {
        /// What was being done.
        phase: &'static str,
    },
    /// The stream's reader left as many events unread as the queue holds.
    #[error("stream: the reader is {events} events behind")]
    SlowReader {
        /// Events unread.
        events: usize,
    },
    /// The model's logits are not finite: the sequence's state is corrupt.
    #[error("logits: not finite after position {position}")]
    NotFinite {
        /// Position of the token that was to be drawn.
        position: u32,
    },
    /// A step failed on the device and took the state arrays with it, this sequence's state among them.
    #[error("state: lost when a step failed on the device")]
    StateLost,
    /// The step that this sequence was part of failed on the device.
    #[error("device: {message}")]
    Device {
        /// What the device said.
        message: String,
    },
    /// The engine has stopped.
    #[error("engine: stopped")]
    Stopped,
    /// The model folder's config can not be served.
    #[error(transparent)]
    Model(Box<model::Error>),
    /// The model folder's weights can not be served.
    #[error(transparent)]
    Checkpoint(Box<checkpoint::Error>),
    /// No program can be made for a shape.
    #[error(transparent)]
    Programs(Box<programs::Error>),
    /// The plugin could not be used at start.
    #[error(transparent)]
    Plugin(#[from] pjrt::Error),
    /// The device thread could not be made.
    #[error("device thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Whoever asked: the same request fails again.
    Caller,
    /// Nobody: there is more work than room at the moment.
    Load,
    /// This engine or its device.
    Engine,
    /// Whoever installed the model or the plugin.
    Operator,
}

/// Whether asking again helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It fails again, everywhere.
    No,
    /// Here once there is room, or elsewhere at once.
    Later,
    /// At another engine at once.
    Elsewhere,
}

impl Error {
    /// Whose fault it is.
    pub fn whose(&self) -> Fault {
        match self {
            Self::NoRoom(no_room) if !no_room.may_pass() => Fault::Operator,
            Self::NoRoom(_) | Self::QueueFull { .. } | Self::DeadlinePassed { .. } => Fault::Load,
            Self::EmptyPrompt
            | Self::TooLong { .. }
            | Self::UnknownToken { .. }
            | Self::BeyondReservation { .. }
            | Self::Misshapen { .. }
            | Self::Incomplete { .. }
            | Self::WrongRole { .. }
            | Self::SlowReader { .. } => Fault::Caller,
            Self::Pool(_)
            | Self::NotFinite { .. }
            | Self::StateLost
            | Self::Device { .. }
            | Self::Stopped => Fault::Engine,
            Self::Model(_) | Self::Checkpoint(_) | Self::Programs(_) | Self::Plugin(_) | Self::Thread(_) => {
                Fault::Operator
            }
        }
    }

    /// Whether to ask again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::NoRoom(no_room) if !no_room.may_pass() => Retry::Elsewhere,
            Self::NoRoom(_) | Self::QueueFull { .. } => Retry::Later,
            Self::Pool(_)
            | Self::NotFinite { .. }
            | Self::StateLost
            | Self::Device { .. }
            | Self::Stopped => Retry::Elsewhere,
            Self::EmptyPrompt
            | Self::TooLong { .. }
            | Self::UnknownToken { .. }
            | Self::BeyondReservation { .. }
            | Self::Misshapen { .. }
            | Self::Incomplete { .. }
            | Self::WrongRole { .. }
            | Self::DeadlinePassed { .. }
            | Self::SlowReader { .. }
            | Self::Model(_)
            | Self::Checkpoint(_)
            | Self::Programs(_)
            | Self::Plugin(_)
            | Self::Thread(_) => Retry::No,
        }
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::NoRoom(no_room) => Self::NoRoom(no_room),
            other => Self::Pool(other),
        }
    }
}

impl From<model::Error> for Error {
    fn from(error: model::Error) -> Self {
        Self::Model(Box::new(error))
    }
}

impl From<checkpoint::Error> for Error {
    fn from(error: checkpoint::Error) -> Self {
        Self::Checkpoint(Box::new(error))
    }
}

impl From<programs::Error> for Error {
    fn from(error: programs::Error) -> Self {
        Self::Programs(Box::new(error))
    }
}
