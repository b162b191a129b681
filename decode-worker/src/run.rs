use engine::{DecodeEvent, DecodeJob, DecodeStream, EndReason};
use futures::{Stream, stream};
use kvxfer::Receipt;
use programs::sampling::Sampling;
use proto::v1::run_response::Event;
use proto::v1::{self, Committed, Ended, RunResponse, TokenDelta};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::book::Attached;
use crate::error::{Error, status};
use crate::room::Filled;

/// What the router wants of a ticket's sequence.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request_id: String,
    pub(crate) sampling: Sampling,
    pub(crate) end_tokens: Vec<u32>,
    pub(crate) deadline: Option<Instant>,
}

/// Where an answer stands. Dropping any of these gives back all that its ticket holds.
enum Answer {
    /// For the commit.
    Waiting {
        attached: Attached,
        asked: Asked,
    },
    Decoding(Running),
    Over,
}

struct Running {
    stream: DecodeStream,
    wants_logprobs: bool,
    /// From the commit to the answer's end.
    span: Span,
    /// Tokens; signed, as collectors take numbers.
    drawn: i64,
    /// Ends the ticket when the answer does.
    _attached: Attached,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.span.record("tokens", self.drawn);
    }
}

/// The events of one answer, from the commit to the end or an error.
pub(crate) fn answer(
    attached: Attached,
    asked: Asked,
    span: Span,
) -> impl Stream<Item = Result<RunResponse, Status>> + Send {
    let waiting = Answer::Waiting { attached, asked };
    stream::unfold(waiting, move |answer| next(answer).instrument(span.clone()))
}

async fn next(answer: Answer) -> Option<(Result<RunResponse, Status>, Answer)> {
    let stepped = match answer {
        Answer::Waiting { attached, asked } => begin(attached, asked).await,
        Answer::Decoding(running) => running.next().await,
        Answer::Over => return None,
    };
    Some(match stepped {
        Ok((event, answer)) => (Ok(RunResponse { event: Some(event) }), answer),
        Err(error) => (Err(status(&error)), Answer::Over),
    })
}

async fn begin(attached: Attached, asked: Asked) -> Result<(Event, Answer), Error> {
    let handing = attached.handed().instrument(info_span!("receive"));
    let handed = match asked.deadline {
        Some(deadline) => timeout_at(deadline, handing).await.map_err(|_| Error::Deadline)?,
        None => handing.await,
    };
    let (filled, Receipt { bytes, .. }) = handed?;
    let transfer_seconds = filled.took.as_secs_f64();
    let wants_logprobs = asked.sampling.logprobs.is_some();
    let stream = start(filled, asked)?;
    tracing::debug!(bytes, transfer_seconds, "committed");
    let span = info_span!("decode", tokens = Empty);
    let running = Running { stream, wants_logprobs, span, drawn: 0, _attached: attached };
    Ok((Event::Committed(Committed { transfer_seconds, bytes }), Answer::Decoding(running)))
}

fn start(filled: Filled, asked: Asked) -> Result<DecodeStream, Error> {
    let Filled { reservation, sampling, state_pos, .. } = filled;
    // with another seed the tokens to come would not continue the first one
    if sampling.seed != asked.sampling.seed {
        return Err(Error::OtherRequest { field: "sampling.seed" });
    }
    let job = DecodeJob {
        request_id: asked.request_id,
        prompt_len: state_pos,
        prompt_seen: sampling.prompt_ids,
        output_counts: sampling.output_counts,
        first_token: sampling.first.id,
        sampling: asked.sampling,
        end_tokens: asked.end_tokens,
        deadline: asked.deadline.map(Instant::into_std),
    };
    reservation.start(job).map_err(|refused| Error::Engine(refused.error))
}

impl Running {
    async fn next(mut self) -> Result<(Event, Answer), Error> {
        match self.stream.next().await.transpose()? {
            Some(DecodeEvent::Tokens { position, tokens, drafts }) => {
                let logprobs = match self.wants_logprobs {
                    true => tokens.iter().map(host::logprobs).collect(),
                    false => Vec::new(),
                };
                self.drawn += tokens.len() as i64;
                let token_ids = tokens.iter().map(|token| token.id).collect();
                let (drafted_tokens, accepted_tokens) = (drafts.verified, drafts.accepted);
                let delta = TokenDelta { position, token_ids, logprobs, drafted_tokens, accepted_tokens };
                Ok((Event::Delta(delta), Answer::Decoding(self)))
            }
            Some(DecodeEvent::Ended { reason }) => {
                let reason = match reason {
                    EndReason::EndToken(_) => v1::EndReason::EndToken,
                    EndReason::Length => v1::EndReason::Length,
                };
                Ok((Event::Ended(Ended { reason: reason.into() }), Answer::Over))
            }
            None => Err(Error::Internal("the answer ended without an end")),
        }
    }
}
