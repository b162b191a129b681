//! What is counted of etcd.

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use telemetry::Meters;

/// Clones are the same metrics.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    pub(super) connected: Gauge,
    pub(super) losses: Counter,
    pub(super) skipped: Counter,
    pub(super) unlisted: Gauge,
    pub(super) registrations: Counter,
}

impl Metrics {
    pub(super) fn register(meters: &Meters) -> Self {
        meters.register(|registry| {
            let metrics = Self {
                connected: Gauge::default(),
                losses: Counter::default(),
                skipped: Counter::default(),
                unlisted: Gauge::default(),
                registrations: Counter::default(),
            };
            let Self { connected, losses, skipped, unlisted, registrations } = metrics.clone();
            registry.register(
                "tandem_discovery_connected",
                "1 while etcd answers, 0 while it is away",
                connected,
            );
            registry.register("tandem_discovery_losses", "Times that etcd was there and went away", losses);
            registry.register(
                "tandem_discovery_skipped",
                "Values below the prefix that are no member of this version",
                skipped,
            );
            registry.register(
                "tandem_discovery_unlisted_members",
                "Members that etcd does not list, kept because they themselves answer",
                unlisted,
            );
            registry.register(
                "tandem_discovery_registrations",
                "Times that this worker was written into etcd",
                registrations,
            );
            metrics
        })
    }
}
