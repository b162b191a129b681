//! Room at a decode worker, given back when it is not used up.

use std::time::Duration;

use process::Drain;
use proto::v1::decode_client::DecodeClient;
use proto::v1::{ReleaseRequest, ReserveRequest, Role, Ticket};
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};
use tonic::Status;
use tonic::transport::Channel;

use super::calls::outgoing;
use super::worker_error;
use crate::error::Error;
use crate::fleet::Placed;

/// How long an answer to a reservation is still waited for when its client has left: room that was granted meanwhile
/// must be given back.
const LATE_ANSWER: Duration = Duration::from_millis(500);
const RELEASE: Duration = Duration::from_secs(2);

/// A ticket that is released on drop, unless decode ended by itself.
#[derive(Debug)]
pub(super) struct Reservation {
    ticket: Ticket,
    release: Option<ReleaseRequest>,
    channel: Channel,
    drain: Drain,
}

impl Reservation {
    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(super) fn settle(&mut self) {
        self.release = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(release) = self.release.take() else { return };
        let mut client = DecodeClient::new(self.channel.clone());
        self.drain.spawn(async move {
            let ticket = release.ticket_id.clone();
            match timeout(RELEASE, client.release(release)).await {
                Ok(Ok(_)) => {}
                Ok(Err(status)) => tracing::debug!(ticket, %status, "not released; its lease will run out"),
                Err(_) => tracing::debug!(ticket, "release not answered; its lease will run out"),
            }
        });
    }
}

/// Asks the decode worker for room. A task of its own waits for the answer, so that a client that leaves meanwhile
/// does not leave room behind.
pub(super) async fn reserve(placed: &Placed, drain: &Drain) -> Result<Reservation, Error> {
    let admitted = &placed.admitted;
    let (answer, mut answered) = oneshot::channel();
    drain.spawn(ask(placed, drain.clone(), answer));
    let late = || Error::Deadline { stage: "waiting for room at a decode worker" };
    let worker_error = |status: &Status| worker_error(placed, Role::Decode, status);
    match timeout_at(admitted.arrival.deadline, &mut answered).await {
        Ok(Ok(reserved)) => reserved.map_err(|status| worker_error(&status)),
        Ok(Err(_)) => Err(worker_error(&Status::unavailable("no answer to a reservation"))),
        Err(_) => Err(late()),
    }
}

fn ask(
    placed: &Placed,
    drain: Drain,
    mut answer: oneshot::Sender<Result<Reservation, Status>>,
) -> impl Future<Output = ()> + Send + 'static {
    let (admitted, record) = (&placed.admitted, &placed.decode.record);
    let message = ReserveRequest {
        request_id: admitted.request.id.clone(),
        attempt: admitted.recovery.attempt(),
        incarnation: record.incarnation.clone(),
        prompt_tokens: admitted.log.prompt_tokens(&admitted.request),
        max_tokens: admitted.log.left(&admitted.request),
        fingerprint: placed.prefill.record.fingerprint.clone(),
        sender_key: placed.prefill.record.sender_key.clone(),
    };
    let release = ReleaseRequest {
        request_id: message.request_id.clone(),
        attempt: message.attempt,
        incarnation: message.incarnation.clone(),
        ticket_id: String::new(),
    };
    let request = outgoing(message, placed);
    let channel = placed.decode.channel.clone();
    async move {
        let mut client = DecodeClient::new(channel.clone());
        let mut call = std::pin::pin!(client.reserve(request));
        let reserved = tokio::select! {
            reserved = &mut call => reserved,
            () = answer.closed() => match timeout(LATE_ANSWER, call).await {
                Ok(reserved) => reserved,
                Err(_) => return,
            },
        };
        let reserved = reserved.and_then(|response| {
            let ticket = response.into_inner().ticket;
            let ticket = ticket.ok_or_else(|| Status::internal("a reservation without a ticket"))?;
            let release = Some(ReleaseRequest { ticket_id: ticket.id.clone(), ..release });
            Ok(Reservation { ticket, release, channel, drain })
        });
        // Nobody there any more: the reservation is dropped here, which releases it.
        let _ = answer.send(reserved);
    }
}
