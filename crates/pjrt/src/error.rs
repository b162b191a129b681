//! What can go wrong, whose fault it is, and whether to try again.

use std::path::PathBuf;

/// Result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong here.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin file was found.
    #[error("no PJRT plugin: {0}; run `make plugin` or set TANDEM_PJRT_PLUGIN")]
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
            Self::Missing { .. } => Code::Unimplemented,
            Self::Argument { .. } => Code::InvalidArgument,
            Self::Io { .. } => Code::Unavailable,
        }
    }

    /// Whose fault it is.
    pub fn whose(&self) -> Fault {
        match self.code() {
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

    pub(crate) fn io(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        Self::Io { path: path.into(), message: error.to_string() }
    }
}
