//! What can go wrong, whose fault it is, and whether to try again.

use std::path::PathBuf;

/// Result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong here.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin file was found.
    #[error("no PJRT plugin: {0}; run `make plugin` or `make libtpu`, or set the variable that names one")]
    NoPlugin(String),
    /// The file is not a plugin this room can drive.
    #[error("plugin {path}: {message}")]
    Plugin {
        /// The shared object.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The plugin answered with an error status.
    #[error("{call}: {message}")]
    Status {
        /// The C call.
        call: &'static str,
        /// Its status.
        code: Code,
        /// The plugin's words.
        message: String,
    },
    /// The program does not fit the memory it is compiled for, wherever it may run.
    #[error("{call}: out of {memory}: {message}")]
    TooLarge {
        /// The C call.
        call: &'static str,
        /// Which memory, and by how much.
        memory: Box<DeviceMemory>,
        /// The plugin's words.
        message: String,
    },
    /// The plugin does not implement the call at all.
    #[error("{call}: the plugin does not implement it")]
    Missing {
        /// The C call.
        call: &'static str,
    },
    /// Rejected here, before the plugin saw it.
    #[error("{argument}: {message}")]
    Argument {
        /// Which argument.
        argument: String,
        /// What is wrong with it.
        message: String,
    },
    /// The buffer was donated or deleted.
    #[error("{argument}: the buffer was donated or deleted")]
    Deleted {
        /// Which argument.
        argument: String,
    },
    /// A file of the executable cache could not be written or read.
    #[error("{path}: {message}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        message: String,
    },
}

/// `absl::StatusCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// A memory of a device that a program did not fit into, as the compiler reports it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{space} memory, {used} used of {available}")]
pub struct DeviceMemory {
    /// `hbm`, `vmem`, or what else the chip has.
    pub space: String,
    /// What the program would take, in the compiler's words: `33.00G`.
    pub used: String,
    /// What there is: `31.24G`.
    pub available: String,
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The code that called: the same call fails again.
    Caller,
    /// The plugin, or its absence.
    Plugin,
    /// The machine: memory or disk ran out, a device went away.
    Machine,
}

impl DeviceMemory {
    /// Finds the figures in libtpu's words: `... in memory space hbm. Used 33.00G of 31.24G hbm ...`, or
    /// `... (33.00G) exceeds available HBM (31.24G) ...`.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let figure = |text: &str| {
            let figure = text.split([' ', ')']).next().unwrap_or_default();
            figure.trim_end_matches(['.', ',', ';', ':']).to_owned()
        };
        if let Some((before, after)) = message.split_once(" exceeds available ") {
            let (space, available) = after.split_once(" (")?;
            let (_, used) = before.rsplit_once('(')?;
            return Some(Self {
                space: space.to_lowercase(),
                used: figure(used),
                available: figure(available),
            });
        }
        let (_, space) = message.split_once("in memory space ")?;
        let (space, rest) = space.split_once('.')?;
        let (_, used) = rest.split_once("Used ")?;
        let (_, available) = used.split_once(" of ")?;
        Some(Self { space: space.to_owned(), used: figure(used), available: figure(available) })
    }
}

impl Code {
    /// From the C number; an unknown one reads as [`Code::Unknown`].
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            1 => Self::Cancelled,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            6 => Self::AlreadyExists,
            7 => Self::PermissionDenied,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            10 => Self::Aborted,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            13 => Self::Internal,
            14 => Self::Unavailable,
            15 => Self::DataLoss,
            16 => Self::Unauthenticated,
            _ => Self::Unknown,
        }
    }
}

impl Error {
    /// The status code, also for errors found before the plugin was asked.
    pub fn code(&self) -> Code {
        match self {
            Self::NoPlugin(_) => Code::NotFound,
            Self::Plugin { .. } | Self::Deleted { .. } => Code::FailedPrecondition,
            Self::Status { code, .. } => *code,
            Self::TooLarge { .. } => Code::ResourceExhausted,
            Self::Missing { .. } => Code::Unimplemented,
            Self::Argument { .. } => Code::InvalidArgument,
            Self::Io { .. } => Code::Unavailable,
        }
    }

    /// Whose fault it is.
    pub fn whose(&self) -> Fault {
        match self.code() {
            _ if matches!(self, Self::TooLarge { .. }) => Fault::Caller,
            Code::ResourceExhausted
            | Code::Unavailable
            | Code::DataLoss
            | Code::Aborted
            | Code::DeadlineExceeded => Fault::Machine,
            Code::Internal | Code::Unimplemented | Code::Unknown | Code::Unauthenticated => Fault::Plugin,
            _ if matches!(self, Self::NoPlugin(_) | Self::Plugin { .. }) => Fault::Plugin,
            _ => Fault::Caller,
        }
    }

    /// Whether the same call may succeed later, once memory is free or the device is back.
    pub fn retry(&self) -> bool {
        self.whose() == Fault::Machine && self.code() != Code::DataLoss
    }

    pub(crate) fn argument(argument: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Argument { argument: argument.into(), message: message.into() }
    }

    pub(crate) fn deleted(argument: impl Into<String>) -> Self {
        Self::Deleted { argument: argument.into() }
    }

    /// Parsers of programs give their errors no code; a program that does not parse is the caller's.
    pub(crate) fn of_parser(self) -> Self {
        match self {
            Self::Status { call, code: Code::Unknown, message } => {
                Self::Status { call, code: Code::InvalidArgument, message }
            }
            other => other,
        }
    }

    /// Errors of a compiler: as [`of_parser`](Self::of_parser), and a lack of memory is told apart.
    pub(crate) fn of_compiler(self) -> Self {
        match self {
            Self::Status { call, code: Code::ResourceExhausted, message } => {
                match DeviceMemory::read(&message) {
                    Some(memory) => Self::TooLarge { call, memory: Box::new(memory), message },
                    None => Self::Status { call, code: Code::ResourceExhausted, message },
                }
            }
            other => other.of_parser(),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        Self::Io { path: path.into(), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests;
