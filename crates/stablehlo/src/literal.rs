//! Constants, printed so that every bit survives.

use std::fmt::Write as _;

use half::{bf16, f16};

use crate::error::{Fault, ensure};
use crate::types::DType;

/// Constants longer than this are printed as one hexadecimal string of little-endian bytes.
const LONGEST_LIST: usize = 64;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values can be written into a program.
pub trait Element: Copy + PartialEq + sealed::Sealed {
    const DTYPE: DType;
    /// The value as MLIR reads it inside `dense<...>`.
    fn literal(self) -> String;
    /// The value's bytes, lowest first.
    fn write_bytes(self, out: &mut Vec<u8>);
}

macro_rules! int_elements {
    ($($rust:ty => $dtype:ident,)+) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
            fn literal(self) -> String { self.to_string() }
            fn write_bytes(self, out: &mut Vec<u8>) { out.extend_from_slice(&self.to_le_bytes()); }
        }
    )+};
}

int_elements! {
    i8 => S8, i16 => S16, i32 => S32, i64 => S64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

macro_rules! float_elements {
    ($($rust:ty => $dtype:ident $width:literal,)+) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
            fn literal(self) -> String {
                short_decimal(f64::from(self))
                    .unwrap_or_else(|| format!(concat!("0x{:0", $width, "X}"), self.to_bits()))
            }
            fn write_bytes(self, out: &mut Vec<u8>) { out.extend_from_slice(&self.to_le_bytes()); }
        }
    )+};
}

float_elements! { f16 => F16 4, bf16 => BF16 4, f32 => F32 8, f64 => F64 16, }

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Pred;
    fn literal(self) -> String {
        self.to_string()
    }
    fn write_bytes(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

/// The decimal form where it is short: readers parse it as an f64 first, so it is exact for any narrower type that
/// holds the value. None for what needs many digits, an exponent, or is not finite.
fn short_decimal(value: f64) -> Option<String> {
    let text = format!("{value:?}");
    (value.is_finite() && text.len() <= 9 && text.contains('.') && !text.contains('e')).then_some(text)
}

/// The inside of `dense<...>` for `data` in row-major order.
pub(crate) fn dense<T: Element>(data: &[T], dims: &[i64]) -> String {
    if let [first, rest @ ..] = data
        && rest.iter().all(|other| other.literal() == first.literal())
    {
        return first.literal();
    }
    // Readers differ on how a byte string packs booleans, so those are always listed.
    if data.len() <= LONGEST_LIST || T::DTYPE == DType::Pred {
        let mut out = String::new();
        write_nested(data, dims, &mut out);
        return out;
    }
    let mut bytes = Vec::new();
    for &value in data {
        value.write_bytes(&mut bytes);
    }
    let mut out = String::with_capacity(bytes.len() * 2 + 4);
    out.push_str("\"0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02X}");
    }
    out.push('"');
    out
}

fn write_nested<T: Element>(data: &[T], dims: &[i64], out: &mut String) {
    let [count, inner @ ..] = dims else {
        out.push_str(&data.first().map(|value| value.literal()).unwrap_or_default());
        return;
    };
    out.push('[');
    let step = if *count > 0 { data.len() / *count as usize } else { 0 };
    for at in 0..*count as usize {
        if at > 0 {
            out.push_str(", ");
        }
        write_nested(&data[at * step..(at + 1) * step], inner, out);
    }
    out.push(']');
}

/// `value` as a literal of `dtype`: floats are rounded to nearest even, integers and booleans must be exact.
pub(crate) fn from_f64(dtype: DType, value: f64) -> Result<String, Fault> {
    let text = match dtype {
        DType::F16 => f16::from_f64(value).literal(),
        DType::BF16 => bf16::from_f64(value).literal(),
        DType::F32 => (value as f32).literal(),
        DType::F64 => value.literal(),
        DType::F8E4M3FN | DType::F4E2M1FN | DType::F8E8M0FNU => {
            let text = short_decimal(value);
            ensure!(text.is_some(), Attribute, "{value} has no short decimal form in {dtype}");
            text.unwrap_or_default()
        }
        DType::Pred => {
            ensure!(value == 0.0 || value == 1.0, Attribute, "{value} is not a boolean");
            (value == 1.0).to_string()
        }
        _ => {
            let whole = value as i128;
            let bits = dtype.bits();
            let (low, high) = if dtype.is_signed() {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1i128 << bits) - 1)
            };
            ensure!(
                whole as f64 == value && (low..=high).contains(&whole),
                Attribute,
                "{value} does not fit {dtype} exactly"
            );
            whole.to_string()
        }
    };
    Ok(text)
}

/// The neutral element of a maximum: minus infinity, or the lowest integer.
pub(crate) fn lowest(dtype: DType) -> String {
    extreme(dtype, f64::NEG_INFINITY, -(1i128 << (dtype.bits() - 1)), 0, false)
}

/// The neutral element of a minimum: infinity, or the highest integer.
pub(crate) fn highest(dtype: DType) -> String {
    let bits = dtype.bits();
    extreme(dtype, f64::INFINITY, (1i128 << (bits - 1)) - 1, (1i128 << bits) - 1, true)
}

fn extreme(dtype: DType, float: f64, signed: i128, unsigned: i128, pred: bool) -> String {
    match dtype {
        DType::Pred => pred.to_string(),
        DType::F16 => f16::from_f64(float).literal(),
        DType::BF16 => bf16::from_f64(float).literal(),
        DType::F32 => (float as f32).literal(),
        DType::F64 => float.literal(),
        // No infinities there; callers refuse narrow floats before they ask.
        DType::F8E4M3FN | DType::F4E2M1FN | DType::F8E8M0FNU => "0.0".to_owned(),
        _ if dtype.is_signed() => signed.to_string(),
        _ => unsigned.to_string(),
    }
}
