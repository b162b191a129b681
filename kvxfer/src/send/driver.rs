use std::io;
use std::sync::Arc;
use std::time::Instant;

use futures::stream::{FuturesUnordered, StreamExt};
use net::{AnyStream, Network, Traffic};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::kept::Kept;
use super::{SendAction, SendEvent, SendSession};
use crate::awake::Awake;
use crate::ends::Source;
use crate::error::Error;
use crate::frame::{F32_DENSE, Frame, Hello};
use crate::key::{self, Direction, TransferKey};
use crate::landing::Landing;
use crate::local::{Lent, Offer};
use crate::manifest::Manifest;
use crate::meters::{Held, Meters};
use crate::pace::Pace;
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::{Incarnation, LinkId, Ticket};
use crate::verdict::Verdict;
use crate::wire::{Stream, Turn, Wire, Wires};

/// What the transfers of one process are sent with. Connections are kept from one to the next.
#[derive(Debug)]
pub struct Sender {
    network: Network,
    pace: Pace,
    meters: Meters,
    kept: Arc<Kept>,
    /// Receivers on this host may read payloads from memory.
    lends: bool,
}

impl Sender {
    pub fn new(network: Network, pace: Pace, meters: Meters) -> Sender {
        Sender { network, pace, meters, kept: Arc::default(), lends: false }
    }

    /// Lets receivers that run on the same host, and can, read payloads from this process's memory.
    #[must_use]
    pub fn lending(self, lends: bool) -> Sender {
        Sender { lends, ..self }
    }

    /// Hands one sequence's state to the ticket's owner: connects at once, so that the lease stays alive while the source
    /// still computes, and returns after the verdict. `attempt`: new for each call, so that nothing is taken from another.
    /// Cancelling tells the receiver so; dropping the call cuts the connections.
    pub async fn send(
        &self,
        ticket: &Ticket,
        attempt: Incarnation,
        source: impl Source,
        cancel: &CancellationToken,
    ) -> Verdict {
        let (started, pace) = (now(), self.pace);
        let manifest = Manifest::new(ticket.layout, ticket.state_pos);
        let key =
            TransferKey::derive(&ticket.secret, &ticket.id, ticket.state_pos, &ticket.incarnation, &attempt);
        let links = pace.links_for(ticket.layout.state_bytes(ticket.state_pos));
        let session = SendSession::new(manifest, ticket.incarnation, pace, links, started);
        let opening = Opening { ticket, manifest, attempt, key, links, sender: self };
        let mut sending = Sending {
            opening: &opening,
            session,
            wires: Wires::default(),
            held: self.meters.hold(),
            first_segment: None,
            answered: None,
        };
        let verdict = sending.run(source, cancel).await;
        let took = now() - sending.first_segment.unwrap_or(started);
        self.meters.sent(&verdict, took);
        let Sending { wires, held, answered, .. } = sending;
        drop(held);
        if matches!(verdict, Verdict::Held(_)) {
            for (link, wire) in wires.into_each() {
                let answered = answered == Some(link);
                self.kept.put(&ticket.endpoint, ticket.incarnation, wire, answered, &pace);
            }
        } else {
            wires.close(pace.heartbeat).await;
        }
        verdict
    }
}

pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What a transfer's connection begins with.
struct Opening<'a> {
    ticket: &'a Ticket,
    manifest: Manifest,
    attempt: Incarnation,
    key: TransferKey,
    links: u16,
    sender: &'a Sender,
}

impl Opening<'_> {
    /// A connection that an earlier transfer left.
    fn kept(&self, link: LinkId) -> Option<Wire> {
        let Sender { kept, pace, meters, .. } = self.sender;
        let mut wire = kept.take(&self.ticket.endpoint, &self.ticket.incarnation, now(), pace)?;
        meters.link("reused");
        self.greet(&mut wire, link, None);
        Some(wire)
    }

    async fn dial(&self, link: LinkId) -> (LinkId, Result<AnyStream, Error>) {
        let Sender { network, pace, .. } = self.sender;
        let endpoint = &self.ticket.endpoint;
        let unreachable = |fault| Error::Unreachable { endpoint: endpoint.clone(), fault };
        let dialled = timeout(pace.greeting, network.connect(endpoint, Traffic::Bulk)).await;
        (
            link,
            dialled.map_err(|late| unreachable(late.into())).and_then(|dialled| dialled.map_err(unreachable)),
        )
    }

    fn wire(&self, link: LinkId, stream: impl Stream + 'static) -> Wire {
        self.sender.meters.link("opened");
        let mut wire = Wire::new(stream, Direction::ToReceiver, Landing::new(0));
        let Ticket { secret, id, .. } = self.ticket;
        let offer = self.sender.lends.then(|| Offer::new(key::mark(secret, id, &self.attempt, link)));
        self.greet(&mut wire, link, offer.as_ref().map(Offer::lent));
        offer.into_iter().for_each(|offer| wire.lend(offer));
        wire
    }

    fn greet(&self, wire: &mut Wire, link: LinkId, lent: Option<Lent>) {
        wire.push(Frame::Hello(self.hello(link, lent)));
        wire.trust(&self.key, link, self.manifest);
    }

    fn stale(&self) {
        let Sender { kept, meters, .. } = self.sender;
        meters.link("dead");
        kept.forget(&self.ticket.endpoint);
    }

    fn hello(&self, link: LinkId, lent: Option<Lent>) -> Hello {
        let mut hello = Hello {
            ticket: self.ticket.id,
            incarnation: self.ticket.incarnation,
            sender: self.attempt,
            link,
            links: self.links,
            state_pos: self.ticket.state_pos,
            layout: self.ticket.layout,
            format: F32_DENSE,
            lent,
            proof: [0; 32],
        };
        hello.proof = key::prove(&self.ticket.secret, &hello);
        hello
    }
}

struct Sending<'a> {
    opening: &'a Opening<'a>,
    session: SendSession,
    wires: Wires,
    held: Held,
    first_segment: Option<Instant>,
    /// The link that brought the answer to the commit.
    answered: Option<LinkId>,
}

impl Sending<'_> {
    /// Feeds the session until it finishes.
    async fn run(&mut self, mut source: impl Source, cancel: &CancellationToken) -> Verdict {
        let opening = self.opening;
        let mut dialling = FuturesUnordered::new();
        let mut actions = Vec::new();
        let mut withdrawn = false;
        let Ticket { layout, state_pos, .. } = opening.ticket;
        let mut awake = Awake::for_bytes(layout.state_bytes(*state_pos));
        self.session.on(SendEvent::Tick, now(), &mut actions);
        loop {
            match self.act(&mut actions) {
                Ok(links) => dialling.extend(links.into_iter().map(|link| opening.dial(link))),
                Err(verdict) => return verdict,
            }
            let (wants, deadline) = (self.session.wants_segment(), self.session.deadline(now()));
            let event = tokio::select! {
                // what the source has is queued before the wires write, so that small segments leave together
                biased;
                () = cancel.cancelled(), if !withdrawn => {
                    withdrawn = true;
                    Some(SendEvent::GiveUp(Reason::Cancelled))
                }
                next = source.next(), if wants => Some(self.given(next)),
                (link, turn) = self.wires.turn() => self.turned(link, turn, &mut actions),
                Some((link, dialled)) = dialling.next() => Some(match dialled {
                    Ok(stream) => {
                        self.wires.insert(link, opening.wire(link, stream));
                        SendEvent::Dialled { link, kept: false }
                    }
                    Err(fault) => SendEvent::Lost(link, fault),
                }),
                () = sleep_until(deadline.into()) => Some(SendEvent::Tick),
                () = awake.look(), if !awake.is_over() => continue,
            };
            awake.renew();
            if let Some(event) = event {
                self.session.on(event, now(), &mut actions);
            }
        }
    }

    /// Does what the session asks for. Gives out the links that are to be connected, or the verdict.
    fn act(&mut self, actions: &mut Vec<SendAction>) -> Result<Vec<LinkId>, Verdict> {
        let mut dial = Vec::new();
        while !actions.is_empty() {
            let mut kept = Vec::new();
            for action in actions.drain(..) {
                match action {
                    SendAction::Dial(link) => match self.opening.kept(link) {
                        Some(wire) => {
                            self.wires.insert(link, wire);
                            kept.push(link);
                        }
                        None => dial.push(link),
                    },
                    SendAction::Write(link, frame) => self.wires.push(link, frame),
                    SendAction::Drop(link) => drop(self.wires.remove(link)),
                    SendAction::Stale => self.opening.stale(),
                    SendAction::Fault(kind) => self.opening.sender.meters.fault(kind),
                    SendAction::Finish(verdict) => return Err(verdict),
                }
            }
            for link in kept {
                self.session.on(SendEvent::Dialled { link, kept: true }, now(), actions);
            }
        }
        self.held.stage(self.session.staged());
        Ok(dial)
    }

    fn given(&mut self, next: Result<Option<Segment>, Reason>) -> SendEvent {
        match next {
            Ok(Some(segment)) => {
                self.first_segment.get_or_insert_with(now);
                SendEvent::Segment(segment)
            }
            Ok(None) => SendEvent::SourceEnded,
            Err(reason) => SendEvent::GiveUp(reason),
        }
    }

    /// A link's turn. What was read is given to the session at once.
    fn turned(
        &mut self,
        link: LinkId,
        turn: io::Result<Turn>,
        actions: &mut Vec<SendAction>,
    ) -> Option<SendEvent> {
        let fault = match turn {
            Ok(Turn::Written) => return Some(SendEvent::Written(link)),
            Ok(Turn::Read) => {
                read(&mut self.session, &mut self.wires, link, &self.opening.sender.meters, actions);
                self.answered = Some(link);
                return None;
            }
            Ok(Turn::Ended) => None,
            Err(fault) => Some(fault),
        };
        self.wires.remove(link);
        Some(SendEvent::Lost(link, Error::Cut(fault)))
    }
}

/// Gives the session every whole frame that has arrived on a link.
fn read(
    session: &mut SendSession,
    wires: &mut Wires,
    link: LinkId,
    meters: &Meters,
    actions: &mut Vec<SendAction>,
) {
    session.on(SendEvent::Heard(link), now(), actions);
    while let Some(wire) = wires.get(link) {
        let event = match wire.frame() {
            Ok(Some(frame)) => {
                if let Frame::Welcome { borrows, .. } = frame
                    && let Some(borrows) = wire.welcomed(borrows)
                {
                    meters.link(if borrows { "same_host" } else { "apart" });
                }
                SendEvent::Frame(link, frame)
            }
            Ok(None) => return,
            Err(fault) if fault.is_of_the_link() => {
                tracing::debug!(%fault, %link, "not a frame, replacing the connection");
                wires.remove(link);
                SendEvent::Garbled(link)
            }
            Err(fault) => {
                let reason = Reason::Protocol { fault: fault.to_string() };
                return session.on(SendEvent::GiveUp(reason), now(), actions);
            }
        };
        session.on(event, now(), actions);
    }
}
