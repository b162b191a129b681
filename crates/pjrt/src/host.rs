//! Host memory a device buffer may alias.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed bytes at a 64-byte boundary, the alignment below which the CPU plugin copies instead of aliasing.
pub struct AlignedBytes {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes like a `Box<[u8]>`.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// Alignment in bytes.
    pub const ALIGN: usize = 64;

    /// `len` zero bytes. Ends the process when memory runs out, as `Vec` does.
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is never empty.
        let first = unsafe { alloc_zeroed(layout) };
        match NonNull::new(first) {
            Some(first) => Self { first, len },
            None => handle_alloc_error(layout),
        }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut own = Self::zeroed(bytes.len());
        own.copy_from_slice(bytes);
        own
    }

    /// At least one whole line, so that the size is never zero.
    fn layout(len: usize) -> Layout {
        let size = len.max(1);
        match Layout::from_size_align(size, Self::ALIGN) {
            Ok(layout) => layout,
            // Over isize::MAX: no allocator can give it.
            Err(_) => handle_alloc_error(Layout::new::<u8>()),
        }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes are owned from `first` on.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBytes({} bytes)", self.len)
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.first.as_ptr(), Self::layout(self.len)) };
    }
}
