//! The in-memory registry, served to workers.

use std::{pin::Pin, time::Duration};

use proto::{
    status::Fault,
    v1::{ErrorReason, JoinRequest, JoinResponse, membership_server::Membership},
};
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{InMemory, Seat};

/// `tandem.v1.Membership` over an [`InMemory`] registry: a worker is a member while its stream lives and beats arrive
/// within the lease.
#[derive(Debug, Clone)]
pub struct MembershipService {
    registry: InMemory,
    lease: Duration,
}

impl MembershipService {
    /// Serves `registry`; a member that is silent for `lease` is out.
    pub fn new(registry: InMemory, lease: Duration) -> Self {
        Self { registry, lease }
    }

    async fn beats(
        self,
        mut beats: Streaming<JoinRequest>,
        answers: tokio::sync::mpsc::Sender<Result<JoinResponse, Status>>,
    ) {
        let mut seat: Option<Seat> = None;
        loop {
            let beat = match timeout(self.lease, beats.next()).await {
                Ok(Some(Ok(beat))) => beat,
                Ok(Some(Err(_)) | None) => return,
                Err(_) => {
                    tracing::warn!("a worker's lease ran out");
                    return;
                }
            };
            let answer = self.beat(&mut seat, beat);
            let over = answer.is_err();
            if answers.send(answer).await.is_err() || over {
                return;
            }
        }
    }

    fn beat(&self, seat: &mut Option<Seat>, beat: JoinRequest) -> Result<JoinResponse, Status> {
        let load = beat.load.unwrap_or_default();
        match (beat.record, &*seat) {
            (Some(record), _) => {
                let taken = self
                    .registry
                    .seat(record, load)
                    .map_err(|error| Fault::invalid("record", error.to_string()).to_status())?;
                *seat = Some(taken);
            }
            (None, None) => {
                return Err(Fault::invalid("record", "the first message carries the record").to_status());
            }
            (None, Some(held)) => {
                if !held.renew(load) {
                    let message = "a newer start of this worker has joined";
                    return Err(Fault::new(ErrorReason::StaleIncarnation, message).to_status());
                }
            }
        }
        Ok(JoinResponse { lease_millis: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX) })
    }
}

#[tonic::async_trait]
impl Membership for MembershipService {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<JoinResponse, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<JoinRequest>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let (answers, stream) = tokio::sync::mpsc::channel(4);
        tokio::spawn(self.clone().beats(request.into_inner(), answers));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
