//! What it means for two prompts to begin alike: hash chains.
//!
//! A prompt is cut into units of [`HashUnit`] tokens. Each whole unit ends at a boundary, and a [`PrefixHash`] names
//! *all* tokens up to it, so two prompts begin alike up to a boundary when its hashes are equal. Workers look up what
//! they hold by these hashes and tell the router about them; this crate calls nobody and knows neither.
//!
//! # The hashes, byte for byte
//!
//! Every process of a cluster computes the same:
//!
//! ```text
//! namespace = BLAKE3 derive_key, context "tandem prefix namespace",
//!             of  u64_le(length of salt) || salt || fingerprint                        32 bytes
//! hash[0]   = 16 zero bytes
//! hash[k]   = BLAKE3 keyed_hash, key = namespace,
//!             of  hash[k - 1] || u32_le(token) for each of the unit's tokens     first 16 bytes
//! ```
//!
//! `hash[k]` for k >= 1 belongs to the boundary after k units, position k x unit. The salt is the tenant's; without it
//! no other tenant can compute, or find, a boundary. The fingerprint is the bytes that say what a model computes: a
//! state of another model, or in other formats, never has an equal hash. BLAKE3 is collision resistant (2^64 work for
//! 128 bits), so that nobody can craft a prompt that stands for another's.

mod chain;
mod hash;
mod unit;

pub use chain::{Boundary, Chain};
pub use hash::{Namespace, PrefixHash};
pub use unit::{HashUnit, Tokens, Units};
