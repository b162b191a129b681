use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

/// Memory is kept in blocks of this many bytes, several segments each.
const BLOCK: usize = 4 << 20;
/// Payloads begin at multiples of this.
const ALIGN: usize = 64;
/// Smallest and largest of the buffers that are kept filled.
const FILLED: std::ops::RangeInclusive<usize> = 16 << 10..=1 << 20;
/// Blocks looked at for one that nobody uses any more.
const LOOKS: usize = 4;

/// Memory that payloads land in, straight from the socket. A sink may keep a payload where it landed; memory that all its
/// payloads have left is landed in again, so that pages are neither zeroed nor faulted in anew. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    blocks: Arc<Mutex<Blocks>>,
}

#[derive(Debug)]
struct Blocks {
    /// What is left of the block that is being filled.
    current: Option<BytesMut>,
    /// Full ones, oldest first; empty handles that hold on to them.
    full: VecDeque<BytesMut>,
    /// Blocks kept at most.
    most: usize,
    /// Buffers that are written over whole, by size.
    filled: BTreeMap<usize, Vec<Vec<u8>>>,
    filled_bytes: usize,
}

/// A buffer whose bytes are some already, to be written over; once dropped it is used again.
#[derive(Debug)]
pub(crate) struct Filled {
    bytes: Vec<u8>,
    length: usize,
    home: Landing,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsMut<[u8]> for Filled {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.home.blocks().give_back(std::mem::take(&mut self.bytes));
    }
}

impl Landing {
    /// Keeps at most about this many bytes for further use.
    pub(crate) fn new(bytes: u64) -> Landing {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
        let blocks =
            Blocks { current: None, full: VecDeque::new(), most, filled: BTreeMap::new(), filled_bytes: 0 };
        Landing { blocks: Arc::new(Mutex::new(blocks)) }
    }

    /// Empty, with room for so many bytes.
    pub(crate) fn take(&self, length: usize) -> BytesMut {
        if length > BLOCK / 2 {
            return BytesMut::with_capacity(length);
        }
        self.blocks().take(length)
    }

    /// So many bytes, whatever they are.
    pub(crate) fn filled(&self, length: usize) -> Filled {
        let bytes = self.blocks().filled(length);
        Filled { bytes: bytes.unwrap_or_else(|| vec![0; size_for(length)]), length, home: self.clone() }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        // no code that can panic runs under the lock
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the buffer for so many.
fn size_for(length: usize) -> usize {
    if FILLED.contains(&length) { length.next_power_of_two() } else { length }
}

impl Blocks {
    fn filled(&mut self, length: usize) -> Option<Vec<u8>> {
        let bytes = self.filled.get_mut(&size_for(length))?.pop()?;
        self.filled_bytes -= bytes.len();
        Some(bytes)
    }

    fn give_back(&mut self, bytes: Vec<u8>) {
        if FILLED.contains(&bytes.len()) && self.filled_bytes + bytes.len() <= self.most * BLOCK {
            self.filled_bytes += bytes.len();
            self.filled.entry(bytes.len()).or_default().push(bytes);
        }
    }

    fn take(&mut self, length: usize) -> BytesMut {
        let mut block = match self.current.take() {
            Some(block) if block.capacity() >= length => block,
            Some(full) => {
                if self.full.len() < self.most {
                    self.full.push_back(full);
                }
                self.unused().unwrap_or_else(|| BytesMut::with_capacity(BLOCK))
            }
            None => BytesMut::with_capacity(BLOCK),
        };
        // numbers stay aligned whatever came before them
        let whole = length.next_multiple_of(ALIGN).min(block.capacity());
        self.current = Some(block.split_off(whole));
        block
    }

    fn unused(&mut self) -> Option<BytesMut> {
        for _ in 0..LOOKS.min(self.full.len()) {
            let mut block = self.full.pop_front()?;
            if block.try_reclaim(BLOCK) {
                return Some(block);
            }
            self.full.push_back(block);
        }
        None
    }
}
