use std::sync::Arc;
use std::time::Duration;

use net::Listener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::driver::{Receiver, Served};
use crate::ends::TicketBook;
use crate::error::Error;
use crate::reason::Reason;
use crate::wire::{Place, Wire};

/// Accepts senders until `stop`, then lets the transfers under way end. Dropping the call ends them at once.
pub async fn serve<B: TicketBook>(
    mut listener: Listener,
    receiver: Arc<Receiver>,
    book: Arc<B>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(receiver.bounds().connections));
    let mut transfers = JoinSet::new();
    let mut place = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(left) = transfers.join_next() => for wire in left.into_iter().flatten() {
                transfers.spawn(again(wire, Arc::clone(&receiver), Arc::clone(&book), stop.clone()));
            },
            permit = Arc::clone(&places).acquire_owned(), if place.is_none() => place = permit.ok(),
            accepted = listener.accept(), if place.is_some() => match accepted {
                Ok((stream, peer)) => {
                    let place = place.take().map(|permit| Place { peer, _permit: permit });
                    let wire = receiver.accepted(stream, place);
                    transfers.spawn(one(wire, "opened", Arc::clone(&receiver), Arc::clone(&book)));
                }
                Err(fault) => {
                    // out of descriptors, most likely: they come back as transfers end
                    tracing::warn!(%fault, "no connection accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    let mut closing = JoinSet::new();
    while let Some(left) = transfers.join_next().await {
        for wire in left.into_iter().flatten() {
            let receiver = Arc::clone(&receiver);
            closing.spawn(async move { receiver.close(wire).await });
        }
    }
    closing.join_all().await;
}

/// What comes on a connection that was left of a transfer; until then it is closed by `stop`.
async fn again<B: TicketBook>(
    mut wire: Wire,
    receiver: Arc<Receiver>,
    book: Arc<B>,
    stop: CancellationToken,
) -> Vec<Wire> {
    let goes_on = tokio::select! {
        goes_on = receiver.rest(&mut wire) => goes_on,
        () = stop.cancelled() => false,
    };
    if goes_on {
        return one(wire, "reused", receiver, book).await;
    }
    receiver.close(wire).await;
    vec![]
}

/// One connection, from its greeting on. Gives out what may be kept.
async fn one<B: TicketBook>(
    wire: Wire,
    how: &'static str,
    receiver: Arc<Receiver>,
    book: Arc<B>,
) -> Vec<Wire> {
    let peer = wire.peer();
    let (served, left) = receiver.receive(wire, how, book.as_ref()).await;
    log(peer, served);
    left
}

fn log(peer: Option<std::net::SocketAddr>, served: Result<Served, Error>) {
    let peer = peer.map(tracing::field::display);
    match served {
        Ok(Served::Committed(receipt)) => {
            tracing::debug!(peer, segments = receipt.segments, bytes = receipt.bytes, "committed");
        }
        Ok(Served::Joined) => tracing::debug!(peer, "joined its transfer"),
        Err(error) if error.reason() == Some(&Reason::Cancelled) => {
            tracing::debug!(peer, %error, "transfer ended");
        }
        Err(error) => tracing::warn!(peer, %error, "transfer failed"),
    }
}
