use super::part::{Kind, Part};
use super::{Source, WeightSpec};
use crate::ModelConfig;

/// How the values of one array are held on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Floats of the given width.
    Float(Float),
    /// u8 `[..., in / 2, out]`: the e2m1 codes of the source's columns `i` and `in / 2 + i`, in the low and the high half.
    Packed,
    /// u8 `[..., in / 32, out]`: biased powers of two, one of each [`MXFP4_GROUP`] columns.
    PackedScales,
    /// s8, each run of the last axis divided by its [`Encoding::Int8Scales`] and rounded to nearest even.
    Int8,
    /// f32, the largest magnitude of each run of the source's last axis, divided by 127; 1 for a run of zeros. The
    /// weight's shape lacks that axis.
    Int8Scales,
}

impl Encoding {
    /// Whether an array holds a part of packed matrices, codes or scales, which lie columns first.
    #[must_use]
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Packed | Self::PackedScales)
    }
}

/// Width of floating-point values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE binary32.
    #[default]
    F32,
    /// The upper half of binary32.
    Bf16,
}

/// How a matrix is held on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Held {
    /// As floats of the width programs compute in. Whatever the checkpoint holds is converted at load.
    #[default]
    Float,
    /// As s8 with one scale per output channel.
    Int8,
    /// Packed: two e2m1 values a byte, one power of two per [`MXFP4_GROUP`] values of a row. Rows and columns are exchanged, as
    /// a TPU wants what it unpacks: matrices that lie as the checkpoint has them are copied whole at every call.
    Mxfp4,
}

/// Values that share a scale in MXFP4.
pub const MXFP4_GROUP: usize = 32;

/// How a model's weights are held, for all programs alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Formats {
    /// Width of activations, latents and float matrices.
    pub float: Float,
    /// Matrices outside the routed experts: `Float` or `Int8`.
    pub matrices: Held,
    /// Matrices of the routed experts.
    pub experts: Held,
    /// Whether matrices that read the same input are joined. They can not be where a mesh cuts them by heads.
    pub joined: bool,
    /// Which of the model's tables the draft layer has a version of its own of.
    pub draft: OwnTables,
}

/// Tables that a checkpoint may give its draft layer beside the model's; the layer shares those it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnTables {
    /// The embedding.
    pub embedding: bool,
    /// The output matrix.
    pub head: bool,
}

impl OwnTables {
    /// What a checkpoint has, by the names of its tensors.
    #[must_use]
    pub fn of(config: &ModelConfig, exists: &dyn Fn(&str) -> bool) -> Self {
        let has = |name: &str| {
            config.mtp.is_some() && exists(&format!("model.layers.{}.{name}", config.layers.len()))
        };
        Self { embedding: has("embed_tokens.weight"), head: has("shared_head.head.weight") }
    }
}

impl Default for Formats {
    fn default() -> Self {
        Self {
            float: Float::F32,
            matrices: Held::Float,
            experts: Held::Float,
            joined: true,
            draft: OwnTables::default(),
        }
    }
}

impl Formats {
    /// The arrays that one part becomes, stacked `repeats` times.
    pub(super) fn encode(&self, part: Part, prefix: &str, repeats: Option<usize>, all: &mut Vec<WeightSpec>) {
        let lead = |dims: &[usize]| repeats.iter().chain(dims).copied().collect::<Vec<_>>();
        let axis = |cut: Option<usize>| cut.map(|axis| axis + usize::from(repeats.is_some()));
        let name = format!("{prefix}{}", part.role);
        let whole = Array { name, dims: lead(&part.dims), cut: axis(part.cut) };
        match part.kind {
            Kind::Vector(source) => all.push(whole.float(Float::F32, source)),
            Kind::Table(source) => all.push(whole.float(self.float, source)),
            Kind::Matrix(source) => self.matrix(self.matrices, whole, source, all),
            Kind::Experts(source) => self.matrix(self.experts, whole, source, all),
            Kind::Rows(rows) if self.joined => {
                let of =
                    |layer: usize| Source::Join(rows.iter().map(|each| each.source.layer(layer)).collect());
                let source = Source::Join((0..repeats.unwrap_or(1)).map(of).collect());
                self.matrix(self.matrices, whole, source, all);
            }
            Kind::Rows(rows) => {
                let width = part.dims.last().copied().unwrap_or(1);
                for each in rows {
                    let name = format!("{}.{}", whole.name, each.name);
                    let cut = axis(each.is_cut.then_some(0));
                    let array = Array { name, dims: lead(&[each.rows, width]), cut };
                    self.matrix(self.matrices, array, each.source, all);
                }
            }
        }
    }

    fn matrix(&self, held: Held, array: Array, source: Source, all: &mut Vec<WeightSpec>) {
        let Array { name, dims, cut } = array;
        let columns = dims.last().copied().unwrap_or(1);
        let (row_axis, last) = (dims.len().saturating_sub(2), dims.len().saturating_sub(1));
        let turned = |by: usize| {
            let mut dims = dims.clone();
            dims[last] /= by;
            dims.swap(row_axis, last);
            dims
        };
        let mut push = |suffix: &str, dims: Vec<usize>, encoding: Encoding, source| {
            let cut = match (encoding, cut) {
                (encoding, Some(axis)) if encoding.is_packed() && axis >= row_axis => {
                    Some(row_axis + last - axis)
                }
                _ => cut.filter(|&axis| axis < dims.len()),
            };
            all.push(WeightSpec { name: format!("{name}.{suffix}"), dims, cut, encoding, source });
        };
        match held {
            Held::Float => all.push(Array { name, dims, cut }.float(self.float, source)),
            Held::Int8 => {
                let rows = dims[..dims.len() - 1].to_vec();
                push("int8", dims, Encoding::Int8, source.clone());
                push("scales", rows, Encoding::Int8Scales, source);
            }
            Held::Mxfp4 => {
                let packed = source.stored("_packed", columns, columns / 2);
                push("packed", turned(2), Encoding::Packed, packed);
                let scales = source.stored("_scale", columns, columns / MXFP4_GROUP);
                push("scales", turned(MXFP4_GROUP), Encoding::PackedScales, scales);
            }
        }
    }
}

/// An array to be encoded.
struct Array {
    name: String,
    dims: Vec<usize>,
    cut: Option<usize>,
}

impl Array {
    fn float(self, float: Float, source: Source) -> WeightSpec {
        let Self { name, dims, cut } = self;
        WeightSpec { name, dims, cut, encoding: Encoding::Float(float), source }
    }
}
