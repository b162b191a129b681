use model::weights::Float;

/// What the programs that run the model want its weights to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Width of float matrices.
    pub float: Float,
    /// Whether matrices are converted to int8. Packed experts are unpacked for that.
    pub int8: bool,
    /// Whether the draft layer is loaded, where the checkpoint has one.
    pub drafts: bool,
    /// Whether matrices that read the same input are joined.
    pub joined: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { float: Float::F32, int8: false, drafts: true, joined: true }
    }
}
