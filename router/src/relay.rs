//! What the client gets: the first token from prefill, the rest from decode, as text in whole characters.
//!
//! A straight line of awaits, with the state that matters across them in two values: [`Assembly`] (pure) knows what was
//! delivered, [`Serving`] has everything that serves the request. The stream owns both, so dropping it frees all.

mod assembly;
mod clock;
mod held;
mod recovering;

use futures::{Stream, stream};
use proto::v1::prefill_response::Event as PrefillEvent;
use proto::v1::run_response::Event as DecodeEvent;
use proto::v1::{FinishReason, FirstToken, GenerateResponse, PrefillResponse, Role, RunResponse, Usage};
use text::{ReplyStyle, Tokenizer};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::dispatch::{Call, Decoding, Dispatch};
use crate::error::Error;
use crate::status::Story;
use assembly::{Assembly, Piece};
use clock::{Clock, Silence};
use held::{Heard, Held, LATE};
use recovering::Recovering;

/// The answer to one request. Dropping it cancels the request on every worker and gives everything back.
#[derive(Debug)]
pub struct TokenStream {
    id: String,
    prompt_tokens: u32,
    dispatch: Dispatch,
    tokenizer: Tokenizer,
    reply: ReplyStyle,
    assembly: Assembly,
    clock: Clock,
    alarm: std::pin::Pin<Box<Sleep>>,
    next_sequence: u64,
    cached_tokens: u32,
    story: Story,
    serving: Serving,
}

/// Everything that serves the request.
#[derive(Debug)]
enum Serving {
    Running(Held),
    /// Workers failed it, others are being found.
    Recovering(Recovering),
    Over,
}

/// What it means for the client.
enum Step {
    Nothing,
    Show(Piece),
    Last(Piece),
}

impl TokenStream {
    pub(crate) fn new(decoding: Decoding, dispatch: Dispatch, tokenizer: Tokenizer) -> Self {
        let admitted = &decoding.placed.admitted;
        let clock = Clock::new(&admitted.arrival, decoding.began);
        Self {
            id: admitted.request.id.clone(),
            prompt_tokens: admitted.request.prompt_tokens(),
            reply: admitted.request.reply.clone(),
            assembly: Assembly::new(&admitted.request, &tokenizer),
            alarm: Box::pin(tokio::time::sleep_until(clock.alarm_after(decoding.began))),
            dispatch,
            tokenizer,
            clock,
            next_sequence: 0,
            cached_tokens: 0,
            story: decoding.placed.story().clone(),
            serving: Serving::Running(Held::new(decoding)),
        }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How the text is to be read.
    pub fn reply(&self) -> &ReplyStyle {
        &self.reply
    }

    /// The next delta. The last one has `finish`, or is an error; after it there is none.
    pub async fn next(&mut self) -> Option<Result<GenerateResponse, Error>> {
        loop {
            let step = match &mut self.serving {
                Serving::Over => return None,
                Serving::Recovering(recovering) => {
                    let held = recovering.done().await;
                    held.and_then(|held| self.resume(held))
                }
                Serving::Running(held) => {
                    let heard = held.hear(self.alarm.as_mut()).await;
                    let now = Instant::now();
                    self.on(heard, now).or_else(|error| self.recover(error, now))
                }
            };
            match step {
                Ok(Step::Nothing) => {}
                Ok(Step::Show(piece)) => return Some(Ok(self.delta(piece))),
                Ok(Step::Last(piece)) => return Some(Ok(self.last(piece))),
                Err(error) => {
                    self.serving = Serving::Over;
                    return Some(Err(error));
                }
            }
        }
    }

    /// The same as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<GenerateResponse, Error>> + Send + 'static {
        stream::unfold(Box::new(self), |mut tokens| async move {
            tokens.next().await.map(|delta| (delta, tokens))
        })
    }

    fn on(&mut self, heard: Heard, now: Instant) -> Result<Step, Error> {
        if now >= self.clock.deadline() {
            return Err(LATE);
        }
        match heard {
            Heard::Alarm => self.on_alarm(now),
            Heard::Prefill(event) => {
                self.clock.heard(now);
                self.on_prefill(event, now)
            }
            Heard::Decode(event) => {
                self.clock.heard(now);
                self.on_decode(event, now)
            }
        }
    }

    fn on_alarm(&mut self, now: Instant) -> Result<Step, Error> {
        self.alarm.as_mut().reset(self.clock.alarm_after(now));
        let lost = match self.clock.silence(now) {
            Silence::Short => None,
            Silence::Long => self.with(|decoding| decoding.who_left(self.dispatch.fleet()))?,
            Silence::Stall => Some(Role::Decode),
        };
        match lost {
            Some(role) => Err(self.with(|decoding| decoding.stalled(role))?),
            None => Ok(Step::Nothing),
        }
    }

    fn on_prefill(
        &mut self,
        event: Option<Result<PrefillResponse, Status>>,
        now: Instant,
    ) -> Result<Step, Error> {
        let response = match event {
            Some(Ok(response)) => response,
            // What became of prefill does not matter once its state is committed.
            None | Some(Err(_)) if self.clock.is_committed() && self.assembly.has_first() => {
                self.with(|decoding| decoding.prefill = Call::over())?;
                return Ok(Step::Nothing);
            }
            Some(Err(status)) => {
                return Err(self.with(|decoding| decoding.worker_error(Role::Prefill, &status))?);
            }
            None => return Err(self.with(|decoding| decoding.silent_end(Role::Prefill))?),
        };
        match response.event {
            None => Ok(Step::Nothing),
            Some(PrefillEvent::Progress(progress)) => {
                let left = progress.total_tokens.saturating_sub(progress.done_tokens);
                self.with(|decoding| decoding.placed.prefill.prompt_left(left.into()))?;
                Ok(Step::Nothing)
            }
            Some(PrefillEvent::HandedOver(_)) if !self.assembly.has_first() => {
                Err(Error::Internal("prefill handed over without a first token".to_owned()))
            }
            Some(PrefillEvent::HandedOver(_)) => {
                self.with(|decoding| decoding.prefill = Call::over())?;
                Ok(Step::Nothing)
            }
            Some(PrefillEvent::FirstToken(first)) => self.on_first(first, now),
        }
    }

    fn on_first(&mut self, first: FirstToken, now: Instant) -> Result<Step, Error> {
        self.with(|decoding| decoding.placed.prefill.prompt_left(0))?;
        if self.assembly.output().is_empty() {
            self.cached_tokens = first.cached_tokens;
        }
        if self.clock.first_token(now, first.queue_seconds, first.prefill_seconds) {
            let timing = self.clock.timing(now);
            self.dispatch.metrics().first_token.observe(timing.first_token);
            self.dispatch.metrics().queue.observe(timing.queue);
            self.story.first_token(self.cached_tokens, &timing);
        }
        let piece = self.assembly.first(first.token_id, first.logprobs, &self.tokenizer)?;
        if piece.finish.is_none() && self.assembly.is_complete() {
            return Ok(Step::Last(piece.and(self.complete())));
        }
        Ok(show(piece))
    }

    fn on_decode(&mut self, event: Option<Result<RunResponse, Status>>, now: Instant) -> Result<Step, Error> {
        let response = match event {
            Some(Ok(response)) => response,
            Some(Err(status)) => {
                return Err(self.with(|decoding| decoding.worker_error(Role::Decode, &status))?);
            }
            None => return Err(self.with(|decoding| decoding.silent_end(Role::Decode))?),
        };
        match response.event {
            None => Ok(Step::Nothing),
            Some(DecodeEvent::Committed(_)) => {
                self.clock.committed(now);
                self.story.committed(&self.clock.timing(now));
                Ok(Step::Nothing)
            }
            Some(DecodeEvent::Delta(delta)) => Ok(show(self.assembly.more(delta, &self.tokenizer)?)),
            Some(DecodeEvent::Ended(ended)) => {
                self.with(|decoding| {
                    decoding.settle();
                    decoding.decode = Call::over();
                })?;
                self.assembly.ended(ended.reason());
                // The first token comes over another connection, and may be later.
                Ok(if self.assembly.has_first() { Step::Last(self.complete()) } else { Step::Nothing })
            }
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Decoding) -> T) -> Result<T, Error> {
        match &self.serving {
            Serving::Running(held) => held.with(look),
            Serving::Recovering(_) | Serving::Over => Err(LATE),
        }
    }

    /// Nothing follows: what is still held back, and how it ended.
    fn complete(&mut self) -> Piece {
        self.assembly.close(&self.tokenizer).unwrap_or_else(|error| {
            tracing::error!(request = %self.id, %error, "the end of the text is lost");
            Piece::end(FinishReason::Stop)
        })
    }

    /// Goes on elsewhere after `error`, if that can be. What was delivered stays delivered.
    fn recover(&mut self, error: Error, now: Instant) -> Result<Step, Error> {
        if error != LATE && self.assembly.is_over() {
            // All tokens are there; that a worker failed before it said so does not matter.
            return Ok(Step::Last(self.complete()));
        }
        let decoding = self.take_held().ok_or_else(|| error.clone())?;
        let stranded = decoding.strand(error, self.assembly.output());
        self.assembly.restart();
        self.clock.interrupted(now);
        self.serving = Serving::Recovering(Recovering::begin(stranded, self.dispatch.clone()));
        Ok(Step::Nothing)
    }

    /// Other workers have it.
    fn resume(&mut self, held: Held) -> Result<Step, Error> {
        let began = held.with(|decoding| decoding.began)?;
        self.clock.restarted(began);
        self.alarm.as_mut().reset(self.clock.alarm_after(began));
        self.serving = Serving::Running(held);
        Ok(Step::Nothing)
    }

    fn take_held(&mut self) -> Option<Box<Decoding>> {
        match std::mem::replace(&mut self.serving, Serving::Over) {
            Serving::Running(held) => held.take(),
            Serving::Recovering(_) | Serving::Over => None,
        }
    }

    fn delta(&mut self, piece: Piece) -> GenerateResponse {
        if let Some(gap) = self.clock.delivered(Instant::now()) {
            self.dispatch.metrics().inter_token.observe(gap.as_secs_f64());
        }
        if let Some(pause) = self.clock.pause(Instant::now()) {
            self.dispatch.metrics().pause.observe(pause.as_secs_f64());
        }
        // A request that is being recovered delivers nothing.
        let _ = self.with(|decoding| decoding.placed.admitted.used(piece.token_ids.len()));
        self.story.drawn(self.assembly.tokens());
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        GenerateResponse {
            request_id: self.id.clone(),
            sequence,
            token_ids: piece.token_ids,
            text: piece.text,
            logprobs: piece.logprobs,
            finish: piece.finish,
            usage: None,
            timing: None,
        }
    }

    fn last(&mut self, piece: Piece) -> GenerateResponse {
        let mut response = self.delta(piece);
        response.usage = Some(Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.assembly.tokens(),
            cached_tokens: self.cached_tokens,
            drafted_tokens: self.assembly.drafts().drafted,
            accepted_tokens: self.assembly.drafts().accepted,
        });
        let mut timing = self.clock.timing(Instant::now());
        if let Some(mut decoding) = self.take_held() {
            timing.prefill_worker.clone_from(&decoding.placed.prefill.record.name);
            timing.decode_worker.clone_from(&decoding.placed.decode.record.name);
            timing.migrations = decoding.placed.admitted.recovery.migrations();
            decoding.placed.admitted.outcome.finished();
        }
        response.timing = Some(timing);
        response
    }
}

fn show(piece: Piece) -> Step {
    match (&piece.finish, piece.is_empty()) {
        (Some(_), _) => Step::Last(piece),
        (None, true) => Step::Nothing,
        (None, false) => Step::Show(piece),
    }
}
