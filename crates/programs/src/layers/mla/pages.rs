//! A paged array read block by block.

use stablehlo::{DType, Func, Value};

/// One layer's share of an array of pages.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    /// `[latent_layers, pages + 1, rows, width]`: a row is a token, or a pool of tokens.
    pub(crate) array: Value,
    /// s32 scalar: the layer's row.
    pub(crate) layer: Value,
    /// s32 `[P]` or `[B, P]`.
    pub(crate) table: Value,
    /// The page that stands for none.
    pub(crate) trash: i32,
}

impl Pages {
    /// Rows that the longest sequence has room for.
    pub(crate) fn room(&self, f: &Func) -> i64 {
        f.dims(self.table).last().copied().unwrap_or(1) * f.dim(self.array, 2)
    }

    /// The array after `rows [n, width]`, of which the first `count` are real, are written to one sequence's rows from `first`
    /// on. Page by page: compilers make a loop with a turn for every row of what is scattered.
    pub(crate) fn write(&self, f: &Func, rows: Value, first: Value, count: Value) -> Value {
        let (n, per_page, width) = (f.dim(rows, 0), f.dim(self.array, 2), f.dim(self.array, 3));
        // The first row may be any of its page.
        let pages = (n + per_page - 2) / per_page + 1;
        let by = f.scalar(per_page as i32);
        let (page, offset) = (f.div(first, by), f.rem(first, by));
        let end = f.add(offset, count);
        let table = f.pad(self.table, f.scalar(self.trash), &[0], &[pages], &[0]);
        let table = f.dynamic_slice(table, &[page], &[pages]);
        let begins = f.mul_scalar(f.iota(DType::S32.tensor([pages]), 0), per_page as f64);
        let used = f.lt(begins, f.broadcast_like(end, begins, &[]));
        let table = f.select(used, table, f.splat_like(table, f64::from(self.trash)));
        let zero = f.scalar(0i32);
        let room = f.full(f.dtype(rows).tensor([pages * per_page, width]), 0.0);
        let placed = f.dynamic_update_slice(room, rows, &[offset, zero]);
        let result = f.repeat(pages as i32, &[self.array], |f, turn, carried| {
            let page = f.reshape(f.dynamic_slice(table, &[turn], &[1]), &[]);
            let places = [self.layer, page, zero, zero];
            let old = f.dynamic_slice(carried[0], &places, &[1, 1, per_page, width]);
            let begins = f.mul_scalar(turn, per_page as f64);
            let new = f.dynamic_slice(placed, &[begins, zero], &[per_page, width]);
            let row = f.iota(DType::S32.tensor([per_page]), 0);
            let row = f.add(row, f.broadcast_like(begins, row, &[]));
            let after = f.ge(row, f.broadcast_like(offset, row, &[]));
            let real = f.and(after, f.lt(row, f.broadcast_like(end, row, &[])));
            let new = f.reshape(new, &f.dims(old));
            let new = f.select(f.broadcast_like(real, new, &[2]), new, old);
            vec![f.dynamic_update_slice(carried[0], new, &places)]
        });
        result[0]
    }
}

/// The rows of a sequence cut into blocks of whole pages.
pub(crate) struct Blocks<'a> {
    of: &'a Pages,
    /// The page table, filled up to whole blocks.
    table: Value,
    /// Pages of a block.
    pages: i64,
    /// Rows of a block.
    pub(crate) rows: i64,
    /// Blocks of the longest sequence.
    pub(crate) count: i64,
}

impl<'a> Blocks<'a> {
    /// Blocks of about `rows` rows.
    pub(crate) fn new(f: &Func, of: &'a Pages, rows: i64) -> Self {
        let (dims, per_page) = (f.dims(of.table), f.dim(of.array, 2));
        let all = dims.last().copied().unwrap_or(1);
        let pages = (rows / per_page).clamp(1, all.max(1));
        let count = (all + pages - 1) / pages;
        let none = vec![0; dims.len()];
        let mut high = none.clone();
        high[dims.len() - 1] = count * pages - all;
        let table = f.pad(of.table, f.scalar(of.trash), &none, &high, &none);
        Self { of, table, pages, rows: pages * per_page, count }
    }

    /// s32 scalar: blocks that hold the first `limit` rows.
    pub(crate) fn needed(&self, f: &Func, limit: Value) -> Value {
        f.div(f.add_scalar(limit, (self.rows - 1) as f64), f.scalar(self.rows as i32))
    }

    /// s32 `[rows]`: numbers of a block's rows in the sequence.
    pub(crate) fn numbers(&self, f: &Func, block: Value) -> Value {
        let inside = f.iota(DType::S32.tensor([self.rows]), 0);
        let start = f.mul_scalar(block, self.rows as f64);
        f.add(inside, f.broadcast_like(start, inside, &[]))
    }

    /// A block's rows: `[rows, width]`, or `[B, rows, width]`.
    pub(crate) fn read(&self, f: &Func, block: Value) -> Value {
        let mut sizes = f.dims(self.table);
        let last = sizes.len() - 1;
        sizes[last] = self.pages;
        let mut starts = vec![f.scalar(0i32); last];
        starts.push(f.mul_scalar(block, self.pages as f64));
        let table = f.dynamic_slice(self.table, &starts, &sizes);
        let mut column = sizes.clone();
        column.push(1);
        let layer = f.broadcast_in_dim(self.of.layer, &column, &[]);
        let places = f.concatenate(&[layer, f.reshape(table, &column)], column.len() - 1);
        let found = f.take_at(self.of.array, places);
        sizes[last] = self.rows;
        sizes.push(f.dim(self.of.array, 3));
        f.reshape(found, &sizes)
    }
}
