//! What the client gets: the first token from prefill, the rest from decode, as text in whole characters.
//!
//! A straight line of awaits, with the state that matters across them in two values: [`Assembly`] (pure) knows what was
//! delivered, [`Decoding`] holds everything that serves the request. The stream owns both, so dropping it frees all.

mod assembly;
mod clock;

use futures::{Stream, StreamExt, stream};
use proto::v1::prefill_response::Event as PrefillEvent;
use proto::v1::run_response::Event as DecodeEvent;
use proto::v1::{
    Ended, FinishReason, FirstToken, GenerateResponse, PrefillResponse, Role, RunResponse, TokenDelta, Usage,
};
use text::Tokenizer;
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::dispatch::{Call, Decoding, Dispatch};
use crate::error::Error;
use assembly::{Assembly, Piece};
use clock::Clock;

/// The answer to one request. Dropping it cancels the request on every worker and gives everything back.
#[derive(Debug)]
pub struct TokenStream {
    id: String,
    prompt_tokens: u32,
    dispatch: Dispatch,
    tokenizer: Tokenizer,
    assembly: Assembly,
    clock: Clock,
    alarm: std::pin::Pin<Box<Sleep>>,
    next_sequence: u64,
    cached_tokens: u32,
    ended: Ended,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Running(Box<Decoding>),
    Over,
}

/// The next thing that happened to a running request.
enum Heard {
    Prefill(Option<Result<PrefillResponse, Status>>),
    Decode(Option<Result<RunResponse, Status>>),
    Alarm,
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
            assembly: Assembly::new(&admitted.request, &tokenizer),
            alarm: Box::pin(tokio::time::sleep_until(clock.alarm_at())),
            dispatch,
            tokenizer,
            clock,
            next_sequence: 0,
            cached_tokens: 0,
            ended: Ended::default(),
            stage: Stage::Running(Box::new(decoding)),
        }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next delta. The last one has `finish`, or is an error; after it there is none.
    pub async fn next(&mut self) -> Option<Result<GenerateResponse, Error>> {
        loop {
            let Stage::Running(decoding) = &mut self.stage else { return None };
            let heard = hear(decoding, self.alarm.as_mut()).await;
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
        let Stage::Running(decoding) = &mut self.stage else { return Ok(Step::Nothing) };
        if now >= self.clock.deadline() {
            return Err(Error::Deadline { stage: "tokens were generated" });
        }
        match heard {
            Heard::Alarm if now < self.clock.alarm_at() => {
                self.alarm.as_mut().reset(self.clock.alarm_at());
                return Ok(Step::Nothing);
            }
            Heard::Alarm => return Err(decoding.stalled(Role::Decode)),
            Heard::Prefill(_) | Heard::Decode(_) => self.clock.heard(now),
        }
        match heard {
            // What became of prefill does not matter once its state is committed.
            Heard::Prefill(None | Some(Err(_))) if self.clock.is_committed() && self.assembly.has_first() => {
                decoding.prefill = Call::over();
                Ok(Step::Nothing)
            }
            Heard::Prefill(Some(Ok(response))) => self.on_prefill(response, now),
            Heard::Prefill(Some(Err(status))) => Err(decoding.worker_error(Role::Prefill, &status)),
            Heard::Prefill(None) => Err(decoding.silent_end(Role::Prefill)),
            Heard::Decode(Some(Ok(response))) => self.on_decode(response, now),
            Heard::Decode(None | Some(Err(_))) if self.assembly.is_complete() => Ok(self.complete()),
            Heard::Decode(Some(Err(status))) => Err(decoding.worker_error(Role::Decode, &status)),
            Heard::Decode(None) => Err(decoding.silent_end(Role::Decode)),
            Heard::Alarm => Ok(Step::Nothing),
        }
    }

    fn on_prefill(&mut self, response: PrefillResponse, now: Instant) -> Result<Step, Error> {
        let Stage::Running(decoding) = &mut self.stage else { return Ok(Step::Nothing) };
        match response.event {
            None => Ok(Step::Nothing),
            Some(PrefillEvent::Progress(progress)) => {
                let left = self.prompt_tokens.saturating_sub(progress.done_tokens);
                decoding.placed.prefill.prompt_left(u64::from(left));
                Ok(Step::Nothing)
            }
            Some(PrefillEvent::HandedOver(_)) if !self.assembly.has_first() => {
                Err(Error::Internal("prefill handed over without a first token".to_owned()))
            }
            Some(PrefillEvent::HandedOver(_)) => {
                decoding.prefill = Call::over();
                Ok(Step::Nothing)
            }
            Some(PrefillEvent::FirstToken(first)) => {
                decoding.placed.prefill.prompt_left(0);
                self.on_first(first, now)
            }
        }
    }

    fn on_first(&mut self, first: FirstToken, now: Instant) -> Result<Step, Error> {
        self.cached_tokens = first.cached_tokens;
        if self.clock.first_token(now, first.queue_seconds, first.prefill_seconds) {
            self.dispatch.metrics().first_token.observe(self.clock.timing(now).first_token);
            self.dispatch.metrics().queue.observe(self.clock.timing(now).queue);
        }
        let piece = self.assembly.first(first.token_id, first.logprobs, &self.tokenizer)?;
        if piece.finish.is_none() && self.assembly.is_complete() {
            return Ok(match self.complete() {
                Step::Last(rest) => Step::Last(piece.and(rest)),
                other => other,
            });
        }
        Ok(show(piece))
    }

    fn on_decode(&mut self, response: RunResponse, now: Instant) -> Result<Step, Error> {
        match response.event {
            None => Ok(Step::Nothing),
            Some(DecodeEvent::Committed(_)) => {
                self.clock.committed(now);
                self.alarm.as_mut().reset(self.clock.alarm_at());
                Ok(Step::Nothing)
            }
            Some(DecodeEvent::Delta(delta)) => {
                let TokenDelta { position, token_ids, logprobs } = delta;
                Ok(show(self.assembly.more(position, &token_ids, logprobs, &self.tokenizer)?))
            }
            Some(DecodeEvent::Ended(ended)) => {
                if let Stage::Running(decoding) = &mut self.stage {
                    decoding.settle();
                    decoding.decode = Call::over();
                }
                self.ended = ended;
                self.assembly.ended(ended.reason());
                // The first token comes over another connection, and may be later.
                Ok(if self.assembly.has_first() { self.complete() } else { Step::Nothing })
            }
        }
    }

    /// Nothing follows: what is still held back, and how it ended.
    fn complete(&mut self) -> Step {
        match self.assembly.close(&self.tokenizer) {
            Ok(piece) => Step::Last(piece),
            Err(error) => {
                tracing::error!(request = %self.id, %error, "the end of the text is lost");
                Step::Last(Piece::end(FinishReason::Stop))
            }
        }
    }

    /// Starts the request again if `error` allows that. What was delivered stays delivered.
    async fn recover(&mut self, error: Error) -> Result<(), Error> {
        let Stage::Running(decoding) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(error);
        };
        let stranded = decoding.strand(error);
        let decoding = self.dispatch.restart(stranded).await?;
        self.clock.restarted(decoding.began);
        self.alarm.as_mut().reset(self.clock.alarm_at());
        self.assembly.restart();
        self.stage = Stage::Running(Box::new(decoding));
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
            drafted_tokens: self.ended.drafted_tokens,
            accepted_tokens: self.ended.accepted_tokens,
        });
        let mut timing = self.clock.timing(Instant::now());
        if let Stage::Running(mut decoding) = std::mem::replace(&mut self.stage, Stage::Over) {
            timing.prefill_worker.clone_from(&decoding.placed.prefill.record.name);
            timing.decode_worker.clone_from(&decoding.placed.decode.record.name);
            timing.migrations = decoding.placed.admitted.tries.failed;
            decoding.placed.admitted.outcome.finished();
        }
        response.timing = Some(timing);
        response
    }
}

async fn hear(decoding: &mut Decoding, alarm: std::pin::Pin<&mut Sleep>) -> Heard {
    tokio::select! {
        biased;
        event = decoding.prefill.next(), if !decoding.prefill.is_over() => Heard::Prefill(event),
        event = decoding.decode.next(), if !decoding.decode.is_over() => Heard::Decode(event),
        () = alarm => Heard::Alarm,
    }
}

fn show(piece: Piece) -> Step {
    match (&piece.finish, piece.is_empty()) {
        (Some(_), _) => Step::Last(piece),
        (None, true) => Step::Nothing,
        (None, false) => Step::Show(piece),
    }
}
