//! Counters, gauges and histograms of one process.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    encoding::text::encode,
    metrics::histogram::{Histogram, exponential_buckets},
    registry::Registry,
};

/// A histogram of seconds.
pub type Seconds = Histogram;

/// The registry of one process: parts register their metrics once when they are built, `/metrics` prints them all.
#[derive(Debug, Clone, Default)]
pub struct Meters {
    registry: Arc<Mutex<Registry>>,
}

impl Meters {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a part register its metrics.
    pub fn register<T>(&self, metrics: impl FnOnce(&mut Registry) -> T) -> T {
        metrics(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything, as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if encode(&mut text, &registry).is_err() {
            tracing::error!("metrics could not be encoded");
        }
        text
    }
}

/// Registers a histogram of seconds from 100 us to about 200 s.
pub fn seconds_histogram(registry: &mut Registry, name: &str, help: &str) -> Seconds {
    let histogram = Histogram::new(exponential_buckets(1e-4, 2.0, 22));
    registry.register(name, help, histogram.clone());
    histogram
}
