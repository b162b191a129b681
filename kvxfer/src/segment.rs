use std::fmt;

use bytes::Bytes;

use crate::layout::Layout;

mod cut;

pub use cut::{chunk, hidden, index_tails, recurrent, tails};

/// Which of the three convolution tails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Projection {
    Query,
    Key,
    Value,
}

/// One part x one layer x one range, addressed logically: it does not depend on how either side pages or shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentId {
    /// f32 [tokens, latent_width]
    Latents { layer: u32, first_token: u32, tokens: u32 },
    /// f32 [heads, key, value]
    Recurrent { layer: u32, first_head: u32, heads: u32 },
    /// f32 [tail_rows, heads, tail_width / all heads]: these heads' columns of one of q, k and v.
    Tail { layer: u32, which: Projection, first_head: u32, heads: u32 },
    /// f32 [pools, index_dim]: pooled keys of the sparse attention's indexer.
    IndexKeys { layer: u32, first_pool: u32, pools: u32 },
    /// f32 [index_pool, 2, index_dim]: raw key and score of each token of the open pool, oldest first, 0 beyond them.
    IndexTail { layer: u32 },
    /// f32 [hidden]: the last token's vector that the draft layer continues from.
    Hidden,
    /// [`crate::SamplingState`], encoded.
    Sampling,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SegmentId::Latents { layer, first_token, tokens } => {
                write!(f, "latents layer {layer} tokens {first_token}+{tokens}")
            }
            SegmentId::Recurrent { layer, first_head, heads } => {
                write!(f, "recurrent layer {layer} heads {first_head}+{heads}")
            }
            SegmentId::Tail { layer, which, first_head, heads } => {
                write!(f, "tail layer {layer} {which:?} heads {first_head}+{heads}")
            }
            SegmentId::IndexKeys { layer, first_pool, pools } => {
                write!(f, "index-keys layer {layer} pools {first_pool}+{pools}")
            }
            SegmentId::IndexTail { layer } => write!(f, "index-tail layer {layer}"),
            SegmentId::Hidden => f.write_str("hidden"),
            SegmentId::Sampling => f.write_str("sampling"),
        }
    }
}

/// A segment with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub id: SegmentId,
    pub payload: Bytes,
}

/// Shares numbers as wire bytes without copying them.
pub fn wire_bytes(numbers: impl AsRef<[f32]> + Send + 'static) -> Bytes {
    struct Shared<T>(T);
    impl<T: AsRef<[f32]>> AsRef<[u8]> for Shared<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(self.0.as_ref())
        }
    }
    Bytes::from_owner(Shared(numbers))
}

/// Numbers of a segment's payload, copied only when they lie unaligned.
pub fn numbers(payload: &[u8]) -> std::borrow::Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(payload) {
        Ok(numbers) => numbers.into(),
        Err(_) => payload.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
    }
}

/// A buffer handed to a cutter does not have the size its layout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {have} bytes where the layout needs {need}")]
pub struct WrongSize {
    pub part: &'static str,
    pub have: u64,
    pub need: u64,
}

/// Segments are cut to about this many bytes: large enough that headers and acknowledgements vanish beside them, small
/// enough that credit flows in many steps and a digest is taken while the bytes are in cache.
pub const SEGMENT_BYTES: u64 = 256 << 10;

/// Latents and index keys of all layers together are cut to runs of tokens of about this many bytes.
pub const RUN_BYTES: u64 = 4 << 20;

/// How many of `unit_bytes` go into one segment.
fn units_a_segment(unit_bytes: u64, units: u32) -> u32 {
    units_within(SEGMENT_BYTES, unit_bytes, units)
}

fn units_within(bytes: u64, unit_bytes: u64, units: u32) -> u32 {
    let fitting = bytes / unit_bytes.max(1);
    u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, units.max(1))
}

fn check_size(part: &'static str, payload: &Bytes, need: u64) -> Result<(), WrongSize> {
    let have = payload.len() as u64;
    if have == need { Ok(()) } else { Err(WrongSize { part, have, need }) }
}
