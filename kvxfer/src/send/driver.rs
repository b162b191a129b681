use std::time::Instant;

use net::{AnyStream, Network};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{SendAction, SendEvent, SendSession};
use crate::ends::Source;
use crate::error::Error;
use crate::frame::{Frame, Hello};
use crate::key::{self, Direction, TransferKey};
use crate::manifest::Manifest;
use crate::meters::{Held, Meters};
use crate::pace::Pace;
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::{Receipt, Ticket};
use crate::wire::{Turn, Wire};

/// Hands one sequence's state to the ticket's owner: connects at once, so that the lease stays alive while the source
/// still computes, and returns after the commit. Cancelling tells the receiver so; dropping the call cuts the connection.
pub async fn send(
    network: &Network,
    ticket: &Ticket,
    source: impl Source,
    pace: Pace,
    meters: &Meters,
    cancel: &CancellationToken,
) -> Result<Receipt, Error> {
    let stream = match connect(network, ticket, pace).await {
        Ok(stream) => stream,
        Err(error) => {
            meters.fault(error.kind());
            return Err(error);
        }
    };
    match send_over(stream, ticket, source, pace, meters, cancel).await {
        Err(Unsent { error, in_doubt: true }) => match connect(network, ticket, pace).await {
            Ok(stream) => send_over(stream, ticket, Nothing, pace, meters, cancel).await.map_err(|_| error),
            Err(_) => Err(error),
        },
        Err(Unsent { error, in_doubt: false }) => Err(error),
        Ok(receipt) => Ok(receipt),
    }
}

/// Why a transfer over one connection failed.
#[derive(Debug)]
pub struct Unsent {
    pub error: Error,
    /// The connection ended between our last word and the receiver's: it may have committed. Asking again under the same
    /// ticket tells.
    pub in_doubt: bool,
}

/// The source of a sender that only asks whether its ticket was committed.
struct Nothing;

impl Source for Nothing {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        Err(Reason::Cancelled)
    }
}

async fn connect(network: &Network, ticket: &Ticket, pace: Pace) -> Result<AnyStream, Error> {
    let unreachable = |fault| Error::Unreachable { endpoint: ticket.endpoint.clone(), fault };
    let connected = timeout(pace.greeting, network.connect(&ticket.endpoint)).await;
    connected.map_err(|late| unreachable(late.into()))?.map_err(unreachable)
}

/// [`send`] over a connection that exists.
pub async fn send_over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    ticket: &Ticket,
    source: impl Source,
    pace: Pace,
    meters: &Meters,
    cancel: &CancellationToken,
) -> Result<Receipt, Unsent> {
    let started = now();
    let manifest = Manifest::new(ticket.layout, ticket.state_pos);
    let key = TransferKey::derive(&ticket.secret, &ticket.id, ticket.state_pos, &ticket.incarnation);
    let mut wire = Wire::new(stream, Direction::ToReceiver);
    wire.push(Frame::Hello(hello(ticket)));
    wire.trust(&key, manifest);
    let mut sending = Sending {
        session: SendSession::new(manifest, ticket.incarnation, key, pace, started),
        wire,
        held: meters.hold(),
        first_segment: None,
    };
    let (end, in_doubt) = sending.run(source, cancel).await;
    let took = now() - sending.first_segment.unwrap_or(started);
    meters.ended(&end, took);
    let Sending { wire, held, .. } = sending;
    drop(held);
    if end.is_err() {
        wire.close(pace.heartbeat).await;
    }
    end.map_err(|error| Unsent { error, in_doubt })
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn hello(ticket: &Ticket) -> Hello {
    let mut hello = Hello {
        ticket: ticket.id,
        incarnation: ticket.incarnation,
        state_pos: ticket.state_pos,
        layout: ticket.layout,
        proof: [0; 32],
    };
    hello.proof = key::prove(&ticket.secret, &hello);
    hello
}

struct Sending<S> {
    session: SendSession,
    wire: Wire<S>,
    held: Held,
    first_segment: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sending<S> {
    /// Feeds the session until it finishes; says also whether the receiver may have committed nevertheless.
    async fn run(
        &mut self,
        mut source: impl Source,
        cancel: &CancellationToken,
    ) -> (Result<Receipt, Error>, bool) {
        let mut actions = Vec::new();
        loop {
            let wants = self.session.wants_segment();
            let deadline = self.session.deadline().into();
            let event = tokio::select! {
                turn = self.wire.turn(true) => match turn {
                    Ok(Turn::Wrote) => continue,
                    Ok(Turn::Read) => SendEvent::Heard,
                    Ok(Turn::Ended) => SendEvent::Closed(None),
                    Err(fault) => SendEvent::Closed(Some(fault)),
                },
                next = source.next(), if wants => match next {
                    Ok(Some(segment)) => {
                        self.first_segment.get_or_insert_with(now);
                        SendEvent::Segment(segment)
                    }
                    Ok(None) => SendEvent::SourceEnded,
                    Err(reason) => SendEvent::GiveUp(reason),
                },
                () = sleep_until(deadline) => SendEvent::Tick,
                () = cancel.cancelled() => SendEvent::GiveUp(Reason::Cancelled),
            };
            let heard = matches!(event, SendEvent::Heard);
            let in_doubt = matches!(event, SendEvent::Closed(_)) && self.session.in_doubt();
            self.session.on(event, now(), &mut actions);
            if heard {
                self.frames(&mut actions);
            }
            for action in actions.drain(..) {
                match action {
                    SendAction::Write(frame) => self.wire.push(frame),
                    SendAction::Finish(end) => return (end, in_doubt),
                }
            }
            self.held.stage(self.session.staged());
        }
    }

    fn frames(&mut self, actions: &mut Vec<SendAction>) {
        loop {
            let event = match self.wire.frame() {
                Ok(Some(frame)) => SendEvent::Frame(frame),
                Ok(None) => return,
                Err(fault) => SendEvent::GiveUp(Reason::Protocol { fault: fault.to_string() }),
            };
            let last = matches!(event, SendEvent::GiveUp(_));
            self.session.on(event, now(), actions);
            if last {
                return;
            }
        }
    }
}
