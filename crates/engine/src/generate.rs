use std::time::Instant;

use prefix::Namespace;
use programs::sampling::Sampling;

use crate::command::Piece;
use crate::{
    DecodeEvent, DecodeJob, DecodeStream, DraftCounts, EndReason, EngineHandle, Error, PrefillEvent,
    PrefillJob, PrefillStream, PrefillTimings, Reservation, SampledToken, SlotState,
};

/// A prompt to continue within one process.
#[derive(Clone, Debug)]
pub struct GenerateJob {
    /// Names the request in logs.
    pub request_id: String,
    /// At least one token, at most the context.
    pub prompt: Vec<u32>,
    /// Whose prompts it may share state with.
    pub namespace: Namespace,
    /// How tokens are drawn and how many.
    pub sampling: Sampling,
    /// The model's end tokens; ignored where the sampling says so.
    pub end_tokens: Vec<u32>,
    /// Higher goes first.
    pub priority: i32,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

/// What happens to a prompt and its answer.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerateEvent {
    /// Tokens were drawn.
    Tokens {
        /// Position of the first of them.
        position: u32,
        /// In order, without a gap.
        tokens: Vec<SampledToken>,
        /// Of the steps that drew them.
        drafts: DraftCounts,
    },
    /// No more tokens follow. The last event.
    Ended {
        /// Why.
        reason: EndReason,
        /// Where the prompt's time went.
        prefill: PrefillTimings,
    },
}

/// One request from prompt to end. Dropping it frees everything at the next step.
#[derive(Debug)]
pub struct GenerateStream {
    engine: EngineHandle,
    job: GenerateJob,
    phase: Phase,
    timings: PrefillTimings,
}

/// A prefilled sequence on the host, on its way to the decode side.
#[derive(Debug)]
struct Moving {
    first: SampledToken,
    pieces: Vec<Piece>,
    /// Taken once imported.
    state: Option<SlotState>,
    reservation: Option<Reservation>,
}

#[derive(Debug)]
enum Phase {
    Prefilling { stream: PrefillStream, pieces: Vec<Piece> },
    Moving(Moving),
    Decoding(DecodeStream),
    Over,
}

impl GenerateStream {
    pub(crate) fn begin(engine: EngineHandle, job: GenerateJob) -> Result<Self, Error> {
        if !engine.shared.role.decodes() {
            return Err(Error::WrongRole { phase: "decode" });
        }
        let stream = engine.prefill(PrefillJob {
            request_id: job.request_id.clone(),
            prompt: job.prompt.clone(),
            namespace: job.namespace,
            output_tokens: 0,
            sampling: job.sampling.clone(),
            priority: job.priority,
            deadline: job.deadline,
        })?;
        let phase = Phase::Prefilling { stream, pieces: Vec::new() };
        Ok(Self { engine, job, phase, timings: PrefillTimings::default() })
    }

    /// The next event; none after [`GenerateEvent::Ended`] or an error. May be dropped and called again.
    pub async fn next(&mut self) -> Option<Result<GenerateEvent, Error>> {
        if matches!(self.phase, Phase::Over) {
            return None;
        }
        let event = self.advance().await;
        if matches!(event, Err(_) | Ok(GenerateEvent::Ended { .. })) {
            self.phase = Phase::Over;
        }
        Some(event)
    }

    async fn advance(&mut self) -> Result<GenerateEvent, Error> {
        loop {
            match &mut self.phase {
                Phase::Over => return Err(Error::Stopped),
                Phase::Prefilling { stream, pieces } => {
                    let (first, state) = match stream.next().await.unwrap_or(Err(Error::Stopped))? {
                        PrefillEvent::Started => continue,
                        PrefillEvent::Chunk { first_position, tokens, latents, keys, .. } => {
                            pieces.push(Piece { first: first_position, tokens, latents, keys });
                            continue;
                        }
                        PrefillEvent::Done { first, state, timings, .. } => {
                            self.timings = timings;
                            (first, state)
                        }
                    };
                    let pieces = std::mem::take(pieces);
                    let tokens = vec![first.clone()];
                    let moving = Moving { first, pieces, state: Some(state), reservation: None };
                    self.phase = Phase::Moving(moving);
                    let (position, drafts) = (self.prompt_len(), DraftCounts::default());
                    return Ok(GenerateEvent::Tokens { position, tokens, drafts });
                }
                Phase::Moving(moving) => {
                    moving.settle(&self.engine, &self.job).await?;
                    self.start()?;
                }
                Phase::Decoding(stream) => {
                    return match stream.next().await.unwrap_or(Err(Error::Stopped))? {
                        DecodeEvent::Tokens { position, tokens, drafts } => {
                            Ok(GenerateEvent::Tokens { position, tokens, drafts })
                        }
                        DecodeEvent::Ended { reason } => {
                            Ok(GenerateEvent::Ended { reason, prefill: self.timings })
                        }
                    };
                }
            }
        }
    }

    fn start(&mut self) -> Result<(), Error> {
        let Phase::Moving(moving) = &mut self.phase else { return Ok(()) };
        let Some(reservation) = moving.reservation.take() else { return Ok(()) };
        let first_token = moving.first.id;
        let job = DecodeJob {
            request_id: self.job.request_id.clone(),
            prompt_len: self.prompt_len(),
            prompt_seen: self.job.prompt.clone(),
            output_counts: vec![(first_token, 1)],
            first_token,
            sampling: self.job.sampling.clone(),
            end_tokens: self.job.end_tokens.clone(),
            deadline: self.job.deadline,
        };
        let stream = reservation.start(job).map_err(|refused| refused.error)?;
        self.phase = Phase::Decoding(stream);
        Ok(())
    }

    fn prompt_len(&self) -> u32 {
        u32::try_from(self.job.prompt.len()).unwrap_or(u32::MAX)
    }
}

impl Moving {
    /// Reserves and imports. The prefill's room is free by now: one who holds room never waits for more, so that requests
    /// can not wait for each other in a circle. What an interrupted call had done stays done.
    async fn settle(&mut self, engine: &EngineHandle, job: &GenerateJob) -> Result<(), Error> {
        let prompt = u32::try_from(job.prompt.len()).unwrap_or(u32::MAX);
        if self.reservation.is_none() {
            let most = engine.facts().ladder.context;
            let tokens = prompt.saturating_add(job.sampling.max_tokens.unwrap_or(most)).min(most);
            self.reservation = Some(engine.reserve_by(tokens, job.deadline).await?);
        }
        let Some(reservation) = &self.reservation else { return Ok(()) };
        while let Some(Piece { first, tokens, latents, keys }) = self.pieces.last().cloned() {
            reservation.import_latents(first, tokens, latents, keys).await?;
            self.pieces.pop();
        }
        if let Some(state) = &self.state {
            reservation.import_state(prompt, state.clone()).await?;
            self.state = None;
        }
        Ok(())
    }
}
