use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, stream};
use proto::externalscaler::external_scaler_server::ExternalScaler;
use proto::externalscaler::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec, MetricValue,
    ScaledObjectRef,
};
use proto::v1::peer_server::Peer;
use proto::v1::{DemandRequest, DemandResponse};
use scaler::Answer;
use tonic::{Request, Response, Status};

use super::{Demand, NoAnswer, Scaling};

/// The one metric: workers. Each worker is one of them, so replicas are the value.
const METRIC: &str = "tandem-workers";

/// KEDA's external scaler.
#[derive(Clone, Debug)]
pub(crate) struct External {
    scaling: Scaling,
}

impl External {
    pub(crate) fn new(scaling: Scaling) -> Self {
        Self { scaling }
    }

    fn answer(&self, object: &ScaledObjectRef) -> Result<Answer, Status> {
        let metadata = object.scaler_metadata.clone().into_iter().collect();
        self.scaling.answer(&metadata).map_err(status)
    }
}

/// Metadata is its writer's fault; what can not be measured is never told as nothing.
fn status(why: NoAnswer) -> Status {
    match why {
        NoAnswer::Refused(refused) => Status::invalid_argument(format!("scalerMetadata.{refused}")),
        NoAnswer::TooMany => Status::resource_exhausted("too many different triggers"),
        NoAnswer::Unmeasured(why) => Status::unavailable(why),
    }
}

fn object(asked: Option<ScaledObjectRef>) -> Result<ScaledObjectRef, Status> {
    asked.ok_or_else(|| Status::invalid_argument("scaledObjectRef: is missing"))
}

#[tonic::async_trait]
impl ExternalScaler for External {
    type StreamIsActiveStream = Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;
    type StreamMetricSpecStream = Pin<Box<dyn Stream<Item = Result<GetMetricSpecResponse, Status>> + Send>>;

    async fn is_active(&self, asked: Request<ScaledObjectRef>) -> Result<Response<IsActiveResponse>, Status> {
        Ok(Response::new(IsActiveResponse { result: self.answer(asked.get_ref())?.active }))
    }

    /// Says it at once, and whenever it changes.
    async fn stream_is_active(
        &self,
        asked: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let asked = asked.into_inner();
        self.answer(&asked)?;
        let state = (self.clone(), asked, self.scaling.changes(), None);
        let news = stream::try_unfold(state, |(own, asked, mut changes, mut said)| async move {
            loop {
                match own.answer(&asked).map(|answer| answer.active) {
                    Ok(active) if said != Some(active) => {
                        said = Some(active);
                        let told = IsActiveResponse { result: active };
                        return Ok(Some((told, (own, asked, changes, said))));
                    }
                    // What is not known now is said when it is.
                    Ok(_) | Err(_) => {}
                }
                if changes.changed().await.is_err() {
                    return Ok(None);
                }
            }
        });
        Ok(Response::new(Box::pin(news)))
    }

    async fn get_metric_spec(
        &self,
        asked: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        self.answer(asked.get_ref())?;
        let spec = MetricSpec { metric_name: METRIC.to_owned(), target_size: 1, target_size_float: 1.0 };
        Ok(Response::new(GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(
        &self,
        asked: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let GetMetricsRequest { scaled_object_ref, metric_name } = asked.into_inner();
        let workers = self.answer(&object(scaled_object_ref)?)?.workers;
        let value =
            MetricValue { metric_name, metric_value: workers.into(), metric_value_float: workers.into() };
        Ok(Response::new(GetMetricsResponse { metric_values: vec![value] }))
    }

    /// What is measured does not change its name or target.
    async fn stream_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        Err(Status::unimplemented("metric specs do not change"))
    }
}

/// What other routers are told.
#[derive(Clone, Debug)]
pub(crate) struct PeerService {
    demand: Demand,
    own: Bytes,
}

impl PeerService {
    pub(crate) fn new(demand: Demand, own: Bytes) -> Self {
        Self { demand, own }
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn demand(&self, _: Request<DemandRequest>) -> Result<Response<DemandResponse>, Status> {
        let now = self.demand.now();
        let router = self.own.clone();
        Ok(Response::new(DemandResponse { router, requests: now.requests, prompt_tokens: now.prompt_tokens }))
    }
}
