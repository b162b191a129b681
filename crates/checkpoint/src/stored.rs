//! A tensor of the model as the folder holds it: one tensor of floats, or codes and their scales.

use model::weights::{Encoding, Float, MXFP4_GROUP, Piece};
use safetensors::Dtype;

use crate::Error;
use crate::decode::fp8::Grid;
use crate::decode::{float, fp8, mxfp4};
use crate::folder::{Folder, Tensor};
use crate::names::{PACKED, SCALE, SCALE_INV};

/// A tensor of the model and how its values are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    folder: &'a Folder,
    /// Has the values or their codes.
    tensor: &'a Tensor,
    form: Form<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Form<'a> {
    F32,
    Bf16,
    F16,
    /// u8 as it stands; `scales` where they are MXFP4's, not all of which are finite.
    Bytes {
        scales: bool,
    },
    Fp8 {
        scales: &'a Tensor,
        grid: Grid,
    },
    Mxfp4 {
        scales: &'a Tensor,
    },
}

/// Room for what is read before it is decoded.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    scales: Vec<u8>,
    factors: Vec<f32>,
}

/// Whether the folder has a tensor of the model under this name, in whatever form.
pub(crate) fn exists(folder: &Folder, name: &str) -> bool {
    folder.has(name) || folder.has(&format!("{name}{PACKED}"))
}

impl<'a> Stored<'a> {
    /// The tensor that a piece is cut from, checked against what the piece says and `encoding` needs.
    pub(crate) fn find(folder: &'a Folder, piece: &Piece<'_>, encoding: Encoding) -> Result<Self, Error> {
        let absent = || {
            let weight = piece.tensor.to_owned();
            Error::from(model::Error::TensorMissing { weight, tensor: piece.tensor.to_owned() })
        };
        match folder.get(piece.tensor) {
            Some(tensor) if encoding.is_packed() => {
                dtype(folder, tensor, Dtype::U8)?;
                fits(folder, tensor, piece.dims, piece.padded)?;
                let form = Form::Bytes { scales: piece.tensor.ends_with(SCALE) };
                Ok(Self { folder, tensor, form })
            }
            Some(tensor) => {
                fits(folder, tensor, piece.dims, piece.padded)?;
                Ok(Self { folder, tensor, form: Form::of(folder, tensor, piece.tensor)? })
            }
            None => {
                let tensor = folder.get(&format!("{}{PACKED}", piece.tensor)).ok_or_else(absent)?;
                Self::packed(folder, tensor, piece)
            }
        }
    }

    fn packed(folder: &'a Folder, tensor: &'a Tensor, piece: &Piece<'_>) -> Result<Self, Error> {
        let scales = format!("{}{SCALE}", piece.tensor);
        let Some(scales) = folder.get(&scales) else {
            return Err(folder.wrong(tensor, format!("has no {scales} beside it")));
        };
        dtype(folder, tensor, Dtype::U8)?;
        dtype(folder, scales, Dtype::U8)?;
        let columns = piece.dims.last().copied().unwrap_or(0);
        if !columns.is_multiple_of(MXFP4_GROUP) {
            let why = format!("rows of {columns} values are not whole groups of {MXFP4_GROUP}");
            return Err(folder.wrong(tensor, why));
        }
        for (tensor, by) in [(tensor, 2), (scales, MXFP4_GROUP)] {
            let mut dims = piece.dims.to_vec();
            dims.iter_mut().next_back().into_iter().for_each(|last| *last /= by);
            fits(folder, tensor, &dims, piece.padded)?;
        }
        Ok(Self { folder, tensor, form: Form::Mxfp4 { scales } })
    }

    /// Suffixes of the tensors that are read, to the name of the model's tensor.
    pub(crate) fn suffixes(&self) -> &'static [&'static str] {
        match self.form {
            Form::F32 | Form::Bf16 | Form::F16 | Form::Bytes { .. } => &[""],
            Form::Fp8 { .. } => &["", SCALE_INV],
            Form::Mxfp4 { .. } => &[PACKED, SCALE],
        }
    }

    /// Whether the stored bytes are those of `encoding`.
    pub(crate) fn is(&self, encoding: Encoding) -> bool {
        matches!(
            (self.form, encoding),
            (Form::F32, Encoding::Float(Float::F32)) | (Form::Bf16, Encoding::Float(Float::Bf16))
        )
    }

    /// The error that this tensor is wrong.
    pub(crate) fn wrong(&self, why: String) -> Error {
        self.folder.wrong(self.tensor, why)
    }

    /// Fills `out` with the stored bytes of the values from `start` on, which must be finite.
    pub(crate) fn copy(&self, start: usize, out: &mut [u8]) -> Result<(), Error> {
        let size = match self.form {
            Form::F32 => 4,
            Form::Bf16 => 2,
            _ => 1,
        };
        self.folder.read(self.tensor, (start * size) as u64, out)?;
        match self.form {
            Form::F32 => self.refuse(start, out.as_chunks().0, |raw| f32::from_le_bytes(*raw)),
            Form::Bf16 => {
                let widen = |raw: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
                self.refuse(start, out.as_chunks().0, widen)
            }
            Form::Bytes { scales: true } => large_scale(self.folder, self.tensor, start, out),
            _ => Ok(()),
        }
    }

    /// Fills `out` with the values from `start` on, which must be finite.
    pub(crate) fn decode(&self, start: usize, out: &mut [f32], scratch: &mut Scratch) -> Result<(), Error> {
        let Scratch { bytes, scales, factors } = scratch;
        let read = |tensor: &Tensor, start: usize, len: usize, into: &mut Vec<u8>| {
            into.resize(len, 0);
            self.folder.read(tensor, start as u64, into)
        };
        match self.form {
            Form::F32 => {
                read(self.tensor, 4 * start, 4 * out.len(), bytes)?;
                float::f32s(bytes, out);
            }
            Form::Bf16 => {
                read(self.tensor, 2 * start, 2 * out.len(), bytes)?;
                float::bf16s(bytes, out);
            }
            Form::F16 => {
                read(self.tensor, 2 * start, 2 * out.len(), bytes)?;
                float::f16s(bytes, out);
            }
            Form::Bytes { .. } => return Err(self.wrong("holds codes, not values".to_owned())),
            Form::Fp8 { scales: tensor, grid } => {
                let row = |value: usize| grid.block_row(value / grid.columns);
                let (first, last) = (row(start), row(start + out.len().max(1) - 1));
                let count = (last + 1 - first) * grid.across();
                read(tensor, 4 * first * grid.across(), 4 * count, scales)?;
                factors.resize(count, 0.0);
                float::f32s(scales, factors);
                read(self.tensor, start, out.len(), bytes)?;
                fp8::decode(bytes, factors, start, grid, out);
            }
            Form::Mxfp4 { scales: tensor } => {
                let (first, end) = (start / MXFP4_GROUP, (start + out.len()).div_ceil(MXFP4_GROUP));
                read(tensor, first, end - first, scales)?;
                large_scale(self.folder, tensor, first, scales)?;
                read(self.tensor, first * mxfp4::GROUP_BYTES, (end - first) * mxfp4::GROUP_BYTES, bytes)?;
                mxfp4::decode(bytes, scales, start % MXFP4_GROUP, out);
            }
        }
        self.refuse(start, out, |value| *value)
    }

    /// Refuses values that are not finite.
    fn refuse<T>(&self, start: usize, values: &[T], widen: impl Fn(&T) -> f32) -> Result<(), Error> {
        // Without a branch per value the check is a few wide instructions.
        if values.iter().fold(true, |finite, value| finite & widen(value).is_finite()) {
            return Ok(());
        }
        let found = values.iter().enumerate().find(|(_, value)| !widen(value).is_finite());
        let why = found.map(|(at, value)| format!("value {} is {}", start + at, widen(value)));
        Err(self.wrong(why.unwrap_or_default()))
    }
}

impl<'a> Form<'a> {
    /// Form of values that are not packed.
    fn of(folder: &'a Folder, tensor: &'a Tensor, name: &str) -> Result<Self, Error> {
        match tensor.entry.dtype {
            Dtype::F32 => Ok(Self::F32),
            Dtype::BF16 => Ok(Self::Bf16),
            Dtype::F16 => Ok(Self::F16),
            Dtype::F8_E4M3 => Self::fp8(folder, tensor, name),
            other => Err(folder.wrong(tensor, format!("format {other} is not F32, BF16, F16 or F8_E4M3"))),
        }
    }

    fn fp8(folder: &'a Folder, tensor: &'a Tensor, name: &str) -> Result<Self, Error> {
        let scales = format!("{name}{SCALE_INV}");
        let Some(scales) = folder.get(&scales) else {
            return Err(folder.wrong(tensor, format!("has no {scales} beside it")));
        };
        let [stack @ .., rows, columns] = tensor.entry.dims.as_slice() else {
            return Err(folder.wrong(tensor, "has no rows and columns to have blocks".to_owned()));
        };
        let grid = Grid { rows: *rows, columns: *columns };
        dtype(folder, scales, Dtype::F32)?;
        fits(folder, scales, &[stack, &[grid.down(), grid.across()]].concat(), false)?;
        Ok(Self::Fp8 { scales, grid })
    }
}

fn dtype(folder: &Folder, tensor: &Tensor, expected: Dtype) -> Result<(), Error> {
    match tensor.entry.dtype {
        own if own == expected => Ok(()),
        own => Err(folder.wrong(tensor, format!("format {own} is not {expected}"))),
    }
}

/// The tensor has the shape asked for. Axes of length 1 come and go between the namings.
fn fits(folder: &Folder, tensor: &Tensor, dims: &[usize], padded: bool) -> Result<(), Error> {
    let long = |dims: &[usize]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    let own = long(&tensor.entry.dims);
    let longer = || {
        let (lead, rest) = (dims.first().copied().unwrap_or(1), long(dims.get(1..).unwrap_or_default()));
        own.len() == rest.len() + 1 && own.first().is_some_and(|&own| own >= lead) && own.ends_with(&rest)
    };
    if own == long(dims) || (padded && longer()) {
        return Ok(());
    }
    Err(folder.wrong(tensor, format!("has shape {:?}, the config asks for {dims:?}", tensor.entry.dims)))
}

fn large_scale(folder: &Folder, tensor: &Tensor, start: usize, scales: &[u8]) -> Result<(), Error> {
    match scales.iter().position(|&scale| scale > mxfp4::LARGEST_SCALE) {
        None => Ok(()),
        Some(at) => {
            let why = format!("scale {} is {}, not finite", start + at, scales[at]);
            Err(folder.wrong(tensor, why))
        }
    }
}
