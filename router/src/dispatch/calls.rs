//! The two calls of a request, as streams that connect when first polled.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{FutureExt, Stream, StreamExt, TryFutureExt, TryStreamExt, stream::BoxStream};
use proto::MESSAGE_LIMIT;
use proto::v1::decode_client::DecodeClient;
use proto::v1::prefill_client::PrefillClient;
use proto::v1::{PrefillRequest, PrefillResponse, RunRequest, RunResponse, Ticket};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::fleet::Placed;

/// A running call; dropping it cancels it.
pub(crate) struct Call<T>(Option<BoxStream<'static, Result<T, Status>>>);

impl<T> Call<T> {
    /// No call any more.
    pub(crate) fn over() -> Self {
        Self(None)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

impl<T> Stream for Call<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            Some(stream) => stream.poll_next_unpin(context),
            None => Poll::Ready(None),
        }
    }
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

/// `message` with the request's remaining time and its attempt's trace.
pub(super) fn outgoing<T>(message: T, placed: &Placed) -> Request<T> {
    let mut request = Request::new(message);
    let deadline = placed.admitted.arrival.deadline;
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    telemetry::propagate::into_metadata(&placed.span, request.metadata_mut());
    request
}

pub(super) fn prefill(placed: &Placed, ticket: &Ticket) -> Call<PrefillResponse> {
    let (request, log) = (&placed.admitted.request, &placed.admitted.log);
    let message = PrefillRequest {
        request_id: request.id.clone(),
        attempt: placed.admitted.recovery.attempt(),
        incarnation: placed.prefill.record.incarnation.clone(),
        prompt_ids: log.prompt(request),
        output_tokens: log.len(),
        sampling: Some(log.sampling(request)),
        ticket: Some(ticket.clone()),
        priority: request.priority,
        tenant: request.tenant.clone(),
        cache_salt: request.cache_salt.clone(),
    };
    let message = outgoing(message, placed);
    let mut client = PrefillClient::new(placed.prefill.channel.clone())
        .max_encoding_message_size(MESSAGE_LIMIT)
        .max_decoding_message_size(MESSAGE_LIMIT);
    let call = async move { client.run(message).await };
    Call(Some(call.map_ok(Response::into_inner).into_stream().try_flatten().boxed()))
}

pub(super) fn decode(placed: &Placed, ticket: &Ticket) -> Call<RunResponse> {
    let (request, log) = (&placed.admitted.request, &placed.admitted.log);
    let message = RunRequest {
        request_id: request.id.clone(),
        attempt: placed.admitted.recovery.attempt(),
        incarnation: placed.decode.record.incarnation.clone(),
        ticket_id: ticket.id.clone(),
        ticket_secret: ticket.secret.clone(),
        sampling: Some(log.sampling(request)),
        end_token_ids: request.end_tokens.clone(),
    };
    let message = outgoing(message, placed);
    let mut client = DecodeClient::new(placed.decode.channel.clone())
        .max_encoding_message_size(MESSAGE_LIMIT)
        .max_decoding_message_size(MESSAGE_LIMIT);
    let call = async move { client.run(message).await };
    Call(Some(call.map_ok(Response::into_inner).into_stream().try_flatten().boxed()))
}
