//! How good a place is; the smallest score wins. Scores end with the worker's name, so that equals are told apart the
//! same way everywhere.

use std::cmp::Reverse;

use proto::v1::Capacity;

use super::{Candidate, Need};

/// Thousandths, so that scores are integers and have one order.
type Permille = u64;

/// Millionths of a second.
type Micros = u64;

/// A worker that never measured its speed is assumed to be this fast, in tokens a second.
const UNMEASURED_SPEED: f64 = 1000.0;

/// Pages that `tokens` take.
pub(crate) fn pages(tokens: u32, capacity: &Capacity) -> u32 {
    tokens.div_ceil(capacity.page_tokens.max(1))
}

/// First those with room now, then by the share of room that stays free, then by work.
pub(super) fn decode<'a>(candidate: &Candidate<'a>, need: Need) -> (bool, Reverse<Permille>, u32, &'a str) {
    let capacity = candidate.record.capacity.unwrap_or_default();
    let free = |reported: u32, whole: u32, booked: u32| reported.min(whole.saturating_sub(booked));
    let slots = free(candidate.load.free_slots, capacity.slots, candidate.booked.slots);
    let free_pages = free(candidate.load.free_pages, capacity.pages, candidate.booked.pages);
    let needed = pages(need.total_tokens, &capacity);
    let full = slots == 0 || free_pages < needed;
    let share = |free: u32, whole: u32| u64::from(free) * 1000 / u64::from(whole.max(1));
    let left = share(slots.saturating_sub(1), capacity.slots)
        .min(share(free_pages.saturating_sub(needed), capacity.pages));
    let work = candidate.booked.slots.max(candidate.load.running + candidate.load.waiting);
    (full, Reverse(left), work, candidate.record.name.as_str())
}

/// When the prompt would be computed: what is queued, then what is not cached of the prompt, at the measured speed.
pub(super) fn prefill<'a>(candidate: &Candidate<'a>, need: Need) -> (Micros, &'a str) {
    let queued = candidate.load.queued_tokens.max(candidate.booked.prompt_tokens);
    let measured = candidate.load.tokens_per_second;
    let speed = if measured.is_finite() && measured > 0.0 { measured } else { UNMEASURED_SPEED };
    let seconds = (queued + u64::from(need.prompt_tokens.saturating_sub(candidate.cached))) as f64 / speed;
    ((seconds * 1e6) as Micros, candidate.record.name.as_str())
}
