//! Which prefill worker and which decode worker a request goes to. Pure: a view of the fleet and the needs of one
//! request go in, a pair comes out.
//!
//! Decode is the scarce side, so it chooses first: the worker that keeps the largest share of its room free. Of the
//! prefill workers that compute exactly the same, the one that would be done soonest follows. A worker that failed
//! this request is chosen again only when no other is left, and not at all when it is known to be dead. An output that has
//! begun is continued only by workers that compute what its first ones did.

mod score;

use bytes::Bytes;
use proto::v1::{Fingerprint, Layout, Load, Role, WorkerRecord};

use crate::error::Error;

pub(crate) use score::pages;

#[cfg(test)]
mod tests;

/// What one request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) prompt_tokens: u32,
    /// Prompt and output.
    pub(crate) total_tokens: u32,
}

/// What this router has already put on a worker, and the worker may not have reported yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Booked {
    /// Prompt tokens not yet computed.
    pub(crate) prompt_tokens: u64,
    pub(crate) slots: u32,
    pub(crate) pages: u32,
}

/// One live worker as placement sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) record: &'a WorkerRecord,
    pub(crate) load: &'a Load,
    pub(crate) booked: Booked,
    /// Tokens of the prompt whose state a prefill worker has already.
    pub(crate) cached: u32,
}

/// Workers that failed this request, by incarnation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Avoid {
    /// Not at all.
    pub(crate) lost: Vec<Bytes>,
    /// Only if there is no other.
    pub(crate) tried: Vec<Bytes>,
}

/// The chosen pair, as indices into the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
}

/// What a request wants of its pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) model: &'a str,
    pub(crate) need: Need,
    pub(crate) avoid: &'a Avoid,
    /// What began its output: only equals may go on with it.
    pub(crate) like: Option<&'a Fingerprint>,
}

/// Chooses a pair for a request.
pub(crate) fn choose(wanted: &Wanted<'_>, candidates: &[Candidate<'_>]) -> Result<Pair, Error> {
    let Wanted { need, avoid, .. } = *wanted;
    let of = |role| usable(wanted, role, candidates);
    let mut decode = of(Role::Decode)?;
    let mut prefill = of(Role::Prefill)?;
    let tried = |index: &usize| avoid.tried.contains(&candidates[*index].record.incarnation);
    decode.sort_by_cached_key(|index| (tried(index), score::decode(&candidates[*index], need)));
    prefill.sort_by_cached_key(|index| (tried(index), score::prefill(&candidates[*index], need)));
    let twins = |decode: usize| {
        let twin =
            |&prefill: &usize| difference(candidates[prefill].record, candidates[decode].record).is_none();
        prefill.iter().copied().find(twin).map(|prefill| Pair { prefill, decode })
    };
    decode
        .iter()
        .find_map(|&decode| twins(decode))
        .ok_or_else(|| mismatch(candidates[prefill[0]].record, candidates[decode[0]].record))
}

/// Whether any request could be placed now.
pub(crate) fn serves(model: &str, candidates: &[Candidate<'_>]) -> bool {
    let need = Need { prompt_tokens: 1, total_tokens: 2 };
    choose(&Wanted { model, need, avoid: &Avoid::default(), like: None }, candidates).is_ok()
}

/// Indices of the workers of `role` that may be used at all; never empty.
fn usable(wanted: &Wanted<'_>, role: Role, candidates: &[Candidate<'_>]) -> Result<Vec<usize>, Error> {
    let Wanted { model, avoid, like, .. } = *wanted;
    let fits = |fingerprint: &Fingerprint| {
        fingerprint.model == model
            && like.is_none_or(|like| fingerprint_difference(like, fingerprint).is_none())
    };
    let usable: Vec<usize> = (0..candidates.len())
        .filter(|&index| {
            let Candidate { record, load, .. } = candidates[index];
            record.role() == role
                && !load.draining
                && !avoid.lost.contains(&record.incarnation)
                && record.fingerprint.as_ref().is_some_and(fits)
        })
        .collect();
    if usable.is_empty() { Err(Error::NoWorker { role, model: model.to_owned() }) } else { Ok(usable) }
}

fn mismatch(prefill: &WorkerRecord, decode: &WorkerRecord) -> Error {
    Error::Mismatch {
        field: difference(prefill, decode).unwrap_or("fingerprint"),
        prefill: prefill.name.clone(),
        decode: decode.name.clone(),
    }
}

/// The first field in which two workers compute, or lay out, something else. Their page lengths may differ.
fn difference(prefill: &WorkerRecord, decode: &WorkerRecord) -> Option<&'static str> {
    let (Some(p), Some(d)) = (&prefill.fingerprint, &decode.fingerprint) else { return Some("fingerprint") };
    let (Some(pl), Some(dl)) = (&prefill.layout, &decode.layout) else { return Some("layout") };
    fingerprint_difference(p, d).or_else(|| layout_difference(pl, dl))
}

fn fingerprint_difference(p: &Fingerprint, d: &Fingerprint) -> Option<&'static str> {
    let same = [
        ("fingerprint.model", p.model == d.model),
        ("fingerprint.revision", p.revision == d.revision),
        ("fingerprint.float_format", p.float_format == d.float_format),
        ("fingerprint.matrix_format", p.matrix_format == d.matrix_format),
        ("fingerprint.drafts", p.drafts == d.drafts),
        ("fingerprint.weights_digest", p.weights_digest == d.weights_digest),
        ("fingerprint.latent_format", p.latent_format == d.latent_format),
        ("fingerprint.state_format", p.state_format == d.state_format),
        ("fingerprint.program_version", p.program_version == d.program_version),
    ];
    same.iter().find(|(_, same)| !same).map(|(field, _)| *field)
}

fn layout_difference(p: &Layout, d: &Layout) -> Option<&'static str> {
    let same = [
        ("layout.latent_layers", p.latent_layers == d.latent_layers),
        ("layout.latent_width", p.latent_width == d.latent_width),
        ("layout.recurrent_layers", p.recurrent_layers == d.recurrent_layers),
        ("layout.heads", p.heads == d.heads),
        ("layout.key_dim", p.key_dim == d.key_dim),
        ("layout.value_dim", p.value_dim == d.value_dim),
        ("layout.tail_rows", p.tail_rows == d.tail_rows),
        ("layout.tail_width", p.tail_width == d.tail_width),
        ("layout.index_dim", p.index_dim == d.index_dim),
        ("layout.index_pool", p.index_pool == d.index_pool),
        ("layout.hidden", p.hidden == d.hidden),
        ("layout.vocabulary_size", p.vocabulary_size == d.vocabulary_size),
    ];
    same.iter().find(|(_, same)| !same).map(|(field, _)| *field)
}
