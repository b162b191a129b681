/// Why a program can not be made. None of these passes by itself: trying again changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shape ladder asks for a shape that can not exist; the operator's fault.
    #[error("shape ladder: {field}: {reason}")]
    Ladder {
        /// Field of the ladder.
        field: &'static str,
        /// What it must be.
        reason: String,
    },
    /// The mesh does not fit the model or the formats; the operator's fault.
    #[error("mesh: {0}")]
    Mesh(String),
    /// The builder of a program made an ill-typed operation; this crate's fault.
    #[error("program {program}: {source}")]
    Build {
        /// Name of the program.
        program: String,
        /// The operation and the types it was given.
        source: Box<stablehlo::Error>,
    },
    /// A program was finished with a weight, state or input that it never declared; this crate's fault.
    #[error("program {program}: {name} is not declared")]
    Undeclared {
        /// Name of the program.
        program: String,
        /// The argument asked for.
        name: String,
    },
}
