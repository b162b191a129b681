//! What to generate, as a line of JSON says it.

use std::{fs, io, path::Path};

use anyhow::Context;
use programs::sampling::Asked;
use serde::Deserialize;

use super::Flags;

/// One request; what is not said comes from the flags.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Request {
    pub(super) prompt: Option<String>,
    pub(super) prompt_ids: Option<Vec<u32>>,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    seed: Option<u64>,
    ignore_eos: bool,
}

impl Request {
    pub(super) fn prompt(text: String) -> Self {
        Self { prompt: Some(text), ..Self::default() }
    }

    pub(super) fn or(self, flags: &Flags) -> Self {
        Self {
            max_tokens: self.max_tokens.or(Some(flags.max_tokens)),
            temperature: self.temperature.or(Some(flags.temperature)),
            seed: self.seed.or(flags.seed),
            ..self
        }
    }

    pub(super) fn asked(&self) -> Asked {
        Asked {
            max_tokens: self.max_tokens.map(i64::from),
            temperature: self.temperature.map(f64::from),
            top_p: self.top_p.map(f64::from),
            top_k: self.top_k.map(i64::from),
            min_p: self.min_p.map(f64::from),
            seed: self.seed,
            ignore_eos: self.ignore_eos,
            ..Asked::default()
        }
    }

    pub(super) fn sampling(&self) -> proto::v1::Sampling {
        proto::v1::Sampling {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            seed: self.seed,
            ignore_eos: self.ignore_eos,
            ..proto::v1::Sampling::default()
        }
    }
}

/// JSON lines of a file, or of stdin for `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Request>> {
    let named = || format!("--input {}", path.display());
    let text =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) }
            .with_context(named)?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {}", named(), index + 1))
        })
        .collect()
}
