use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;

/// Memory is kept in blocks of this many bytes, several segments each.
const BLOCK: usize = 4 << 20;
/// Payloads begin at multiples of this.
const ALIGN: usize = 64;
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
}

impl Landing {
    /// Keeps at most about this many bytes for further use.
    pub(crate) fn new(bytes: u64) -> Landing {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
        let blocks = Blocks { current: None, full: VecDeque::new(), most };
        Landing { blocks: Arc::new(Mutex::new(blocks)) }
    }

    /// Empty, with room for so many bytes.
    pub(crate) fn take(&self, length: usize) -> BytesMut {
        if length > BLOCK / 2 {
            return BytesMut::with_capacity(length);
        }
        // no code that can panic runs under the lock
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).take(length)
    }
}

impl Blocks {
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
