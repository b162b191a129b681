//! Packed matrices, turned: programs contract their rows, checkpoints store their columns one after another.

use model::weights::Encoding;

/// Rows that are turned at a time, so that what is read and what is written stay in a core's cache.
const TILE: usize = 64;

/// Turns one matrix of `rows` rows, `encoding` saying of what.
///
/// Of codes, stored two columns a byte beside each other, columns `i` and `columns / 2 + i` are put into one byte, so that a
/// program that unpacks gets the two halves of the matrix.
pub(crate) fn turn(encoding: Encoding, stored: &[u8], rows: usize, out: &mut [u8]) {
    let width = stored.len() / rows.max(1);
    for first in (0..rows).step_by(TILE) {
        let tile = first..(first + TILE).min(rows);
        let of = |column: usize| tile.clone().map(move |row| stored[row * width + column]);
        let place = |at: usize| at * rows + tile.start..at * rows + tile.end;
        if encoding == Encoding::PackedScales {
            for column in 0..width {
                out[place(column)].iter_mut().zip(of(column)).for_each(|(out, scale)| *out = scale);
            }
            continue;
        }
        for pair in 0..width / 2 {
            let (lower, upper) = (of(pair), of(width / 2 + pair));
            let (even, odd) = out[place(2 * pair).start..place(2 * pair + 1).end].split_at_mut(rows);
            for ((even, odd), (lower, upper)) in even.iter_mut().zip(odd).zip(lower.zip(upper)) {
                *even = lower & 15 | upper << 4;
                *odd = lower >> 4 | upper & 0xf0;
            }
        }
    }
}
