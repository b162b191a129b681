use std::sync::Arc;

use engine::{PrefillJob, PrefillStream, SampledToken, output_counts};
use futures::Stream;
use kvxfer::{FirstToken, Incarnation, Receipt, SamplingState, Sender, Ticket, Verdict};
use process::Random;
use proto::v1::prefill_response::Event;
use proto::v1::{HandedOver, PrefillResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use crate::error::{Error, status};

mod source;
mod trail;

use source::PromptSource;

/// A queued prompt and the ticket its state goes to.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) stream: PrefillStream,
    pub(crate) ticket: Ticket,
    pub(crate) drawn: Drawn,
    pub(crate) wants_logprobs: bool,
}

/// What the receiver must know of a prompt to go on drawing as this side would.
#[derive(Debug)]
pub(crate) struct Drawn {
    seed: u64,
    /// What was given, distinct and ascending.
    prompt_ids: Vec<u32>,
    /// What was drawn before this prompt was computed.
    output: Vec<u32>,
}

impl Drawn {
    pub(crate) fn of(job: &PrefillJob) -> Drawn {
        let (given, output) = job.parts();
        let mut prompt_ids = given.to_vec();
        prompt_ids.sort_unstable();
        prompt_ids.dedup();
        Drawn { seed: job.sampling.seed, prompt_ids, output: output.to_vec() }
    }

    /// Where sampling stands once `first` is drawn, at `position`.
    fn state(mut self, first: SampledToken, position: u32) -> SamplingState {
        self.output.push(first.id);
        SamplingState {
            seed: self.seed,
            position,
            output_counts: output_counts(&self.output),
            first: FirstToken { id: first.id, logprob: first.logprob, top: first.top },
            prompt_ids: self.prompt_ids,
        }
    }
}

/// What hand-overs are made with.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) sender: Arc<Sender>,
    pub(crate) random: Random,
}

/// What happens to a prompt, for its caller. Unbounded: a prompt has few events, and a caller that does not read must not
/// hold up the transfer.
pub(crate) type Events = mpsc::UnboundedSender<Result<Event, Error>>;

/// Computes and hands over: the task that does it, and what the caller hears of it. Dropping what the caller hears cancels
/// the prompt and tells the receiver.
pub(crate) fn events(
    handover: Handover,
    means: Means,
) -> (impl Future<Output = ()> + Send, impl Stream<Item = Result<PrefillResponse, Status>> + Send) {
    let (told, heard) = mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let caller = Caller { heard: Some(heard), _cancels: cancel.clone().drop_guard() };
    (run(handover, means, cancel, told), futures::stream::unfold(caller, Caller::next))
}

async fn run(handover: Handover, means: Means, cancel: CancellationToken, told: Events) {
    let Means { sender, random } = means;
    let attempt = Incarnation(random.bytes());
    let ticket = handover.ticket.clone();
    let mut source = PromptSource::new(handover, told.clone());
    let verdict = sender.send(&ticket, attempt, &mut source, &cancel).await;
    let last = match (verdict, source.failed()) {
        (Verdict::Held(receipt), _) => {
            source.held(receipt.bytes);
            Ok(handed_over(receipt, source.computed_at()))
        }
        (Verdict::Unknown(error), _) => Err(Error::InDoubt(error)),
        // the engine's own word says more than that the source failed
        (Verdict::Revoked(_), Some(error)) => Err(error),
        (Verdict::Revoked(error), None) => Err(Error::Transfer(error)),
    };
    // nobody to tell: the caller has left, which is why it was cancelled
    let _ = told.send(last);
}

fn handed_over(receipt: Receipt, computed_at: Option<Instant>) -> Event {
    let transfer_seconds = computed_at.map_or(0.0, |at| at.elapsed().as_secs_f64());
    Event::HandedOver(HandedOver { transfer_seconds, bytes: receipt.bytes })
}

/// The caller's end; `heard` is gone after the last event.
struct Caller {
    heard: Option<mpsc::UnboundedReceiver<Result<Event, Error>>>,
    _cancels: DropGuard,
}

impl Caller {
    async fn next(mut self) -> Option<(Result<PrefillResponse, Status>, Caller)> {
        let event = self.heard.as_mut()?.recv().await;
        let event = event.unwrap_or(Err(Error::Internal("the hand-over ended without an end")));
        if !matches!(event, Ok(Event::Progress(_) | Event::FirstToken(_))) {
            self.heard = None;
        }
        let response = event.map(|event| PrefillResponse { event: Some(event) });
        Some((response.map_err(|error| status(&error)), self))
    }
}

#[cfg(test)]
mod tests;
