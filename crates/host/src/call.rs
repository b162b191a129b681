use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;
use tracing::Span;

/// When the caller gives up, if it said so in `grpc-timeout`: up to eight digits and a unit.
pub fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let value = metadata.get("grpc-timeout")?.to_str().ok()?;
    let now = tokio::time::Instant::now().into_std();
    now.checked_add(timeout(value)?)
}

fn timeout(value: &str) -> Option<Duration> {
    let (amount, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let amount: u64 = amount.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount.saturating_mul(3600))),
        "M" => Some(Duration::from_secs(amount.saturating_mul(60))),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// The span of one call, a child of the caller's trace.
pub fn span(metadata: &MetadataMap, call: &'static str, request_id: &str, attempt: u32) -> Span {
    let span = tracing::info_span!("call", otel.name = call, call, request_id, attempt = i64::from(attempt));
    telemetry::propagate::from_metadata(&span, metadata);
    span
}

#[cfg(test)]
mod tests;
