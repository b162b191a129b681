use engine::{CacheEvent, Load, SampledToken};
use kvxfer::Layout;
use model::StateShape;
use programs::ShapeLadder;
use proto::v1;
use worker::CacheChange;

/// The format of the recurrent state on the wire, and its axes.
pub(crate) const STATE_FORMAT: &str = "f32[head,key,value]";

pub(crate) fn layout_of(state: &StateShape, ladder: &ShapeLadder) -> Layout {
    let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Layout {
        latent_layers: size(state.latent_layers),
        latent_width: size(state.latent_width),
        recurrent_layers: size(state.recurrent_layers),
        heads: size(state.heads),
        key_dim: size(state.key_dim),
        value_dim: size(state.value_dim),
        tail_rows: size(state.tail_rows),
        tail_width: size(state.tail_width),
        index_dim: state.index.map_or(0, |index| size(index.dim)),
        index_pool: state.index.map_or(0, |index| size(index.pool)),
        hidden: size(state.hidden.unwrap_or(0)),
        vocabulary: size(state.vocabulary),
        page_tokens: ladder.page_tokens,
    }
}

/// A layout as it stands in a message.
pub fn layout(message: &v1::Layout) -> Layout {
    Layout {
        latent_layers: message.latent_layers,
        latent_width: message.latent_width,
        recurrent_layers: message.recurrent_layers,
        heads: message.heads,
        key_dim: message.key_dim,
        value_dim: message.value_dim,
        tail_rows: message.tail_rows,
        tail_width: message.tail_width,
        index_dim: message.index_dim,
        index_pool: message.index_pool,
        hidden: message.hidden,
        vocabulary: message.vocabulary_size,
        page_tokens: message.page_tokens,
    }
}

/// The message that says `layout`.
pub fn layout_message(layout: &Layout) -> v1::Layout {
    v1::Layout {
        latent_layers: layout.latent_layers,
        latent_width: layout.latent_width,
        recurrent_layers: layout.recurrent_layers,
        heads: layout.heads,
        key_dim: layout.key_dim,
        value_dim: layout.value_dim,
        tail_rows: layout.tail_rows,
        tail_width: layout.tail_width,
        vocabulary_size: layout.vocabulary,
        page_tokens: layout.page_tokens,
        index_dim: layout.index_dim,
        index_pool: layout.index_pool,
        hidden: layout.hidden,
    }
}

/// The first field in which two fingerprints differ.
pub fn fingerprint_difference(ours: &v1::Fingerprint, theirs: &v1::Fingerprint) -> Option<&'static str> {
    let fields = [
        ("fingerprint.model", ours.model == theirs.model),
        ("fingerprint.revision", ours.revision == theirs.revision),
        ("fingerprint.float_format", ours.float_format == theirs.float_format),
        ("fingerprint.matrix_format", ours.matrix_format == theirs.matrix_format),
        ("fingerprint.drafts", ours.drafts == theirs.drafts),
        ("fingerprint.weights_digest", ours.weights_digest == theirs.weights_digest),
        ("fingerprint.latent_format", ours.latent_format == theirs.latent_format),
        ("fingerprint.state_format", ours.state_format == theirs.state_format),
        ("fingerprint.program_version", ours.program_version == theirs.program_version),
    ];
    fields.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
}

/// The log probabilities of a drawn token; their bytes are for the router to fill in, which has the tokenizer.
pub fn logprobs(token: &SampledToken) -> v1::Logprobs {
    let entry = |token_id, logprob| v1::TokenLogprob { token_id, logprob, ..Default::default() };
    v1::Logprobs {
        chosen: Some(entry(token.id, token.logprob)),
        top: token.top.iter().map(|&(id, logprob)| entry(id, logprob)).collect(),
    }
}

pub(crate) fn cache_change(event: CacheEvent) -> CacheChange {
    match event {
        CacheEvent::Stored { hash, position, bytes } => CacheChange::Stored(v1::CachedCheckpoint {
            hash: hash.0.to_vec().into(),
            position: position.0,
            bytes: bytes.0,
        }),
        CacheEvent::Removed { hash, .. } => CacheChange::Removed(hash.0.to_vec().into()),
    }
}

pub(crate) fn ladder_message(ladder: &ShapeLadder) -> v1::ShapeLadder {
    v1::ShapeLadder {
        chunk_tokens: ladder.chunks.clone(),
        batch_rows: ladder.batches.clone(),
        context_tokens: ladder.context,
    }
}

pub(crate) fn capacity(ladder: &ShapeLadder) -> v1::Capacity {
    v1::Capacity { pages: ladder.pages, page_tokens: ladder.page_tokens, slots: ladder.slots }
}

pub(crate) fn load_message(load: &Load, role: v1::Role) -> v1::Load {
    let tokens_per_second = match role {
        v1::Role::Prefill => load.prefill_tokens_per_second,
        v1::Role::Decode | v1::Role::Unspecified => load.decode_tokens_per_second,
    };
    v1::Load {
        free_pages: load.free_pages,
        free_slots: load.free_slots,
        waiting: load.waiting,
        running: load.running,
        queued_tokens: load.queued_tokens,
        tokens_per_second,
        step_seconds: load.decode_step_seconds,
        draining: false,
    }
}
