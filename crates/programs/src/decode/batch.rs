use std::cell::Cell;

use model::Indexer;
use stablehlo::{DType, Func, Gather, Update, Value};

use crate::layers::indexer::{Asked, Chosen};
use crate::layers::mla::Pages;
use crate::layers::{Layer, Phase, State, conv, indexer, kda, mla};
use crate::{ShapeLadder, StateArray};

/// A window of one or more consecutive rows of each of several sequences.
pub(crate) struct Batch {
    slots: Value,
    /// s32 `[B, T]`.
    positions: Value,
    /// s32 `[B * T]`, `[B * T]`: where each row's latent is cached.
    places: [Value; 2],
    table: Value,
    trash: i32,
    /// s32 `[B]`: tokens of the last window that move the recurrent state first; without a window every token moves it.
    pub(super) accepted: Option<Value>,
    /// pred `[B * T]`: the rows that are cached, where not all of them are.
    kept: Option<Value>,
    sharing: Option<Sharing>,
}

/// A choice of pools that the turns of a loop have in common. It says all that the later turns' rows attend to: neither the
/// tokens since nor themselves.
pub(crate) struct Sharing {
    /// pred scalar: this turn chooses; the others take what is held.
    chooses: Value,
    held: Chosen,
    made: Cell<Option<Chosen>>,
}

impl Sharing {
    /// In a turn that chooses where `chooses`, and where `held` was chosen before.
    pub(crate) fn new(chooses: Value, held: Chosen) -> Self {
        Self { chooses, held, made: Cell::new(None) }
    }
}

impl Batch {
    /// Of rows at `positions [B, T]` of the sequences in `slots [B]`.
    pub(crate) fn new(f: &Func, ladder: &ShapeLadder, positions: Value, slots: Value, table: Value) -> Self {
        let dims = f.dims(positions);
        let rows = dims[0] * dims[1];
        let page_tokens = f.splat_like(positions, f64::from(ladder.page_tokens));
        let entry = f.reshape(f.div(positions, page_tokens), &[rows, 1]);
        let row = f.reshape(f.iota(DType::S32.tensor(dims), 0), &[rows, 1]);
        let page = f.take_at(table, f.concatenate(&[row, entry], 1));
        let places = [page, f.reshape(f.rem(positions, page_tokens), &[rows])];
        Self {
            slots,
            positions,
            places,
            table,
            trash: ladder.trash_page() as i32,
            accepted: None,
            kept: None,
            sharing: None,
        }
    }

    /// The same rows, of which only those marked in `kept [B, T]` are cached; the others go to the trash page.
    pub(crate) fn only(mut self, f: &Func, kept: Value) -> Self {
        let [page, _] = self.places;
        let kept = f.reshape(kept, &f.dims(page));
        self.places[0] = f.select(kept, page, f.splat_like(page, f64::from(self.trash)));
        self.kept = Some(kept);
        self
    }

    /// The same rows, of one a sequence, which share a choice of pools with those of other turns.
    pub(crate) fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(sharing);
        self
    }

    /// What the rows have attended to, if they share it.
    pub(crate) fn chosen(&self) -> Option<Chosen> {
        self.sharing.as_ref().and_then(|sharing| sharing.made.get())
    }

    fn keep_latents(&self, layer: &Layer<'_>, latents: Value, state: &mut State) {
        let f = layer.f;
        let places = addresses(f, layer.index, &self.places);
        let cached = state.get(StateArray::Latents);
        let filled = mla::fill(f, f.convert(latents, f.dtype(cached)), cached);
        state.set(StateArray::Latents, f.scatter_at(cached, places, filled, Update::Replace));
    }

    /// The short convolution of the rows, f32 `[B, T, 3, width]`, and the tails after it. `before` rows of history come
    /// before the first row; after a window they begin behind the last one that counts.
    fn convolve(&self, layer: &Layer<'_>, qkv: Value, places: Value, state: &mut State) -> Value {
        let f = layer.f;
        let (tails, filters) = (state.get(StateArray::Tails), layer.weight("kda.conv"));
        let (batch, window) = (f.dim(self.positions, 0), f.dim(self.positions, 1));
        let (width, before) = (f.dim(filters, 1), f.dim(filters, 2) - 1);
        let history = match self.accepted {
            None => f.take_at(tails, places),
            Some(accepted) => {
                let start = f.concatenate(&[places, f.reshape(accepted, &[batch, 1])], 1);
                let how = Gather {
                    offset_dims: vec![1, 2, 3],
                    collapsed_slice_dims: vec![0, 1],
                    start_index_map: vec![0, 1, 3],
                    index_vector_dim: 1,
                    slice_sizes: vec![1, 1, 3, before, width],
                    ..Gather::default()
                };
                f.gather(tails, start, &how)
            }
        };
        let rows = f.transpose(f.reshape(qkv, &[batch, window, 3, width]), &[0, 2, 1, 3]);
        let all = f.concatenate(&[history, rows], 2);
        let kept = if self.accepted.is_some() { all } else { f.slice_axis(all, 2, window, window + before) };
        state.set(StateArray::Tails, f.scatter_at(tails, places, kept, Update::Replace));
        conv::over_batch(f, all, filters)
    }

    /// The window's attention from the state that the last window's accepted tokens leave, and that state kept.
    fn over_window(
        &self,
        f: &Func,
        inputs: ([Value; 3], Value, Value),
        accepted: Value,
        places: Value,
        state: &mut State,
    ) -> Value {
        let (qkv, decay, beta) = inputs;
        let arrays = [StateArray::WindowKeys, StateArray::WindowDecay, StateArray::WindowWritten];
        let [keys, old_decay, written] = arrays.map(|array| f.take_at(state.get(array), places));
        let last = kda::Window { keys, decay: old_decay, written };
        let memory = f.take_at(state.get(StateArray::Recurrent), places);
        let memory = kda::recover(f, &last, accepted, memory);
        let (o, next) = kda::window(f, qkv, decay, beta, memory);
        let put = |array, value, state: &mut State| {
            let all = f.scatter_at(state.get(array), places, value, Update::Replace);
            state.set(array, all);
        };
        put(StateArray::Recurrent, memory, state);
        for (array, value) in arrays.into_iter().zip([next.keys, next.decay, next.written]) {
            put(array, value, state);
        }
        o
    }
}

impl Phase for Batch {
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let (f, shape) = (layer.f, &layer.config.kda);
        let projected = kda::project(layer, x);
        let places = addresses(f, layer.index, &[self.slots]);
        let convolved = self.convolve(layer, projected.qkv, places, state);
        let (rows, width) = (f.dim(x, 0), shape.width() as i64);
        let part = |at: i64| f.reshape(f.slice_axis(convolved, 2, at, at + 1), &[rows, width]);
        let qkv = kda::heads(layer, [part(0), part(1), part(2)]);
        let o = match self.accepted {
            None => {
                let memory = f.take_at(state.get(StateArray::Recurrent), places);
                let (o, memory) = kda::step(f, qkv, projected.decay, projected.beta, memory);
                let all = f.scatter_at(state.get(StateArray::Recurrent), places, memory, Update::Replace);
                state.set(StateArray::Recurrent, all);
                o
            }
            Some(accepted) => {
                let cells = f.dims(self.positions);
                let split = |x: Value| f.reshape(x, &[&cells, &f.dims(x)[1..]].concat());
                let inputs = (qkv.map(split), split(projected.decay), split(projected.beta));
                let o = self.over_window(f, inputs, accepted, places, state);
                f.reshape(o, &[rows, shape.heads as i64, shape.dim as i64])
            }
        };
        kda::output(layer, &projected, o)
    }

    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let projected = mla::project(layer, x);
        self.keep_latents(layer, projected.latents, state);
        let latents = self.pages(layer, state.get(StateArray::Latents));
        let kv_lora = layer.config.mla.kv_lora as i64;
        let dims = f.dims(projected.queries);
        let cells = f.dims(self.positions);
        let queries = f.reshape(projected.queries, &[&cells, &dims[1..]].concat());
        let queries = mla::fill(f, queries, latents.array);
        let dense = || mla::attend_batch(f, &latents, kv_lora, queries, self.positions);
        let sums = match &layer.config.mla.indexer {
            None => dense(),
            Some(shape) => {
                let index = indexer::project(layer, shape, x, projected.compressed);
                self.keep_index(layer, index.own, state);
                let keys = self.pages(layer, state.get(StateArray::IndexKeys));
                if self.sharing.is_none() && keys.room(f) <= shape.chosen as i64 {
                    dense()
                } else {
                    let chosen = self.choose(f, &keys, &index.asked.reshape(f, &cells), shape);
                    mla::attend_chosen(f, &latents, kv_lora, shape.pool as i64, queries, &chosen)
                }
            }
        };
        mla::output(layer, &projected, f.reshape(sums, &[dims[0], dims[1], kv_lora]))
    }

    fn cache(&self, layer: &Layer<'_>, x: Value, state: &mut State) {
        self.keep_latents(layer, mla::project_latents(layer, x), state);
        if let Some(shape) = &layer.config.mla.indexer {
            self.keep_index(layer, indexer::project_own(layer, shape, x), state);
        }
    }
}

impl Batch {
    fn pages(&self, layer: &Layer<'_>, array: Value) -> Pages {
        Pages { array, layer: layer.index, table: self.table, trash: self.trash }
    }

    /// The pools that the rows attend to. It is never all of them just because few are complete: how a row is computed may
    /// not depend on its neighbours.
    fn choose(&self, f: &Func, keys: &Pages, asked: &Asked, shape: &Indexer) -> Chosen {
        let seen = f.add_scalar(self.positions, 1.0);
        let Some(sharing) = &self.sharing else {
            return indexer::choose(f, keys, asked, seen, shape);
        };
        let values = f.if_else(
            sharing.chooses,
            |f| indexer::choose(f, keys, asked, seen, shape).values().to_vec(),
            |_| sharing.held.values().to_vec(),
        );
        let chosen = Chosen { pools: values[0], seen: values[1] };
        sharing.made.set(Some(chosen));
        chosen
    }

    /// Keeps the indexer's raw rows `own [B * T, 2, dim]`, and the pools that they complete.
    ///
    /// A pool is always made of what the ring holds once the window is in it. The ring is longer than a pool by the drafts
    /// of a window, so neither this window nor a rejected one, which reaches at most `T - 1` positions further than the
    /// first row that is done again, overwrites a token of the first row's open pool.
    fn keep_index(&self, layer: &Layer<'_>, own: Value, state: &mut State) {
        let f = layer.f;
        let (cells, rows) = (f.dims(self.positions), f.dim(own, 0));
        let rings = state.get(StateArray::IndexRing);
        let (trash, length) = (f.dim(rings, 1) - 1, f.dim(rings, 2));
        let positions = f.reshape(self.positions, &[rows]);
        let slots = f.reshape(f.broadcast_in_dim(self.slots, &cells, &[0]), &[rows]);
        let written = match self.kept {
            None => slots,
            Some(kept) => f.select(kept, slots, f.splat_like(slots, trash as f64)),
        };
        let place = f.rem(positions, f.splat_like(positions, length as f64));
        let rings = f.scatter_at(rings, addresses(f, layer.index, &[written, place]), own, Update::Replace);
        state.set(StateArray::IndexRing, rings);

        let places = layer.weight("index.places");
        let pool = f.dim(places, 0);
        let tokens = f.reshape(indexer::places_up_to(f, positions, pool, length), &[rows * pool]);
        let slots = f.reshape(f.broadcast_in_dim(slots, &[rows, pool], &[0]), &[rows * pool]);
        let tokens = f.take_at(rings, addresses(f, layer.index, &[slots, tokens]));
        let keys = indexer::pooled(f, places, f.reshape(tokens, &[rows, pool, 2, f.dim(own, 2)]));
        let [page, row] = self.places;
        let by = f.splat_like(row, pool as f64);
        let closes = f.eq(f.rem(f.add_scalar(positions, 1.0), by), f.splat_like(row, 0.0));
        let page = f.select(closes, page, f.splat_like(page, f64::from(self.trash)));
        let cached = state.get(StateArray::IndexKeys);
        let at = addresses(f, layer.index, &[page, f.div(row, by)]);
        let keys = f.convert(keys, f.dtype(cached));
        state.set(StateArray::IndexKeys, f.scatter_at(cached, at, keys, Update::Replace));
    }
}

/// Addresses `[n, 1 + columns]` of a layer's rows in a state array: its index, then a value of each of `columns [n]`.
fn addresses(f: &Func, layer: Value, columns: &[Value]) -> Value {
    let shape = [f.dim(columns[0], 0), 1];
    let index = f.broadcast_in_dim(layer, &shape, &[]);
    let columns = columns.iter().map(|&column| f.reshape(column, &shape));
    f.concatenate(&std::iter::once(index).chain(columns).collect::<Vec<_>>(), 1)
}
