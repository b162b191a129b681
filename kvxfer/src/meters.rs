use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::Error;
use crate::ticket::Receipt;
use crate::verdict::Verdict;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct How {
    how: &'static str,
}

/// What transfers hold and do, on either side of them.
#[derive(Clone, Debug)]
pub struct Meters {
    staging_bytes: Gauge,
    sessions_held: Gauge,
    faults: Family<Kind, Counter>,
    links: Family<How, Counter>,
    bytes: Counter,
    seconds: Histogram,
    bytes_per_second: Histogram,
}

impl Meters {
    pub fn register(registry: &mut Registry) -> Meters {
        let meters = Meters {
            staging_bytes: Gauge::default(),
            sessions_held: Gauge::default(),
            faults: Family::default(),
            links: Family::default(),
            bytes: Counter::default(),
            seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            bytes_per_second: Histogram::new(exponential_buckets(1e6, 2.0, 16)),
        };
        registry.register(
            "tandem_transfer_staging_bytes",
            "Payload bytes between wire and sink, or kept until acknowledged",
            meters.staging_bytes.clone(),
        );
        registry.register(
            "tandem_transfer_sessions_held",
            "Transfers under way",
            meters.sessions_held.clone(),
        );
        registry.register("tandem_transfer_faults", "Faults by kind", meters.faults.clone());
        registry.register(
            "tandem_transfer_links",
            "Connections that a transfer began on, by how it came to them",
            meters.links.clone(),
        );
        registry.register(
            "tandem_transfer_bytes",
            "Payload bytes of committed transfers",
            meters.bytes.clone(),
        );
        registry.register(
            "tandem_transfer_seconds",
            "From the first segment to the commit",
            meters.seconds.clone(),
        );
        registry.register(
            "tandem_transfer_bytes_per_second",
            "Payload bytes over the seconds of a committed transfer",
            meters.bytes_per_second.clone(),
        );
        meters
    }

    /// Counts a transfer as held until the lease is dropped.
    pub(crate) fn hold(&self) -> Held {
        self.sessions_held.inc();
        Held { meters: self.clone(), staged: 0 }
    }

    pub(crate) fn fault(&self, kind: &'static str) {
        self.faults.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn link(&self, how: &'static str) {
        self.links.get_or_create(&How { how }).inc();
    }

    /// A receiver's transfer is over.
    pub(crate) fn ended(&self, end: &Result<Receipt, Error>, took: Duration) {
        match end {
            Ok(receipt) => self.committed(receipt, took),
            Err(error) => self.fault(error.kind()),
        }
    }

    /// A sender's transfer is over.
    pub(crate) fn sent(&self, verdict: &Verdict, took: Duration) {
        match verdict {
            Verdict::Held(receipt) => self.committed(receipt, took),
            Verdict::Revoked(error) => self.fault(error.kind()),
            Verdict::Unknown(_) => self.fault("in_doubt"),
        }
    }

    fn committed(&self, receipt: &Receipt, took: Duration) {
        let seconds = took.as_secs_f64();
        self.bytes.inc_by(receipt.bytes);
        self.seconds.observe(seconds);
        self.bytes_per_second.observe(receipt.bytes as f64 / seconds.max(1e-9));
    }

    /// Counts bytes as staged that a sink keeps before it can use them, until the result is dropped.
    pub fn stage(&self, bytes: u64) -> Staged {
        self.staging_bytes.inc_by(bytes as i64);
        Staged { gauge: self.staging_bytes.clone(), bytes }
    }

    /// Payload bytes staged now, over all transfers of this process.
    pub fn staging_bytes(&self) -> i64 {
        self.staging_bytes.get()
    }

    /// Transfers under way now.
    pub fn sessions_held(&self) -> i64 {
        self.sessions_held.get()
    }

    /// Connections so far that were `opened`, `reused`, or kept and found `dead`.
    pub fn links(&self, how: &'static str) -> u64 {
        self.links.get_or_create(&How { how }).get()
    }

    /// Faults of one kind so far.
    pub fn faults(&self, kind: &'static str) -> u64 {
        self.faults.get_or_create(&Kind { kind }).get()
    }
}

/// Bytes in a sink's buffers.
#[derive(Debug)]
pub struct Staged {
    gauge: Gauge,
    bytes: u64,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.gauge.dec_by(self.bytes as i64);
    }
}

/// One transfer's share of the gauges; dropping it gives the share back.
#[derive(Debug)]
pub(crate) struct Held {
    meters: Meters,
    staged: u64,
}

impl Held {
    pub(crate) fn stage(&mut self, staged: u64) {
        self.meters.staging_bytes.inc_by(staged as i64 - self.staged as i64);
        self.staged = staged;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stage(0);
        self.meters.sessions_held.dec();
    }
}
