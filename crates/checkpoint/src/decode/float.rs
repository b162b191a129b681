//! Plain floats, little endian.

use half::{bf16, f16};

pub(crate) fn f32s(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = f32::from_le_bytes(*raw);
    }
}

pub(crate) fn bf16s(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = bf16::from_le_bytes(*raw).to_f32();
    }
}

pub(crate) fn f16s(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = f16::from_le_bytes(*raw).to_f32();
    }
}
