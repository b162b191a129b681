//! `tandem.v1.Worker` of both roles.

use std::pin::Pin;

use futures::{Stream, StreamExt, stream};
use process::Drain;
use proto::v1::{
    DescribeRequest, DescribeResponse, DrainRequest, DrainResponse, Load, WatchRequest, WatchResponse,
    WorkerRecord, worker_server::Worker,
};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::{CacheLog, Incarnation};

/// Answers for one worker.
#[derive(Debug, Clone)]
pub struct WorkerService {
    record: WorkerRecord,
    incarnation: Incarnation,
    load: watch::Receiver<Load>,
    cache: Option<CacheLog>,
    drain: Drain,
}

impl WorkerService {
    /// `load` is what the worker says of itself, draining included; `cache` what it can resume from, where it has a cache.
    pub fn new(
        record: WorkerRecord,
        incarnation: Incarnation,
        load: watch::Receiver<Load>,
        cache: Option<CacheLog>,
        drain: Drain,
    ) -> Self {
        Self { record, incarnation, load, cache, drain }
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
        let cache = self.cache.as_ref().map(CacheLog::updates);
        let mut cache = Box::pin(stream::iter(cache).flatten());
        let whole = cache.next().await;
        let now = WatchResponse { sequence: 0, load: Some(*self.load.borrow()), cache: whole };
        let loads = WatchStream::new(self.load.clone());
        let loads = loads.map(|load| WatchResponse { load: Some(load), ..WatchResponse::default() });
        let caches = cache.map(|update| WatchResponse { cache: Some(update), ..WatchResponse::default() });
        let later = stream::select(loads, caches);
        let events = stream::iter([now]).chain(later).zip(stream::iter(0..));
        let events = events.map(|(event, sequence)| Ok(WatchResponse { sequence, ..event }));
        Ok(Response::new(Box::pin(events)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        self.incarnation.check(&request.get_ref().incarnation).map_err(|fault| fault.to_status())?;
        self.drain.begin();
        Ok(Response::new(DrainResponse { running: self.load.borrow().running }))
    }
}
