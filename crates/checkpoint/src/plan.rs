//! Which runs of which tensors a weight consists of, cut into the blocks that one core works on at a time.

use std::collections::HashMap;
use std::ops::Range;

use model::weights::{Encoding, Float, WeightSpec};

use crate::Error;
use crate::folder::Folder;
use crate::stored::{self, Stored};

/// Values that a core converts at a time, or one row of a weight where that is longer: few enough for its cache.
pub(crate) const BLOCK: usize = 1 << 17;

/// A weight's values as runs of stored tensors. Positions count values of the weight's source in row-major order.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) encoding: Encoding,
    tensors: Vec<Stored<'a>>,
    runs: Vec<Run>,
    /// Values of the source.
    pub(crate) values: usize,
    /// Values that are encoded together: a row in int8, a matrix where it is turned, else one.
    pub(crate) unit: usize,
    /// The last axis of the weight.
    pub(crate) last: usize,
    /// Whether the stored bytes are the encoded ones.
    pub(crate) is_copy: bool,
}

/// Consecutive values of a tensor.
#[derive(Debug)]
struct Run {
    tensor: usize,
    start: usize,
    at: usize,
    len: usize,
}

/// The part of a run that is in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    tensor: usize,
    start: usize,
    /// Place in the block.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(folder: &'a Folder, weight: &WeightSpec) -> Result<Self, Error> {
        let (mut tensors, mut runs, mut known) = (Vec::new(), Vec::<Run>::new(), HashMap::new());
        let (mut at, mut fault) = (0, None);
        weight.pieces(&|name| stored::exists(folder, name), &mut |piece| {
            let tensor = known.get(piece.tensor).copied().unwrap_or_else(|| {
                match Stored::find(folder, &piece, weight.encoding) {
                    Ok(stored) => tensors.push(stored),
                    Err(error) => fault = fault.take().or(Some(error)),
                }
                let tensor = tensors.len().saturating_sub(1);
                known.insert(piece.tensor.to_owned(), tensor);
                tensor
            });
            let len = piece.len;
            match runs.last_mut() {
                Some(last) if last.tensor == tensor && last.start + last.len == piece.start => {
                    last.len += len
                }
                _ => runs.push(Run { tensor, start: piece.start, at, len }),
            }
            at += len;
        })?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let unit = match weight.encoding {
            Encoding::Int8 => weight.dims.last().copied().unwrap_or(1),
            Encoding::Int8Scales => at / weight.elements().max(1),
            Encoding::Packed | Encoding::PackedScales => weight.matrix(),
            Encoding::Float(_) => 1,
        };
        let is_copy = tensors.iter().all(|tensor: &Stored<'_>| tensor.is(weight.encoding));
        let last = weight.dims.last().copied().unwrap_or(1);
        Ok(Self { encoding: weight.encoding, tensors, runs, values: at, unit: unit.max(1), last, is_copy })
    }

    /// Bytes that this many source values take when encoded.
    pub(crate) fn bytes(&self, values: usize) -> usize {
        match self.encoding {
            Encoding::Float(Float::F32) => values * 4,
            Encoding::Float(Float::Bf16) => values * 2,
            Encoding::Packed | Encoding::PackedScales | Encoding::Int8 => values,
            Encoding::Int8Scales => values / self.unit * 4,
        }
    }

    /// Whole units of about this many values, at least one.
    pub(crate) fn whole_units(&self, values: usize) -> usize {
        (values / self.unit).max(1) * self.unit
    }

    /// The runs inside a range, those of one tensor beside each other and in its order.
    pub(crate) fn cuts(&self, range: &Range<usize>, cuts: &mut Vec<Cut>) {
        cuts.clear();
        let first = self.runs.partition_point(|run| run.at + run.len <= range.start);
        for run in self.runs[first..].iter().take_while(|run| run.at < range.end) {
            let (from, to) = (run.at.max(range.start), (run.at + run.len).min(range.end));
            let start = run.start + from - run.at;
            cuts.push(Cut { tensor: run.tensor, start, at: from - range.start, len: to - from });
        }
        cuts.sort_unstable_by_key(|cut| (cut.tensor, cut.start));
    }

    /// How many of the first cuts are one run of a tensor, that tensor, and the run's first value and length.
    pub(crate) fn joined(&self, cuts: &[Cut]) -> Option<(usize, &Stored<'a>, usize, usize)> {
        let first = cuts.first()?;
        let (mut count, mut len) = (0, 0);
        for cut in cuts {
            if cut.tensor != first.tensor || cut.start != first.start + len {
                break;
            }
            count += 1;
            len += cut.len;
        }
        Some((count, self.tensors.get(first.tensor)?, first.start, len))
    }
    /// The error that the value at a place of a block is wrong, which `why` says given its place in the tensor.
    pub(crate) fn wrong(&self, cuts: &[Cut], at: usize, why: impl Fn(usize) -> String) -> Error {
        let cut = cuts.iter().find(|cut| (cut.at..cut.at + cut.len).contains(&at)).unwrap_or(&cuts[0]);
        self.tensors[cut.tensor].wrong(why(cut.start + at - cut.at))
    }
}
