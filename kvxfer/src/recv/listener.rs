use std::sync::Arc;

use net::Listener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::driver::{Receiver, Served};
use crate::ends::TicketBook;
use crate::reason::Reason;

/// Accepts senders until `stop`, then lets the transfers under way end. Dropping the call ends them at once.
pub async fn serve<B: TicketBook>(
    mut listener: Listener,
    receiver: Arc<Receiver>,
    book: Arc<B>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(receiver.bounds().connections));
    let mut transfers = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = transfers.join_next() => continue,
            Ok(place) = Arc::clone(&places).acquire_owned() => tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted.map(|(stream, peer)| (stream, peer, place)),
            },
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(fault) => {
                // out of descriptors, most likely: they come back as transfers end
                tracing::warn!(%fault, "no connection accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let (receiver, book) = (Arc::clone(&receiver), Arc::clone(&book));
        transfers.spawn(async move {
            match receiver.receive(stream, Some(place), book.as_ref()).await {
                Ok(Served::Committed(receipt)) => {
                    tracing::debug!(%peer, segments = receipt.segments, bytes = receipt.bytes, "committed");
                }
                Ok(Served::Joined) => tracing::debug!(%peer, "joined its transfer"),
                Err(error) if error.reason() == Some(&Reason::Cancelled) => {
                    tracing::debug!(%peer, %error, "transfer ended");
                }
                Err(error) => tracing::warn!(%peer, %error, "transfer failed"),
            }
        });
    }
    drop(listener);
    while transfers.join_next().await.is_some() {}
}
