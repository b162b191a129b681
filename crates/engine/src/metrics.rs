use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::Pool;

/// The engine's metrics, registered once; README.md lists them.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) prefill_step: Histogram,
    pub(crate) decode_step: Histogram,
    pub(crate) prefill_tokens: Counter,
    pub(crate) decode_tokens: Counter,
    pub(crate) drafted_tokens: Counter,
    pub(crate) accepted_tokens: Counter,
    pub(crate) prefix_hit_tokens: Counter,
    pub(crate) compilations_after_ready: Counter,
    pool: Arc<OnceLock<Pool>>,
}

impl Metrics {
    /// Registers them, under their full names. The pool's gauges read 0 until an engine starts with these metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = || Histogram::new(exponential_buckets(1e-4, 2.0, 20));
        let metrics = Self {
            prefill_step: seconds(),
            decode_step: seconds(),
            prefill_tokens: Counter::default(),
            decode_tokens: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            prefix_hit_tokens: Counter::default(),
            compilations_after_ready: Counter::default(),
            pool: Arc::default(),
        };
        registry.register(
            "tandem_engine_prefill_step_seconds",
            "Time of one prefill step, from upload to the chunk's latents on the host",
            metrics.prefill_step.clone(),
        );
        registry.register(
            "tandem_engine_decode_step_seconds",
            "Time of one decode step, from upload to the drawn tokens on the host",
            metrics.decode_step.clone(),
        );
        registry.register(
            "tandem_engine_prefill_tokens",
            "Prompt tokens computed",
            metrics.prefill_tokens.clone(),
        );
        registry.register("tandem_engine_decode_tokens", "Tokens drawn", metrics.decode_tokens.clone());
        let drafted = metrics.drafted_tokens.clone();
        registry.register("tandem_mtp_drafted_tokens", "Drafts that decode steps verified", drafted);
        let accepted = metrics.accepted_tokens.clone();
        registry.register("tandem_mtp_accepted_tokens", "Drafts that became tokens", accepted);
        registry.register(
            "tandem_prefix_hit_tokens",
            "Prompt tokens that were not computed, because their state was cached",
            metrics.prefix_hit_tokens.clone(),
        );
        registry.register(
            "tandem_engine_compilations_after_ready",
            "Programs compiled after the engine was ready; 0 in health",
            metrics.compilations_after_ready.clone(),
        );
        registry.register_collector(Box::new(PoolGauges { pool: Arc::clone(&metrics.pool) }));
        metrics
    }

    pub(crate) fn watch(&self, pool: &Pool) {
        if self.pool.set(pool.clone()).is_err() {
            tracing::warn!("metrics: serve an engine already, its pool stays the one shown");
        }
    }
}

/// Reads the pool when it is asked, so that the gauges are never behind.
#[derive(Debug)]
struct PoolGauges {
    pool: Arc<OnceLock<Pool>>,
}

impl Collector for PoolGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let usage = self.pool.get().map(Pool::usage).unwrap_or_default();
        let gauges: [(&str, &str, i64); 6] = [
            ("tandem_pool_pages_held", "Latent pages in use by live requests", usage.held_pages.into()),
            ("tandem_pool_slots_held", "Recurrent slots in use by live requests", usage.held_slots.into()),
            (
                "tandem_pool_checkpoints_held",
                "Recurrent checkpoints that live requests are loading",
                usage.held_checkpoints.into(),
            ),
            ("tandem_pool_pages_cached", "Latent pages kept for prompts to come", usage.cached_pages.into()),
            (
                "tandem_pool_checkpoints_cached",
                "Recurrent checkpoints kept for prompts to come",
                usage.cached_checkpoints.into(),
            ),
            (
                "tandem_pool_checkpoints_cached_bytes",
                "What they take on the host",
                i64::try_from(usage.cached_bytes).unwrap_or(i64::MAX),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
