//! A weight's values, gathered from the tensors that it is cut from and converted to f32.

use std::collections::BTreeSet;

use half::{bf16, f16};
use model::weights::{Piece, WeightSpec};
use safetensors::Dtype;

use crate::Error;
use crate::folder::{Folder, Tensor};

/// Values converted at a time by one core: small enough for its cache.
const BLOCK: usize = 1 << 16;
/// Weights of fewer values are not worth another thread.
const WORTH_SHARING: usize = 1 << 20;

/// Every tensor that the weights are cut from is there, in shape and in a known format, and there is no other.
pub(crate) fn check(folder: &Folder, weights: &[WeightSpec]) -> Result<(), Error> {
    let mut used = BTreeSet::new();
    for weight in weights {
        let mut checked = Ok(());
        let exists = |name: &str| folder.get(name).is_some();
        weight.pieces(&exists, &mut |piece| {
            if checked.is_ok() && used.insert(piece.tensor.to_owned()) {
                checked = check_piece(folder, &piece);
            }
        })?;
        checked?;
    }
    match folder.tensors().find(|tensor| !used.contains(&tensor.entry.name)) {
        None => Ok(()),
        Some(tensor) => Err(folder.wrong(tensor, "the model has no use for it".to_owned())),
    }
}

fn check_piece(folder: &Folder, piece: &Piece<'_>) -> Result<(), Error> {
    let Some(tensor) = folder.get(piece.tensor) else {
        return Ok(());
    };
    Format::of(folder, tensor)?;
    // Axes of length 1 come and go between the two namings.
    let long = |dims: &[usize]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    if long(&tensor.entry.dims) == long(piece.dims) {
        return Ok(());
    }
    Err(folder
        .wrong(tensor, format!("has shape {:?}, the config asks for {:?}", tensor.entry.dims, piece.dims)))
}

/// The element formats that can be converted.
#[derive(Clone, Copy)]
enum Format {
    F32,
    Bf16,
    F16,
}

impl Format {
    fn of(folder: &Folder, tensor: &Tensor) -> Result<Self, Error> {
        match tensor.entry.dtype {
            Dtype::F32 => Ok(Self::F32),
            Dtype::BF16 => Ok(Self::Bf16),
            Dtype::F16 => Ok(Self::F16),
            other => Err(folder.wrong(tensor, format!("format {other} is not F32, BF16 or F16"))),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    fn convert(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_le_bytes(*raw);
                }
            }
            Self::Bf16 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = bf16::from_le_bytes(*raw).to_f32();
                }
            }
            Self::F16 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f16::from_le_bytes(*raw).to_f32();
                }
            }
        }
    }
}

/// A run of a tensor's values and the place that it goes to.
struct Run<'a> {
    tensor: &'a Tensor,
    start: usize,
    out: &'a mut [f32],
}

/// Fills `values` with the weight, in the host's byte order.
pub(crate) fn fill(folder: &Folder, weight: &WeightSpec, values: &mut [f32]) -> Result<(), Error> {
    let mut pieces = Vec::new();
    weight.pieces(&|name| folder.get(name).is_some(), &mut |piece| {
        if let Some(tensor) = folder.get(piece.tensor) {
            pieces.push((tensor, piece.start, piece.len));
        }
    })?;
    let threads = match values.len() {
        0..WORTH_SHARING => 1,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut shares: Vec<Vec<Run<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    let mut rest = values;
    let mut turn = 0;
    for (tensor, start, len) in pieces {
        let mut done = 0;
        while done < len {
            let length = (len - done).min(BLOCK).min(rest.len());
            if length == 0 {
                return Err(
                    folder.wrong(tensor, format!("has more values than weight {} takes", weight.name))
                );
            }
            let (out, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            shares[turn % threads].push(Run { tensor, start: start + done, out });
            done += length;
            turn += 1;
        }
    }
    let mut shares = shares.into_iter();
    let own = shares.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let others: Vec<_> = shares.map(|share| scope.spawn(|| read_runs(folder, share))).collect();
        let mut outcome = read_runs(folder, own);
        for other in others {
            let theirs = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and(theirs);
        }
        outcome
    })
}

fn read_runs(folder: &Folder, runs: Vec<Run<'_>>) -> Result<(), Error> {
    let mut bytes = Vec::new();
    for Run { tensor, start, out } in runs {
        let format = Format::of(folder, tensor)?;
        bytes.resize(out.len() * format.bytes(), 0);
        folder.read(tensor, (start * format.bytes()) as u64, &mut bytes)?;
        format.convert(&bytes, out);
        if let Some(at) = out.iter().position(|value| !value.is_finite()) {
            return Err(folder.wrong(tensor, format!("value {} is {}", start + at, out[at])));
        }
    }
    Ok(())
}
