//! Element types and tensor types.

use std::fmt;

/// The element type of a tensor.
///
/// The three narrow floats at the end can be stored, moved, converted, bitcast and (F8E4M3FN) multiplied by
/// `dot_general`; other arithmetic on them is refused, because backends disagree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    Pred,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    F8E4M3FN,
    F4E2M1FN,
    F8E8M0FNU,
}

impl DType {
    /// The MLIR spelling, such as `f32` or `ui8`.
    pub fn mlir(self) -> &'static str {
        match self {
            DType::Pred => "i1",
            DType::S8 => "i8",
            DType::S16 => "i16",
            DType::S32 => "i32",
            DType::S64 => "i64",
            DType::U8 => "ui8",
            DType::U16 => "ui16",
            DType::U32 => "ui32",
            DType::U64 => "ui64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F8E4M3FN => "f8E4M3FN",
            DType::F4E2M1FN => "f4E2M1FN",
            DType::F8E8M0FNU => "f8E8M0FNU",
        }
    }

    /// Bits an element means (a `Pred` is 1, though stored as a byte).
    pub fn bits(self) -> u32 {
        match self {
            DType::Pred => 1,
            DType::F4E2M1FN => 4,
            DType::S8 | DType::U8 | DType::F8E4M3FN | DType::F8E8M0FNU => 8,
            DType::S16 | DType::U16 | DType::F16 | DType::BF16 => 16,
            DType::S32 | DType::U32 | DType::F32 => 32,
            DType::S64 | DType::U64 | DType::F64 => 64,
        }
    }

    /// A float of any width.
    pub fn is_float(self) -> bool {
        self.is_wide_float() || self.is_narrow_float()
    }

    /// A float on which all arithmetic is allowed: F16, BF16, F32, F64.
    pub fn is_wide_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// A float that is only stored, converted and multiplied: F8E4M3FN, F4E2M1FN, F8E8M0FNU.
    pub fn is_narrow_float(self) -> bool {
        matches!(self, DType::F8E4M3FN | DType::F4E2M1FN | DType::F8E8M0FNU)
    }

    /// A signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, DType::S8 | DType::S16 | DType::S32 | DType::S64)
    }

    /// An unsigned integer (`Pred` is not one).
    pub fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// A signed or unsigned integer.
    pub fn is_int(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    /// The tensor type with this element type and `dims`.
    pub fn tensor(self, dims: impl Into<Vec<i64>>) -> Type {
        Type { dtype: self, dims: dims.into() }
    }

    /// The rank-0 tensor type with this element type.
    pub fn scalar(self) -> Type {
        self.tensor([])
    }
}

impl fmt::Display for DType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.mlir())
    }
}

/// A tensor of static shape. Displayed as MLIR writes it: `tensor<2x3xf32>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    pub dtype: DType,
    pub dims: Vec<i64>,
}

impl Type {
    pub fn new(dtype: DType, dims: impl Into<Vec<i64>>) -> Self {
        Type { dtype, dims: dims.into() }
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// How many elements the tensor holds (1 for a scalar).
    pub fn elements(&self) -> i64 {
        self.dims.iter().product()
    }

    /// The same shape with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Type { dtype, dims: self.dims.clone() }
    }

    /// The same element type with another shape.
    pub fn with_dims(&self, dims: impl Into<Vec<i64>>) -> Self {
        Type { dtype: self.dtype, dims: dims.into() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("tensor<")?;
        for dim in &self.dims {
            write!(out, "{dim}x")?;
        }
        write!(out, "{}>", self.dtype)
    }
}
