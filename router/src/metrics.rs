//! What the router counts; README.md lists the names.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use proto::status::reason_name;
use proto::v1::ErrorReason;
use telemetry::{Meters, Seconds, seconds_histogram};
use tokio::time::Instant;

use crate::error::Error;
use crate::status::Story;

const FINISHED: &str = "finished";
const CANCELLED: &str = "cancelled";

/// The router's metrics. Clones are the same metrics.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) permits_held: Gauge,
    pub(crate) migrations: Counter,
    pub(crate) first_token: Seconds,
    pub(crate) inter_token: Seconds,
    pub(crate) queue: Seconds,
    pub(crate) pause: Seconds,
    requests: Family<Ended, Counter>,
    workers: Family<OfRole, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRole {
    role: &'static str,
}

impl Metrics {
    pub(crate) fn register(meters: &Meters) -> Self {
        meters.register(|registry| {
            let metrics = Self {
                permits_held: Gauge::default(),
                migrations: Counter::default(),
                requests: Family::default(),
                workers: Family::default(),
                first_token: seconds_histogram(
                    registry,
                    "tandem_router_first_token_seconds",
                    "From arrival to the first token",
                ),
                inter_token: seconds_histogram(
                    registry,
                    "tandem_router_inter_token_seconds",
                    "Between two deliveries of tokens of one request",
                ),
                queue: seconds_histogram(
                    registry,
                    "tandem_router_queue_seconds",
                    "From arrival to the start of prefill",
                ),
                pause: seconds_histogram(
                    registry,
                    "tandem_router_pause_seconds",
                    "From the failure of a worker to the request's next tokens",
                ),
            };
            registry.register(
                "tandem_router_permits_held",
                "Requests in flight",
                metrics.permits_held.clone(),
            );
            registry.register(
                "tandem_router_migrations",
                "Times that a request went on with other workers",
                metrics.migrations.clone(),
            );
            registry.register(
                "tandem_router_requests",
                "Requests that ended, by how",
                metrics.requests.clone(),
            );
            registry.register("tandem_router_workers", "Live workers", metrics.workers.clone());
            metrics.workers(0, 0);
            metrics
        })
    }

    pub(crate) fn workers(&self, prefill: usize, decode: usize) {
        for (role, count) in [("prefill", prefill), ("decode", decode)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.workers.get_or_create(&OfRole { role }).set(count);
        }
    }

    /// Counts a request that was refused before it was admitted.
    pub(crate) fn refused(&self, error: &Error) {
        self.ended(error.outcome());
    }

    /// How many requests have ended how.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, u64> {
        let reasons = (0..).map_while(|number| ErrorReason::try_from(number).ok());
        let reasons = reasons.map(|reason| reason_name(reason).to_lowercase());
        let possible = [FINISHED, CANCELLED].map(str::to_owned).into_iter().chain(reasons);
        let counted = |outcome: String| {
            let count = self.requests.get(&Ended { outcome: outcome.clone() })?.get();
            Some((outcome, count))
        };
        possible.filter_map(counted).collect()
    }

    fn ended(&self, outcome: String) {
        self.requests.get_or_create(&Ended { outcome }).inc();
    }
}

/// How an admitted request ends: counted and written down once, when this is dropped; without a word the client has left.
#[derive(Debug)]
pub(crate) struct Outcome {
    metrics: Metrics,
    story: Story,
    said: Option<String>,
}

impl Outcome {
    pub(crate) fn of(metrics: &Metrics, story: Story) -> Self {
        Self { metrics: metrics.clone(), story, said: None }
    }

    /// What is written down of the request.
    pub(crate) fn story(&self) -> &Story {
        &self.story
    }

    pub(crate) fn finished(&mut self) {
        self.said = Some(FINISHED.to_owned());
    }

    pub(crate) fn failed(&mut self, error: &Error) {
        self.said = Some(error.outcome());
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        let outcome = self.said.take().unwrap_or_else(|| CANCELLED.to_owned());
        self.story.ended(&outcome, Instant::now());
        self.metrics.ended(outcome);
    }
}
