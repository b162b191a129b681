//! Where what nobody may guess or repeat comes from.

use std::{fmt, sync::Arc};

use rand::Rng;

/// Ids, secrets and seeds; an argument, as the clock and the network are, so that a run can be repeated. Clones draw from
/// the same source.
#[derive(Clone)]
pub struct Random(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl Random {
    /// Drawn by `fill`.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// The system's own, fit for secrets.
    pub fn system() -> Self {
        Self::new(|bytes| rand::rng().fill_bytes(bytes))
    }

    /// So many bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }

    /// A seed of draws.
    pub fn seed(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// A UUID of version 4, which says that it is random.
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid()
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
