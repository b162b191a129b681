use std::collections::VecDeque;

use engine::{PrefillEvent, PrefillStream, PrefillTimings, SampledToken, SlotState};
use kvxfer::segment::{self, WrongSize, wire_bytes};
use kvxfer::{Layout, Reason, Segment, SegmentId, Source};
use proto::v1::prefill_response::Event;
use proto::v1::{self, PrefillProgress};
use tokio::time::Instant;

use super::trail::Trail;
use super::{Drawn, Events, Handover};
use crate::error::Error;

/// A prompt being computed, as segments: latents and index keys as each chunk comes, then the state, which only the last chunk makes true.
/// Not asking for more holds up this prompt alone.
#[derive(Debug)]
pub(super) struct PromptSource {
    stream: PrefillStream,
    layout: Layout,
    state_pos: u32,
    /// Taken with the last segment.
    drawn: Option<Drawn>,
    wants_logprobs: bool,
    told: Events,
    /// Cut and not yet asked for.
    ready: VecDeque<Segment>,
    computed_at: Option<Instant>,
    trail: Trail,
    failed: Option<Error>,
}

impl PromptSource {
    pub(super) fn new(handover: Handover, told: Events) -> PromptSource {
        let Handover { stream, ticket, drawn, wants_logprobs } = handover;
        PromptSource {
            stream,
            layout: ticket.layout,
            state_pos: ticket.state_pos,
            drawn: Some(drawn),
            wants_logprobs,
            told,
            ready: VecDeque::new(),
            computed_at: None,
            trail: Trail::new(ticket.state_pos),
            failed: None,
        }
    }

    /// Why there is no more, if the engine failed.
    pub(super) fn failed(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// When the last chunk was done.
    pub(super) fn computed_at(&self) -> Option<Instant> {
        self.computed_at
    }

    /// The receiver has the state of so many bytes.
    pub(super) fn held(&self, bytes: u64) {
        self.trail.held(bytes);
    }

    fn fail(&mut self, error: impl Into<Error>) -> Reason {
        let error = error.into();
        let fault = error.to_string();
        self.failed = Some(error);
        Reason::Source { fault }
    }

    fn tell(&self, event: Event) {
        // a caller that has left cancels by leaving
        let _ = self.told.send(Ok(event));
    }

    fn take(&mut self, event: PrefillEvent) -> Result<(), WrongSize> {
        match event {
            PrefillEvent::Started => {}
            PrefillEvent::Chunk { first_position, tokens, latents, keys, done, total, .. } => {
                let (latents, keys) = (wire_bytes(latents), wire_bytes(keys));
                self.trail.cut();
                self.ready.extend(segment::chunk(&self.layout, first_position, tokens, &latents, &keys)?);
                self.tell(Event::Progress(PrefillProgress { done_tokens: done, total_tokens: total }));
            }
            PrefillEvent::Done { first, state, cached, timings } => {
                self.computed_at = Some(Instant::now());
                self.tell(Event::FirstToken(self.first_token(&first, cached, timings)));
                let latent_bytes = self.ready_bytes();
                self.last(first, state)?;
                let state_bytes = self.ready_bytes() - latent_bytes;
                self.trail.computed(cached, timings.queued.as_secs_f64(), latent_bytes, state_bytes);
            }
        }
        Ok(())
    }

    fn ready_bytes(&self) -> usize {
        self.ready.iter().map(|segment| segment.payload.len()).sum()
    }

    fn first_token(&self, first: &SampledToken, cached: u32, timings: PrefillTimings) -> v1::FirstToken {
        v1::FirstToken {
            token_id: first.id,
            logprobs: self.wants_logprobs.then(|| host::logprobs(first)),
            cached_tokens: cached,
            queue_seconds: timings.queued.as_secs_f64(),
            prefill_seconds: timings.computed.as_secs_f64(),
        }
    }

    fn last(&mut self, first: SampledToken, state: SlotState) -> Result<(), WrongSize> {
        self.ready.extend(segment::recurrent(
            &self.layout,
            0..self.layout.heads,
            &wire_bytes(state.recurrent),
        )?);
        self.ready.extend(segment::tails(&self.layout, 0..self.layout.heads, &wire_bytes(state.tails))?);
        self.ready.extend(segment::index_tails(&self.layout, &wire_bytes(state.index_tail))?);
        self.ready.extend(segment::hidden(&self.layout, &wire_bytes(state.hidden))?);
        let sampling = self.drawn.take().map(|drawn| drawn.state(first, self.state_pos));
        let sampling = sampling.map(|state| Segment { id: SegmentId::Sampling, payload: state.encode() });
        self.ready.extend(sampling);
        Ok(())
    }
}

impl Source for PromptSource {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        loop {
            if let Some(segment) = self.ready.pop_front() {
                return Ok(Some(segment));
            }
            match self.stream.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.fail(error)),
                Some(Ok(event)) => {
                    if self.take(event).is_err() {
                        return Err(self.fail(Error::Internal("the engine's state is not of its own layout")));
                    }
                }
            }
        }
    }
}
