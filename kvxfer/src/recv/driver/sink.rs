use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::ends::Sink;
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::Receipt;

/// What the sink is to do next. Unacknowledged segments are bounded by the window, so the queue is too.
#[derive(Debug)]
pub(super) enum Job {
    Accept { sequence: u32, segment: Segment },
    Commit(Receipt),
}

#[derive(Debug)]
pub(super) enum Done {
    Accepted { sequence: u32 },
    Committed,
    Failed(Reason),
}

/// Gives jobs to the sink one after another while the wire is read on; owns the sink, so dropping this drops it.
pub(super) async fn work<K: Sink>(
    mut sink: K,
    mut todo: UnboundedReceiver<Job>,
    done: UnboundedSender<Done>,
) {
    while let Some(job) = todo.recv().await {
        let outcome = match job {
            Job::Accept { sequence, segment } => {
                sink.accept(segment.id, segment.payload).await.map(|()| Done::Accepted { sequence })
            }
            Job::Commit(receipt) => sink.commit(receipt).await.map(|()| Done::Committed),
        };
        if done.send(outcome.unwrap_or_else(Done::Failed)).is_err() {
            return;
        }
    }
}
