//! What the client gets: the first token from prefill, the rest from decode, as text in whole characters.
//!
//! A straight line of awaits, with the state that matters across them in two values: [`Assembly`] (pure) knows what was
//! delivered, [`Held`] has everything that serves the request. The stream owns both, so dropping it frees all.

mod assembly;
mod clock;
mod held;

use futures::{Stream, stream};
use proto::v1::prefill_response::Event as PrefillEvent;
use proto::v1::run_response::Event as DecodeEvent;
use proto::v1::{
    FinishReason, FirstToken, GenerateResponse, PrefillResponse, Role, RunResponse, TokenDelta, Usage,
};
use text::{ReplyStyle, Tokenizer};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::dispatch::{Call, Decoding, Dispatch};
use crate::error::Error;
use assembly::{Assembly, Piece};
use clock::Clock;
use held::{Heard, Held, LATE};

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
    /// Of the start that answers.
    drafted_tokens: u32,
    accepted_tokens: u32,
    /// Nothing once the request is over.
    held: Option<Held>,
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
            alarm: Box::pin(tokio::time::sleep_until(clock.alarm_at())),
            dispatch,
            tokenizer,
            clock,
            next_sequence: 0,
            cached_tokens: 0,
            drafted_tokens: 0,
            accepted_tokens: 0,
            held: Some(Held::new(decoding)),
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
            let heard = self.held.as_ref()?.hear(self.alarm.as_mut()).await;
            match self.on(heard, Instant::now()) {
                Ok(Step::Nothing) => {}
                Ok(Step::Show(piece)) => return Some(Ok(self.delta(piece))),
                Ok(Step::Last(piece)) => return Some(Ok(self.last(piece))),
                Err(error) => {
                    if let Err(error) = self.recover(error).await {
                        return Some(Err(error));
                    }
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
        if now >= self.clock.alarm_at() {
            return Err(self.with(|decoding| decoding.stalled(Role::Decode))?);
        }
        self.alarm.as_mut().reset(self.clock.alarm_at());
        Ok(Step::Nothing)
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
                let left = self.prompt_tokens.saturating_sub(progress.done_tokens);
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
        self.cached_tokens = first.cached_tokens;
        if self.clock.first_token(now, first.queue_seconds, first.prefill_seconds) {
            let timing = self.clock.timing(now);
            self.dispatch.metrics().first_token.observe(timing.first_token);
            self.dispatch.metrics().queue.observe(timing.queue);
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
            None | Some(Err(_)) if self.assembly.is_complete() => return Ok(Step::Last(self.complete())),
            Some(Err(status)) => {
                return Err(self.with(|decoding| decoding.worker_error(Role::Decode, &status))?);
            }
            None => return Err(self.with(|decoding| decoding.silent_end(Role::Decode))?),
        };
        match response.event {
            None => Ok(Step::Nothing),
            Some(DecodeEvent::Committed(_)) => {
                self.clock.committed(now);
                self.alarm.as_mut().reset(self.clock.alarm_at());
                Ok(Step::Nothing)
            }
            Some(DecodeEvent::Delta(delta)) => {
                let TokenDelta { position, token_ids, logprobs, drafted_tokens, accepted_tokens } = delta;
                self.drafted_tokens = self.drafted_tokens.saturating_add(drafted_tokens);
                self.accepted_tokens = self.accepted_tokens.saturating_add(accepted_tokens);
                Ok(show(self.assembly.more(position, &token_ids, logprobs, &self.tokenizer)?))
            }
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
        self.held.as_ref().ok_or(LATE)?.with(look)
    }

    /// Nothing follows: what is still held back, and how it ended.
    fn complete(&mut self) -> Piece {
        self.assembly.close(&self.tokenizer).unwrap_or_else(|error| {
            tracing::error!(request = %self.id, %error, "the end of the text is lost");
            Piece::end(FinishReason::Stop)
        })
    }

    /// Starts the request again if `error` allows that. What was delivered stays delivered.
    async fn recover(&mut self, error: Error) -> Result<(), Error> {
        let Some(decoding) = self.held.take().and_then(Held::take) else { return Err(error) };
        let stranded = decoding.strand(error);
        let decoding = self.dispatch.restart(stranded).await?;
        self.clock.restarted(decoding.began);
        self.alarm.as_mut().reset(self.clock.alarm_at());
        self.assembly.restart();
        (self.drafted_tokens, self.accepted_tokens) = (0, 0);
        self.held = Some(Held::new(decoding));
        Ok(())
    }

    fn delta(&mut self, piece: Piece) -> GenerateResponse {
        if let Some(gap) = self.clock.delivered(Instant::now()) {
            self.dispatch.metrics().inter_token.observe(gap.as_secs_f64());
        }
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
            drafted_tokens: self.drafted_tokens,
            accepted_tokens: self.accepted_tokens,
        });
        let mut timing = self.clock.timing(Instant::now());
        if let Some(mut decoding) = self.held.take().and_then(Held::take) {
            timing.prefill_worker.clone_from(&decoding.placed.prefill.record.name);
            timing.decode_worker.clone_from(&decoding.placed.decode.record.name);
            timing.migrations = decoding.placed.admitted.tries.failed;
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
