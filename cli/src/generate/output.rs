//! What a person, or a script, sees of a generation.

use std::io::{self, Write};

use proto::v1::{Timing, Usage};
use serde::Serialize;

/// Text as it comes, or one JSON object at the end of each request.
#[derive(Debug)]
pub(super) struct Output {
    json: bool,
    text: String,
    token_ids: Vec<u32>,
}

/// The end of a request.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    pub(super) finish: String,
    pub(super) prompt_tokens: u32,
    pub(super) drafted_tokens: u32,
    pub(super) accepted_tokens: u32,
    pub(super) queue: f64,
    pub(super) prefill: f64,
    pub(super) transfer: f64,
    pub(super) first_token: f64,
    pub(super) total: f64,
    pub(super) prefill_worker: String,
    pub(super) decode_worker: String,
}

impl Ended {
    pub(super) fn new(finish: String, usage: &Usage, timing: Timing) -> Self {
        Self {
            finish,
            prompt_tokens: usage.prompt_tokens,
            drafted_tokens: usage.drafted_tokens,
            accepted_tokens: usage.accepted_tokens,
            queue: timing.queue,
            prefill: timing.prefill,
            transfer: timing.transfer,
            first_token: timing.first_token,
            total: timing.total,
            prefill_worker: timing.prefill_worker,
            decode_worker: timing.decode_worker,
        }
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    text: &'a str,
    token_ids: &'a [u32],
    #[serde(flatten)]
    ended: &'a Ended,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json, text: String::new(), token_ids: Vec::new() }
    }

    pub(super) fn delta(&mut self, ids: &[u32], text: &str) -> io::Result<()> {
        self.token_ids.extend_from_slice(ids);
        self.text.push_str(text);
        if !self.json {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes())?;
            stdout.flush()?;
        }
        Ok(())
    }

    #[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the program's answer")]
    pub(super) fn end(&mut self, ended: &Ended) -> anyhow::Result<()> {
        if self.json {
            let whole = Whole { text: &self.text, token_ids: &self.token_ids, ended };
            println!("{}", serde_json::to_string(&whole)?);
        } else {
            println!();
            // Both may be one terminal: the text ends before the line about it begins.
            io::stdout().flush()?;
            eprintln!("{}", self.line(ended));
        }
        self.text.clear();
        self.token_ids.clear();
        Ok(())
    }

    /// The first token is prefill's, the rest are decode's.
    fn line(&self, ended: &Ended) -> String {
        let count = self.token_ids.len();
        let decode = (ended.total - ended.first_token).max(0.0);
        let rate = if decode > 0.0 { count.saturating_sub(1) as f64 / decode } else { 0.0 };
        let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        let drafts = match ended.drafted_tokens {
            0 => String::new(),
            drafted => format!(" | {} of {drafted} drafts accepted", ended.accepted_tokens),
        };
        format!(
            "{} prompt tokens, {count} generated{drafts} | queue {} | prefill {} ({:.0} tokens/s) | transfer {} | TTFT {} | decode {} ({rate:.0} tokens/s) | total {}",
            ended.prompt_tokens,
            millis(ended.queue),
            millis(ended.prefill),
            if ended.prefill > 0.0 { f64::from(ended.prompt_tokens) / ended.prefill } else { 0.0 },
            millis(ended.transfer),
            millis(ended.first_token),
            millis(decode),
            millis(ended.total),
        )
    }
}
