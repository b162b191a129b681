use tracing::field::Empty;
use tracing::{Span, info_span};

/// A number as collectors take it: they have no unsigned ones, and would be told text.
fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// What a trace shows of a hand-over, beneath the call's span: `prefill`, up to the last chunk's end; `transfer`, from the first
/// segment to the verdict; and `tail`, what of the transfer was still to go when prefill ended.
#[derive(Debug)]
pub(super) struct Trail {
    call: Span,
    prefill: Option<Span>,
    transfer: Option<Span>,
    tail: Option<Span>,
}

impl Trail {
    /// Begins now, beneath the current span.
    pub(super) fn new(tokens: u32) -> Trail {
        let call = Span::current();
        let prefill =
            info_span!("prefill", tokens = whole(tokens), cached_tokens = Empty, queue_seconds = Empty);
        Trail { call, prefill: Some(prefill), transfer: None, tail: None }
    }

    /// There is something to send.
    pub(super) fn cut(&mut self) {
        let call = &self.call;
        self.transfer.get_or_insert_with(|| info_span!(parent: call, "transfer", bytes = Empty));
    }

    /// The last chunk is done; so many bytes of latents and index keys have not been taken to be sent, and so many of the state
    /// could not have left before.
    pub(super) fn computed(
        &mut self,
        cached: u32,
        queue_seconds: f64,
        latent_bytes: usize,
        state_bytes: usize,
    ) {
        if let Some(prefill) = self.prefill.take() {
            prefill.record("cached_tokens", whole(cached)).record("queue_seconds", queue_seconds);
        }
        let transfer = self.transfer.as_ref().unwrap_or(&self.call);
        self.tail = Some(
            info_span!(parent: transfer, "tail", latent_bytes = whole(latent_bytes), state_bytes = whole(state_bytes)),
        );
    }

    /// The receiver has all of it.
    pub(super) fn held(&self, bytes: u64) {
        if let Some(transfer) = &self.transfer {
            transfer.record("bytes", whole(bytes));
        }
    }
}
