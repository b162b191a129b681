//! One number for all of a checkpoint's values.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::Error;
use crate::folder::{Folder, Tensor};

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// XXH3-128 over the tensors that the model uses, in the order of their names: each one's name, format, shape, and the
/// XXH3-128 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Digest({self})")
    }
}

pub(crate) fn digest(folder: &Folder) -> Result<Digest, Error> {
    let (names, tensors): (Vec<&str>, Vec<&Tensor>) = folder.tensors().unzip();
    let mut heads = Xxh3::new();
    for ((name, tensor), values) in names.iter().zip(&tensors).zip(hashes(folder, &tensors)?) {
        let entry = &tensor.entry;
        for field in [name.as_bytes(), entry.dtype.to_string().as_bytes()] {
            heads.update(&(field.len() as u64).to_le_bytes());
            heads.update(field);
        }
        heads.update(&(entry.dims.len() as u64).to_le_bytes());
        for &dim in &entry.dims {
            heads.update(&(dim as u64).to_le_bytes());
        }
        heads.update(&values.to_be_bytes());
    }
    Ok(Digest(heads.digest128().to_be_bytes()))
}

/// The hash of each tensor's bytes, all cores taking tensors in turn.
fn hashes(folder: &Folder, tensors: &[&Tensor]) -> Result<Vec<u128>, Error> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, u128)>, Error> {
        let mut block = Vec::new();
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(tensor) = tensors.get(at) else {
                return Ok(done);
            };
            done.push((at, hash(folder, tensor, &mut block)?));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(tensors.len().max(1));
    let found = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut found = vec![work()];
        for other in others {
            found.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        found
    });
    let mut hashes = vec![0; tensors.len()];
    for done in found {
        for (at, hash) in done? {
            hashes[at] = hash;
        }
    }
    Ok(hashes)
}

fn hash(folder: &Folder, tensor: &Tensor, block: &mut Vec<u8>) -> Result<u128, Error> {
    let bytes = tensor.entry.bytes;
    if bytes <= BLOCK as u64 {
        block.resize(bytes as usize, 0);
        folder.read(tensor, 0, block)?;
        return Ok(xxh3_128(block));
    }
    let mut hasher = Xxh3::new();
    let mut position = 0;
    while position < bytes {
        block.resize((bytes - position).min(BLOCK as u64) as usize, 0);
        folder.read(tensor, position, block)?;
        hasher.update(block);
        position += block.len() as u64;
    }
    Ok(hasher.digest128())
}
