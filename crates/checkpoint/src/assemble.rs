//! A weight's values, gathered from the tensors that it is cut from and encoded.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use model::weights::{Encoding, Float};

use crate::Error;
use crate::int8::{self, Squares};
use crate::plan::{BLOCK, Cut, Plan};
use crate::stored::{Scratch, Stored};
use crate::turn::turn;

/// Ranges of fewer values are not worth another thread.
const WORTH_SHARING: usize = 1 << 20;

/// Where the encoded values of a range go. Int8 rows have their scales beside them; no other encoding has any.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
}

/// A block, and where it goes.
struct Job<'a> {
    range: Range<usize>,
    room: Room<'a>,
}

/// What a core works in.
#[derive(Default)]
struct Desk {
    cuts: Vec<Cut>,
    scratch: Scratch,
    /// Values of the block.
    values: Vec<f32>,
    /// Runs that lie apart in the block and together in their tensor.
    joined: Vec<f32>,
    joined_bytes: Vec<u8>,
    /// Packed matrices as they are stored.
    codes: Vec<u8>,
}

/// Bytes of the host's memory that one core takes at most for what it works in, given its longest unit of values: what is
/// read (at most 4 bytes a value, scales included), and the values twice.
pub(crate) fn desk_bytes(longest_unit: usize) -> usize {
    BLOCK.max(longest_unit) * (4 + 2 * size_of::<f32>())
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Fills `room` with whole units of the weight, all cores taking blocks in turn. Tells what int8 changed.
pub(crate) fn fill(plan: &Plan<'_>, range: Range<usize>, room: Room<'_>) -> Result<Squares, Error> {
    let threads = if range.len() < WORTH_SHARING { 1 } else { cores() };
    let jobs = Mutex::new(cut(plan, range, room).into_iter());
    let work = || {
        let mut desk = Desk::default();
        let mut squares = Squares::default();
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(Job { range, room }) = job else {
                return Ok(squares);
            };
            squares += block(plan, &range, room, &mut desk)?;
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut outcome: Result<Squares, Error> = work();
        for other in others {
            let theirs = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and_then(|own| {
                let mut both = own;
                both += theirs?;
                Ok(both)
            });
        }
        outcome
    })
}

fn cut<'a>(plan: &Plan<'_>, range: Range<usize>, room: Room<'a>) -> Vec<Job<'a>> {
    let step = plan.whole_units(BLOCK);
    let mut rest = room;
    let mut jobs = Vec::with_capacity(range.len().div_ceil(step));
    for start in range.clone().step_by(step) {
        let range = start..(start + step).min(range.end);
        let (bytes, later) = std::mem::take(&mut rest.bytes).split_at_mut(plan.bytes(range.len()));
        let scales = if rest.scales.is_empty() { 0 } else { range.len() / plan.unit * size_of::<f32>() };
        let (scales, later_scales) = std::mem::take(&mut rest.scales).split_at_mut(scales);
        rest = Room { bytes: later, scales: later_scales };
        jobs.push(Job { range, room: Room { bytes, scales } });
    }
    jobs
}

fn block(plan: &Plan<'_>, range: &Range<usize>, room: Room<'_>, desk: &mut Desk) -> Result<Squares, Error> {
    let Desk { cuts, scratch, values, joined, joined_bytes, codes } = desk;
    plan.cuts(range, cuts);
    if plan.is_copy {
        let width = plan.bytes(1);
        gather(plan, cuts, width, room.bytes, joined_bytes, |stored, start, out| stored.copy(start, out))?;
        return Ok(Squares::default());
    }
    if plan.encoding.is_packed() {
        codes.resize(range.len(), 0);
        gather(plan, cuts, 1, codes, joined_bytes, |stored, start, out| stored.copy(start, out))?;
        for (stored, out) in codes.chunks(plan.unit).zip(room.bytes.chunks_mut(plan.unit)) {
            turn(plan.encoding, stored, plan.last, out);
        }
        return Ok(Squares::default());
    }
    values.resize(range.len(), 0.0);
    gather(plan, cuts, 1, values, joined, |stored, start, out| stored.decode(start, out, scratch))?;
    encode(plan, cuts, values, room)
}

/// Fills a block, `width` elements a value. Runs that follow each other in a tensor are read at once.
fn gather<T: Copy + Default>(
    plan: &Plan<'_>,
    cuts: &[Cut],
    width: usize,
    out: &mut [T],
    joined: &mut Vec<T>,
    mut read: impl FnMut(&Stored<'_>, usize, &mut [T]) -> Result<(), Error>,
) -> Result<(), Error> {
    let place = |cut: &Cut| width * cut.at..width * (cut.at + cut.len);
    let mut rest = cuts;
    while let Some((count, stored, start, len)) = plan.joined(rest) {
        let (now, later) = rest.split_at(count);
        rest = later;
        if let [alone] = now {
            read(stored, start, &mut out[place(alone)])?;
            continue;
        }
        joined.resize(width * len, T::default());
        read(stored, start, joined)?;
        let mut done = 0;
        for cut in now {
            let part = &joined[done..done + width * cut.len];
            out[place(cut)].copy_from_slice(part);
            done += part.len();
        }
    }
    Ok(())
}

fn encode(plan: &Plan<'_>, cuts: &[Cut], values: &[f32], room: Room<'_>) -> Result<Squares, Error> {
    let mut squares = Squares::default();
    match plan.encoding {
        Encoding::Float(Float::F32) => {
            for (raw, value) in room.bytes.as_chunks_mut().0.iter_mut().zip(values) {
                *raw = value.to_le_bytes();
            }
        }
        Encoding::Float(Float::Bf16) => {
            let mut largest = 0;
            for (raw, value) in room.bytes.as_chunks_mut().0.iter_mut().zip(values) {
                let half = bf16(*value);
                largest = largest.max(half & BF16_INFINITY);
                *raw = half.to_le_bytes();
            }
            if largest == BF16_INFINITY {
                return Err(too_large(plan, cuts, values));
            }
        }
        Encoding::Int8 => {
            let mut scales = room.scales.as_chunks_mut().0.iter_mut();
            for (row, codes) in values.chunks(plan.unit).zip(room.bytes.chunks_mut(plan.unit)) {
                let scale = int8::scale(row);
                squares += int8::encode(row, scale, codes);
                scales.next().into_iter().for_each(|raw| *raw = scale.to_le_bytes());
            }
        }
        // Never as values.
        Encoding::Packed | Encoding::PackedScales => {}
        Encoding::Int8Scales => {
            for (raw, row) in room.bytes.as_chunks_mut().0.iter_mut().zip(values.chunks(plan.unit)) {
                *raw = int8::scale(row).to_le_bytes();
            }
        }
    }
    Ok(squares)
}

const BF16_INFINITY: u16 = 0x7f80;

/// The upper half of a finite f32, rounded to nearest even.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The error that a value rounds to infinity in bf16.
fn too_large(plan: &Plan<'_>, cuts: &[Cut], values: &[f32]) -> Error {
    let large = |value: &f32| bf16(*value) & BF16_INFINITY == BF16_INFINITY;
    let at = values.iter().position(large).unwrap_or_default();
    plan.wrong(cuts, at, |place| format!("value {place} is {}, more than bf16 can hold", values[at]))
}

#[cfg(test)]
mod tests;
