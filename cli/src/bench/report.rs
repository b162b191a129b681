//! Samples in, numbers out.

use std::{fmt, time::Duration};

use hdrhistogram::{CreationError, Histogram};
use serde::Serialize;

use super::load::Sample;

/// What a request must keep to count as good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slo {
    pub(super) ttft: Duration,
    /// Mean over the request's tokens.
    pub(super) itl: Duration,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Quantiles {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    requests: usize,
    failed: usize,
    /// Distinct reasons, first seen first.
    failures: Vec<String>,
    seconds: f64,
    requests_per_second: f64,
    prompt_tokens_per_second: f64,
    output_tokens_per_second: f64,
    /// Requests a second that kept the objective.
    goodput: f64,
    slo_ttft_ms: f64,
    slo_itl_ms: f64,
    ttft_ms: Quantiles,
    itl_ms: Quantiles,
    request_ms: Quantiles,
}

impl Report {
    pub(super) fn of(samples: &[Sample], slo: Slo) -> Result<Self, CreationError> {
        let began = samples.iter().map(|sample| sample.began).min();
        let ended = samples.iter().map(|sample| sample.ended).max();
        let seconds = began.zip(ended).map_or(0.0, |(began, ended)| (ended - began).as_secs_f64());
        let (mut ttft, mut itl, mut whole) = (Times::new()?, Times::new()?, Times::new()?);
        let (mut good, mut output, mut prompt) = (0, 0, 0);
        let mut failures: Vec<String> = Vec::new();
        let mut failed = 0;
        for sample in samples {
            match &sample.outcome {
                Ok(tokened) => {
                    let count = u32::try_from(tokened.itl.len()).unwrap_or(u32::MAX).max(1);
                    let mean = tokened.itl.iter().sum::<Duration>() / count;
                    good += usize::from(tokened.ttft <= slo.ttft && mean <= slo.itl);
                    output += tokened.tokens;
                    prompt += sample.prompt_tokens;
                    ttft.add(tokened.ttft);
                    tokened.itl.iter().for_each(|gap| itl.add(*gap));
                    whole.add(sample.ended - sample.began);
                }
                Err(reason) => {
                    failed += 1;
                    if !failures.contains(reason) {
                        failures.push(reason.clone());
                    }
                }
            }
        }
        let per_second = |count: usize| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Ok(Self {
            requests: samples.len(),
            failed,
            failures,
            seconds,
            requests_per_second: per_second(samples.len() - failed),
            prompt_tokens_per_second: per_second(prompt),
            output_tokens_per_second: per_second(output),
            goodput: per_second(good),
            slo_ttft_ms: slo.ttft.as_secs_f64() * 1e3,
            slo_itl_ms: slo.itl.as_secs_f64() * 1e3,
            ttft_ms: ttft.quantiles(),
            itl_ms: itl.quantiles(),
            request_ms: whole.quantiles(),
        })
    }
}

/// A day, in microseconds: nothing is measured that takes longer.
const LONGEST: u64 = 24 * 3600 * 1_000_000;

/// Microseconds, three digits.
struct Times(Histogram<u64>);

impl Times {
    fn new() -> Result<Self, CreationError> {
        Histogram::new_with_bounds(1, LONGEST, 3).map(Self)
    }

    fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Quantiles {
            mean: self.0.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.0.max() as f64 / 1e3,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} requests in {:.1} s, {} failed", self.requests, self.seconds, self.failed)?;
        for reason in &self.failures {
            writeln!(out, "  failed: {reason}")?;
        }
        writeln!(out, "{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}", "ms", "mean", "p50", "p90", "p99", "max")?;
        for (name, row) in [("TTFT", self.ttft_ms), ("ITL", self.itl_ms), ("request", self.request_ms)] {
            let Quantiles { mean, p50, p90, p99, max } = row;
            writeln!(out, "{name:<12}{mean:>10.2}{p50:>10.2}{p90:>10.2}{p99:>10.2}{max:>10.2}")?;
        }
        writeln!(
            out,
            "throughput  {:.1} prompt tokens/s, {:.1} output tokens/s, {:.2} requests/s",
            self.prompt_tokens_per_second, self.output_tokens_per_second, self.requests_per_second
        )?;
        write!(
            out,
            "goodput     {:.2} requests/s with TTFT <= {:.0} ms and mean ITL <= {:.0} ms",
            self.goodput, self.slo_ttft_ms, self.slo_itl_ms
        )
    }
}

#[cfg(test)]
mod tests;
