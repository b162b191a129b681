//! What a checkpoint's config says the model is, and the bytes its weights and state need.
//!
//! `programs` asks for the arrangement of layers and the weights to name as arguments, `checkpoint` for how each weight
//! is cut from named tensors, `statepool` and `engine` for what one token and one slot cost. This room calls nobody.

mod config;
mod error;
mod fold;
mod state;
pub mod weights;

pub use config::{
    Activation, Attention, Family, Ffn, Indexer, Kda, LatentExperts, Layer, Mla, ModelConfig, Moe, Mtp,
    MtpReads, Residual,
};
pub use error::Error;
pub use fold::{Fold, Place, fold};
pub use state::{IndexShape, StateShape};
