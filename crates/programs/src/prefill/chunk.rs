use model::Indexer;
use stablehlo::{DType, Func, Value};

use super::tiles::{self, Rows};
use crate::layers::mla::Pages;
use crate::layers::{Layer, Phase, State, conv, indexer, kda, mla};
use crate::{Output, ShapeLadder, StateArray};

/// The rows of one sequence's chunk.
pub(crate) struct Chunk {
    /// s32 scalar: real tokens of the chunk.
    valid: Value,
    /// s32 scalar: position of the first token.
    start: Value,
    /// s32 scalar: position after the last real token.
    limit: Value,
    slot: Value,
    /// pred scalar: the sequence begins here, so the slot's old state is another's.
    begins: Value,
    /// pred `[C]`: the row is a real token.
    real: Value,
    /// s32 `[C]`.
    pub(crate) positions: Value,
    table: Value,
    trash: i32,
}

impl Chunk {
    /// Rows of which the first `valid` are real, from position `start` on, of the sequence in `slot`: `scalars` in this
    /// order. `table` is s32 `[P]`.
    pub(crate) fn new(f: &Func, ladder: &ShapeLadder, rows: i64, scalars: [Value; 3], table: Value) -> Self {
        let [valid, start, slot] = scalars;
        let row = f.iota(DType::S32.tensor([rows]), 0);
        let positions = f.add(row, f.broadcast_like(start, row, &[]));
        let real = f.lt(row, f.broadcast_like(valid, row, &[]));
        let trash = ladder.trash_page() as i32;
        Self {
            valid,
            start,
            limit: f.add(start, valid),
            slot,
            begins: f.eq(start, f.scalar(0i32)),
            real,
            positions,
            table,
            trash,
        }
    }

    /// The first `rows` rows (of axis `axis`) of what an array holds at this layer's row and the sequence's slot; 0 where
    /// the sequence begins.
    fn held(&self, f: &Func, array: Value, layer: Value, first: Option<(usize, i64)>) -> Value {
        let mut sizes = f.dims(array);
        (sizes[0], sizes[1]) = (1, 1);
        if let Some((axis, rows)) = first {
            sizes[axis] = rows;
        }
        let part = f.dynamic_slice(array, &self.starts(f, array, layer), &sizes);
        let part = f.reshape(part, &sizes[2..]);
        let begins = f.broadcast_like(self.begins, part, &[]);
        f.select(begins, f.splat_like(part, 0.0), part)
    }

    fn hold(&self, f: &Func, array: Value, layer: Value, part: Value) -> Value {
        let mut dims = vec![1, 1];
        dims.extend(f.dims(part));
        f.dynamic_update_slice(array, f.reshape(part, &dims), &self.starts(f, array, layer))
    }

    fn starts(&self, f: &Func, array: Value, layer: Value) -> Vec<Value> {
        let mut starts = vec![layer, self.slot];
        starts.resize(f.dims(array).len(), f.scalar(0i32));
        starts
    }

    /// 0 in the rows of padding.
    fn only_real(&self, f: &Func, x: Value) -> Value {
        let real = f.broadcast_like(self.real, x, &[0]);
        f.select(real, x, f.splat_like(x, 0.0))
    }
}

impl Phase for Chunk {
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let projected = kda::project(layer, x);
        let (tails, recurrent) = (state.get(StateArray::Tails), state.get(StateArray::Recurrent));
        let before = layer.config.kda.conv_kernel as i64 - 1;
        let tail = self.held(f, tails, layer.index, Some((3, before)));
        let width = f.dim(tail, 2);
        let tail = f.reshape(f.transpose(tail, &[1, 0, 2]), &[before, 3 * width]);
        let history = f.concatenate(&[tail, projected.qkv], 0);
        let convolved = conv::over_chunk(f, history, layer.weight("kda.conv"));
        let parts = f.split(convolved, 1, &[width, width, width]);
        let qkv = kda::heads(layer, [parts[0], parts[1], parts[2]]);
        let (decay, beta) = (self.only_real(f, projected.decay), self.only_real(f, projected.beta));
        let memory = self.held(f, recurrent, layer.index, None);
        let (o, memory) = kda::chunked(f, qkv, decay, beta, memory);
        state.set(StateArray::Recurrent, self.hold(f, recurrent, layer.index, memory));

        let tail = f.dynamic_slice(history, &[self.valid, f.scalar(0i32)], &[before, 3 * width]);
        let tail = f.transpose(f.reshape(tail, &[before, 3, width]), &[1, 0, 2]);
        state.set(StateArray::Tails, self.hold(f, tails, layer.index, tail));
        kda::output(layer, &projected, o)
    }

    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let projected = mla::project(layer, x);
        self.keep_latents(layer, projected.latents, state);
        let latents = self.pages(layer, state.get(StateArray::Latents));
        let kv_lora = layer.config.mla.kv_lora as i64;
        let queries = mla::fill(f, projected.queries, latents.array);
        let dense = |f: &Func| mla::attend_chunk(f, &latents, kv_lora, queries, self.positions, self.limit);
        let sums = match &layer.config.mla.indexer {
            None => dense(f),
            Some(shape) => {
                let index = indexer::project(layer, shape, x, projected.compressed);
                self.keep_index(layer, index.own, state);
                let keys = self.pages(layer, state.get(StateArray::IndexKeys));
                let rows = Rows { queries, asked: index.asked, seen: self.seen(f), valid: self.valid };
                self.chosen_or_all(f, shape, &keys, dense, |f| {
                    tiles::attend(f, shape, [&latents, &keys], kv_lora, &rows)
                })
            }
        };
        mla::output(layer, &projected, sums)
    }

    fn cache(&self, layer: &Layer<'_>, x: Value, state: &mut State) {
        self.keep_latents(layer, mla::project_latents(layer, x), state);
        if let Some(shape) = &layer.config.mla.indexer {
            self.keep_index(layer, indexer::project_own(layer, shape, x), state);
        }
    }
}

impl Chunk {
    fn pages(&self, layer: &Layer<'_>, array: Value) -> Pages {
        Pages { array, layer: layer.index, table: self.table, trash: self.trash }
    }

    /// s32 `[C]`: tokens that each row sees. Rows of padding see what the last real one does.
    fn seen(&self, f: &Func) -> Value {
        let own = f.add_scalar(self.positions, 1.0);
        f.min(own, f.broadcast_like(self.limit, own, &[]))
    }

    /// Attention to the chosen pools; where no more pools are complete than may be chosen, that is to all tokens.
    fn chosen_or_all(
        &self,
        f: &Func,
        shape: &Indexer,
        keys: &Pages,
        all: impl Fn(&Func) -> Value,
        chosen: impl FnOnce(&Func) -> Value,
    ) -> Value {
        if keys.room(f) <= shape.chosen as i64 {
            return all(f);
        }
        let complete = f.div(self.limit, f.scalar(shape.pool as i32));
        let few = f.le(complete, f.scalar(shape.chosen as i32));
        f.if_else(few, |f| vec![all(f)], |f| vec![chosen(f)])[0]
    }

    fn keep_latents(&self, layer: &Layer<'_>, latents: Value, state: &mut State) {
        let f = layer.f;
        let cached = state.get(StateArray::Latents);
        let filled = mla::fill(f, f.convert(latents, f.dtype(cached)), cached);
        let pages = self.pages(layer, cached);
        state.set(StateArray::Latents, pages.write(f, filled, self.start, self.valid));
        state.collect(f, Output::ChunkLatents, layer.index, latents);
    }

    /// Keeps the indexer's raw rows `own [C, 2, dim]`, and the pools that they complete.
    fn keep_index(&self, layer: &Layer<'_>, own: Value, state: &mut State) {
        let f = layer.f;
        let rings = state.get(StateArray::IndexRing);
        let ring = self.held(f, rings, layer.index, None);
        let places = layer.weight("index.places");
        let pools = indexer::touched(f, places, ring, own, self.start, self.limit);
        state.collect(f, Output::ChunkKeys, layer.index, pools.keys);
        let cached = state.get(StateArray::IndexKeys);
        let keys = f.convert(pools.keys, f.dtype(cached));
        let pages = self.pages(layer, cached);
        state.set(StateArray::IndexKeys, pages.write(f, keys, pools.first, pools.closed));
        let ring = indexer::ring_after(f, ring, own, self.start, self.limit);
        state.set(StateArray::IndexRing, self.hold(f, rings, layer.index, ring));
    }
}
