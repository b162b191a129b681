//! Request lengths and arrival times from public traces.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, bail};
use serde::Deserialize;

/// One request to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    /// After the start; none: when the loop has room.
    pub(super) at: Option<Duration>,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Tokens to generate.
    pub(super) output: u32,
}

#[derive(Deserialize)]
struct Mooncake {
    /// Milliseconds.
    timestamp: u64,
    input_length: usize,
    output_length: u32,
}

/// The first `count` requests of Mooncake's JSONL or Azure's CSV, lengths cut to what fits `context`.
pub(super) fn read(path: &Path, count: usize, context: u32) -> anyhow::Result<Vec<Request>> {
    let text = fs::read_to_string(path).with_context(|| format!("--trace {}", path.display()))?;
    let requests = if text.starts_with('{') { mooncake(&text, count) } else { azure(&text, count) }
        .with_context(|| format!("--trace {}", path.display()))?;
    let most = context as usize;
    Ok(requests
        .into_iter()
        .map(|request| {
            let prompt = request.prompt.clamp(1, most.saturating_sub(1).max(1));
            let room = u32::try_from(most - prompt).unwrap_or(u32::MAX);
            Request { prompt, output: request.output.clamp(1, room.max(1)), ..request }
        })
        .collect())
}

fn mooncake(text: &str, count: usize) -> anyhow::Result<Vec<Request>> {
    text.lines()
        .filter(|line| !line.is_empty())
        .take(count)
        .enumerate()
        .map(|(index, line)| {
            let one: Mooncake = serde_json::from_str(line).with_context(|| format!("line {}", index + 1))?;
            Ok(Request {
                at: Some(Duration::from_millis(one.timestamp)),
                prompt: one.input_length,
                output: one.output_length,
            })
        })
        .collect()
}

/// `TIMESTAMP,ContextTokens,GeneratedTokens`; the time of day with fractions of a second.
fn azure(text: &str, count: usize) -> anyhow::Result<Vec<Request>> {
    let mut lines = text.lines();
    if !lines.next().is_some_and(|head| head.starts_with("TIMESTAMP,")) {
        bail!("neither JSON lines nor a CSV with a TIMESTAMP column");
    }
    let mut first = None;
    lines
        .take(count)
        .enumerate()
        .map(|(index, line)| {
            let wrong = || format!("line {}: {line:?}", index + 2);
            let mut cells = line.split(',');
            let (time, prompt, output) = (cells.next(), cells.next(), cells.next());
            let seconds = time.and_then(time_of_day).with_context(wrong)?;
            let start = *first.get_or_insert(seconds);
            Ok(Request {
                at: Some(Duration::from_secs_f64((seconds - start).max(0.0))),
                prompt: prompt.and_then(|cell| cell.trim().parse().ok()).with_context(wrong)?,
                output: output.and_then(|cell| cell.trim().parse().ok()).with_context(wrong)?,
            })
        })
        .collect()
}

fn time_of_day(stamp: &str) -> Option<f64> {
    let clock = stamp.split_once(' ')?.1;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(seconds)
}

#[cfg(test)]
mod tests;
