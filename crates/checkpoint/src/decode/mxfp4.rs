//! MXFP4 as compressed-tensors packs it: two e2m1 codes a byte, the low nibble first, and one E8M0 power of two for each
//! [`MXFP4_GROUP`] values of a row.

use model::weights::MXFP4_GROUP;

/// Bytes of a group's codes.
pub(crate) const GROUP_BYTES: usize = MXFP4_GROUP / 2;

/// Largest scale byte whose group stays finite whatever its codes: `6 * 2^(252 - 127)`. 255 is E8M0's NaN.
pub(crate) const LARGEST_SCALE: u8 = 252;

/// What the two codes of a byte stand for.
static PAIRS: [[f32; 2]; 256] = pairs();

/// What each code stands for: sign, two bits of exponent, one of fraction.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

const fn pairs() -> [[f32; 2]; 256] {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [E2M1[byte & 15], E2M1[byte >> 4]];
        byte += 1;
    }
    table
}

/// `2^(byte - 127)`; NaN for 255.
pub(crate) fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// Decodes the values from `skip` on of the groups given. `out` ends inside the last of them.
pub(crate) fn decode(packed: &[u8], scales: &[u8], skip: usize, out: &mut [f32]) {
    let mut skip = skip;
    let mut rest = out;
    for (codes, scale) in packed.as_chunks::<GROUP_BYTES>().0.iter().zip(scales) {
        let n = (MXFP4_GROUP - skip).min(rest.len());
        let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
        rest = later;
        let scale = e8m0(*scale);
        if let Ok(whole) = <&mut [f32; MXFP4_GROUP]>::try_from(&mut *now) {
            group(codes, scale, whole);
        } else {
            let mut whole = [0.0; MXFP4_GROUP];
            group(codes, scale, &mut whole);
            now.copy_from_slice(&whole[skip..skip + n]);
        }
        skip = 0;
    }
}

fn group(codes: &[u8; GROUP_BYTES], scale: f32, out: &mut [f32; MXFP4_GROUP]) {
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
        let [low, high] = PAIRS[usize::from(*byte)];
        *pair = [low * scale, high * scale];
    }
}
