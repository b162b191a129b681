//! FP8 e4m3 with one f32 factor per 128 x 128 block, as `transformers` and DeepSeek's files have it: a value is its code
//! times `weight_scale_inv` of its block, a factor in spite of the name. Blocks at the edges may be smaller.

/// Rows and columns of a block.
pub(crate) const BLOCK: usize = 128;

/// What each code stands for: sign, four bits of exponent less 7, three bits of fraction; no infinity, one NaN.
pub(crate) static E4M3: [f32; 256] = e4m3();

const fn e4m3() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let (exponent, fraction) = ((code >> 3) & 15, (code & 7) as f32);
        let magnitude = match (exponent, code & 7) {
            (15, 7) => f32::NAN,
            (0, _) => fraction / 512.0,
            _ => (8.0 + fraction) * (1 << exponent) as f32 / 1024.0,
        };
        table[code] = if code < 128 { magnitude } else { -magnitude };
        code += 1;
    }
    table
}

/// Shape of a matrix, or of each matrix of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Grid {
    /// Factors in a row of blocks.
    pub(crate) fn across(self) -> usize {
        self.columns.div_ceil(BLOCK)
    }

    /// Rows of blocks of one matrix.
    pub(crate) fn down(self) -> usize {
        self.rows.div_ceil(BLOCK)
    }

    /// The row of blocks that a row of the stack is in.
    pub(crate) fn block_row(self, row: usize) -> usize {
        row / self.rows * self.down() + row % self.rows / BLOCK
    }
}

/// Decodes consecutive values, the first of which is value `start` of the stack. `scales` begin with the row of blocks that
/// it is in.
pub(crate) fn decode(codes: &[u8], scales: &[f32], start: usize, grid: Grid, out: &mut [f32]) {
    let (mut row, mut column) = (start / grid.columns, start % grid.columns);
    let first = grid.block_row(row);
    let mut done = 0;
    while done < codes.len() {
        let n = (grid.columns - column).min(BLOCK - column % BLOCK).min(codes.len() - done);
        let block = (grid.block_row(row) - first) * grid.across() + column / BLOCK;
        let scale = scales.get(block).copied().unwrap_or(f32::NAN);
        for (value, code) in out[done..done + n].iter_mut().zip(&codes[done..done + n]) {
            *value = E4M3[usize::from(*code)] * scale;
        }
        done += n;
        column += n;
        if column == grid.columns {
            (row, column) = (row + 1, 0);
        }
    }
}
