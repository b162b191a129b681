//! The same noise in plain Rust, for tests.

use super::{GROUPS, PARITY, ROTATIONS};

/// Both words of threefry2x32-20.
pub(crate) fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let schedule = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let mut x = [counter[0].wrapping_add(key[0]), counter[1].wrapping_add(key[1])];
    for group in 0..GROUPS {
        for distance in ROTATIONS[group as usize % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(distance) ^ x[0];
        }
        let at = group as usize + 1;
        x[0] = x[0].wrapping_add(schedule[at % 3]);
        x[1] = x[1].wrapping_add(schedule[(at + 1) % 3]).wrapping_add(group + 1);
    }
    x
}

/// An exponential variate of mean 1.
pub(crate) fn exponential(seed: u64, position: u32, token: u32) -> f64 {
    let [bits, _] = threefry([seed as u32, (seed >> 32) as u32], [position, token]);
    let fraction = ((bits as f32 + 0.5) * 2f32.powi(-32)).min(1.0 - 2f32.powi(-24));
    -(-f64::from(fraction)).ln_1p()
}
