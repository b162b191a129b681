//! Element types and shapes.

use std::fmt;

use crate::{Error, Result};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = ($pjrt:literal, $hlo:literal, $size:literal, $text:literal)),* $(,)?) => {
        /// Element type of an array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum DType { $($(#[$doc])* $name),* }

        impl DType {
            /// Bytes an element takes on the host. Elements below one byte take a whole one.
            pub const fn size(self) -> usize {
                match self { $(Self::$name => $size),* }
            }

            /// The name StableHLO text uses.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The number PJRT uses (`PJRT_Buffer_Type`).
            pub(crate) const fn to_pjrt(self) -> i32 {
                match self { $(Self::$name => $pjrt),* }
            }

            /// From PJRT's number.
            pub(crate) fn from_pjrt(raw: i32) -> Result<Self> {
                match raw {
                    $($pjrt => Ok(Self::$name),)*
                    _ => Err(Error::argument("dtype", format!("PJRT element type {raw} is not supported"))),
                }
            }

            /// From the number HLO protos use (`xla.PrimitiveType`); none for tuples, tokens and types not listed here.
            pub(crate) fn from_hlo(raw: u64) -> Option<Self> {
                match raw { $($hlo => Some(Self::$name),)* _ => None }
            }
        }
    };
}

dtypes! {
    Pred = (1, 1, 1, "i1"),
    S8 = (2, 2, 1, "i8"),
    S16 = (3, 3, 2, "i16"),
    S32 = (4, 4, 4, "i32"),
    S64 = (5, 5, 8, "i64"),
    U8 = (6, 6, 1, "ui8"),
    U16 = (7, 7, 2, "ui16"),
    U32 = (8, 8, 4, "ui32"),
    U64 = (9, 9, 8, "ui64"),
    F16 = (10, 10, 2, "f16"),
    F32 = (11, 11, 4, "f32"),
    F64 = (12, 12, 8, "f64"),
    BF16 = (13, 16, 2, "bf16"),
    C64 = (14, 15, 8, "complex<f32>"),
    C128 = (15, 18, 16, "complex<f64>"),
    F8E5M2 = (16, 19, 1, "f8E5M2"),
    F8E4M3FN = (17, 20, 1, "f8E4M3FN"),
    S4 = (21, 21, 1, "i4"),
    U4 = (22, 22, 1, "ui4"),
    F8E4M3 = (26, 28, 1, "f8E4M3"),
    F8E8M0FNU = (28, 33, 1, "f8E8M0FNU"),
    F4E2M1FN = (29, 32, 1, "f4E2M1FN"),
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust number that is an element of an array as it stands.
pub trait Element: bytemuck::Pod + Send {
    /// Its element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $ty { const DTYPE: DType = DType::$dtype; }
    )*};
}

elements! {
    i8 => S8, i16 => S16, i32 => S32, i64 => S64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64,
}

/// Element type and dimensions of an array, displayed as StableHLO writes it: `4x8xf32`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, major to minor; empty for a scalar.
    pub dims: Box<[i64]>,
}

impl Shape {
    /// A shape.
    pub fn new(dtype: DType, dims: &[i64]) -> Self {
        Self { dtype, dims: dims.into() }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).product()
    }

    /// Bytes on the host, dense.
    pub fn size_bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// The shape, once its dimensions are known not to be negative and its size to fit.
    pub(crate) fn checked(dtype: DType, dims: &[i64]) -> Result<Self> {
        let size = dims.iter().try_fold(dtype.size() as i64, |size, dim| match *dim {
            0.. => size.checked_mul(*dim),
            _ => None,
        });
        match size {
            Some(_) => Ok(Self::new(dtype, dims)),
            None => Err(Error::argument("dims", format!("{dims:?} is negative or too large"))),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for dim in &self.dims {
            write!(f, "{dim}x")?;
        }
        write!(f, "{}", self.dtype)
    }
}
