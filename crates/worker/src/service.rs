//! `tandem.v1.Worker` of both roles.

use std::pin::Pin;

use process::Drain;
use proto::v1::{
    DescribeRequest, DescribeResponse, DrainRequest, DrainResponse, Load, WatchRequest, WatchResponse,
    WorkerRecord, worker_server::Worker,
};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};
use tonic::{Request, Response, Status};

use crate::Incarnation;

/// Answers for one worker.
#[derive(Debug, Clone)]
pub struct WorkerService {
    record: WorkerRecord,
    incarnation: Incarnation,
    load: watch::Receiver<Load>,
    drain: Drain,
}

impl WorkerService {
    /// `load` is what the worker says of itself, draining included.
    pub fn new(
        record: WorkerRecord,
        incarnation: Incarnation,
        load: watch::Receiver<Load>,
        drain: Drain,
    ) -> Self {
        Self { record, incarnation, load, drain }
    }
}

#[tonic::async_trait]
impl Worker for WorkerService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { record: Some(self.record.clone()) }))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.incarnation.check(&request.get_ref().incarnation).map_err(|fault| fault.to_status())?;
        let mut sequence = 0;
        let events = WatchStream::new(self.load.clone()).map(move |load| {
            let event = WatchResponse { sequence, load: Some(load) };
            sequence += 1;
            Ok(event)
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        self.incarnation.check(&request.get_ref().incarnation).map_err(|fault| fault.to_status())?;
        self.drain.begin();
        Ok(Response::new(DrainResponse { running: self.load.borrow().running }))
    }
}
