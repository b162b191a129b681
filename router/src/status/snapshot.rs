//! Everything an operator sees at one moment, as it is sent. Pure: what there is and the time go in.

use std::collections::BTreeMap;

use discovery::{Member, View};
use proto::v1::{Role, WorkerRecord};
use serde::Serialize;
use tokio::time::Instant;

use super::journal::{Record, Stage};

/// Running requests that are shown: the first to come, so that none that hangs is left out.
const RUNNING: usize = 100;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshot {
    router: RouterState,
    prefill: Vec<Worker>,
    decode: Vec<Worker>,
    transfers: Vec<Transfer>,
    /// Running ones in order of admission, then the last that have ended, the latest first.
    requests: Vec<RequestState>,
}

/// What the router knows of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RouterState {
    pub(super) version: &'static str,
    pub(super) model: String,
    pub(super) uptime_seconds: u64,
    /// Requests that hold a permit.
    pub(super) in_flight: u64,
    /// Requests that wait for one.
    pub(super) waiting: u64,
    /// Requests that no worker has, and their prompts' tokens.
    pub(super) unplaced: u64,
    pub(super) unplaced_tokens: u64,
    pub(super) migrations: u64,
    /// How many requests ended how, refused ones included.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Whether the registry still tells of members that come and go.
    pub(super) members_followed: bool,
    /// What health and readiness say below their answer: that etcd is away.
    pub(super) trouble: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Worker {
    name: String,
    address: String,
    draining: bool,
    waiting: u32,
    running: u32,
    pages: Use,
    slots: Use,
    /// Prompt tokens not yet computed.
    queued_tokens: u64,
    /// Measured, 0 until known.
    tokens_per_second: f64,
    /// A step's time, 0 until known.
    step_ms: f64,
    /// Prompts that it is known to resume after; nothing where it has no prefix cache.
    checkpoints: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Use {
    used: u32,
    total: u32,
}

/// A request between its placement and the commit of its state.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Transfer {
    number: u64,
    request: String,
    prefill_worker: String,
    decode_worker: String,
    /// Since it was placed.
    age_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RequestState {
    /// In order of admission, from 0 at the router's start.
    number: u64,
    id: String,
    /// `placing`, `prefilling`, `transferring`, `decoding` or how it ended.
    state: String,
    ended: bool,
    prompt_tokens: u32,
    /// Known with the first token.
    cached_tokens: Option<u32>,
    output_tokens: u32,
    prefill_worker: Option<String>,
    decode_worker: Option<String>,
    migrations: u32,
    first_token_ms: Option<f64>,
    /// Since it arrived, until now or its end.
    total_ms: f64,
    waterfall: Vec<Segment>,
}

/// One stage of a request, from its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Segment {
    stage: &'static str,
    start_ms: f64,
    ms: f64,
}

/// What there is.
pub(super) struct Seen<'a> {
    pub(super) router: RouterState,
    pub(super) view: &'a View,
    /// Prompts that a worker is known to resume after.
    pub(super) checkpoints: &'a dyn Fn(&WorkerRecord) -> Option<u64>,
    /// Of the journal.
    pub(super) running: Vec<Record>,
    pub(super) ended: Vec<Record>,
}

impl Snapshot {
    pub(super) fn of(seen: Seen<'_>, now: Instant) -> Self {
        let workers = |role: Role| {
            let members = seen.view.members().filter(|member| member.record.role() == role);
            members.map(|member| worker(member, (seen.checkpoints)(&member.record))).collect()
        };
        let (prefill, decode) = (workers(Role::Prefill), workers(Role::Decode));
        let shown = seen.running.iter().take(RUNNING).chain(seen.ended.iter().rev());
        Self {
            router: seen.router,
            prefill,
            decode,
            transfers: seen.running.iter().filter_map(|record| transfer(record, now)).collect(),
            requests: shown.map(|record| request(record, now)).collect(),
        }
    }
}

fn worker(member: &Member, checkpoints: Option<u64>) -> Worker {
    let Member { record, load } = member;
    let capacity = record.capacity.unwrap_or_default();
    let used = |total: u32, free: u32| Use { used: total.saturating_sub(free), total };
    Worker {
        name: record.name.clone(),
        address: record.grpc_address.clone(),
        draining: load.draining,
        waiting: load.waiting,
        running: load.running,
        pages: used(capacity.pages, load.free_pages),
        slots: used(capacity.slots, load.free_slots),
        queued_tokens: load.queued_tokens,
        tokens_per_second: load.tokens_per_second,
        step_ms: ms(load.step_seconds),
        checkpoints,
    }
}

fn transfer(record: &Record, now: Instant) -> Option<Transfer> {
    let (Stage::Transferring { since }, Some(workers)) = (&record.stage, &record.workers) else {
        return None;
    };
    Some(Transfer {
        number: record.number,
        request: record.id.clone(),
        prefill_worker: workers.prefill.name.clone(),
        decode_worker: workers.decode.name.clone(),
        age_ms: between(*since, now),
    })
}

fn request(record: &Record, now: Instant) -> RequestState {
    let (until, state) = match &record.stage {
        Stage::Placing => (now, "placing"),
        Stage::Transferring { .. } if record.cached_tokens.is_none() => (now, "prefilling"),
        Stage::Transferring { .. } => (now, "transferring"),
        Stage::Decoding => (now, "decoding"),
        Stage::Ended { at, outcome } => (*at, outcome.as_str()),
    };
    RequestState {
        number: record.number,
        id: record.id.clone(),
        state: state.to_owned(),
        ended: matches!(record.stage, Stage::Ended { .. }),
        prompt_tokens: record.prompt_tokens,
        cached_tokens: record.cached_tokens,
        output_tokens: record.output_tokens,
        prefill_worker: record.workers.as_ref().map(|pair| pair.prefill.name.clone()),
        decode_worker: record.workers.as_ref().map(|pair| pair.decode.name.clone()),
        migrations: record.migrations,
        first_token_ms: record.cached_tokens.map(|_| ms(record.timing.first_token)),
        total_ms: between(record.arrived, until),
        waterfall: waterfall(record, until),
    }
}

/// Its stages up to `until`. Of a request that was migrated after its first token, decode is everything that followed.
fn waterfall(record: &Record, until: Instant) -> Vec<Segment> {
    let total = between(record.arrived, until);
    let segment = |stage, start_ms: f64, end: f64| Segment {
        stage,
        start_ms,
        ms: tenths((end.min(total) - start_ms).max(0.0)),
    };
    if record.cached_tokens.is_none() {
        // What workers measure comes with the first token.
        let began = record.began.map(|began| between(record.arrived, began));
        let queue = segment("queue", 0.0, began.unwrap_or(total));
        return std::iter::once(queue).chain(began.map(|began| segment("prefill", began, total))).collect();
    }
    let timing = &record.timing;
    let (queue, first) = (ms(timing.queue), ms(timing.first_token));
    let mut stages = vec![
        segment("queue", 0.0, queue),
        segment("prefill", queue, first.min(tenths(queue + ms(timing.prefill)))),
    ];
    if record.committed {
        let committed = tenths(first + ms(timing.transfer));
        stages.extend([segment("transfer", first, committed), segment("decode", committed, total)]);
    } else if matches!(record.stage, Stage::Transferring { .. }) {
        stages.push(segment("transfer", first, total));
    }
    stages
}

fn between(from: Instant, to: Instant) -> f64 {
    ms(to.saturating_duration_since(from).as_secs_f64())
}

/// Milliseconds, to a tenth.
fn ms(seconds: f64) -> f64 {
    tenths(seconds * 1e3)
}

fn tenths(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}
