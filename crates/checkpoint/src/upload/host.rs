use std::ops::{Deref, DerefMut};

use pjrt::AlignedBytes;

/// Zeroed bytes on the boundary that plugins read in place from. The system hands their pages out when they are first
/// written, by whichever core does that; [`AlignedBytes`] would write them all beforehand.
#[derive(Debug)]
pub(super) struct HostBytes {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl HostBytes {
    pub(super) fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + AlignedBytes::ALIGN];
        // The vector is never resized, so its first byte stays where it is.
        let from = bytes.as_ptr().align_offset(AlignedBytes::ALIGN).min(AlignedBytes::ALIGN);
        Self { bytes, from, len }
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

impl AsRef<[u8]> for HostBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
