//! OpenAI's response objects.

use std::time::SystemTime;

use process::Random;
use proto::v1::{Finish, FinishReason, Timing, Usage};
use serde::Serialize;

use super::logprobs::Logprobs;
use crate::journey::Router;

/// Which of the two APIs is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// What all objects of one answer have in common.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    id: String,
    created: u64,
    model: String,
    choices_per_prompt: usize,
    random: Random,
}

/// A whole answer, or one chunk of it.
#[derive(Debug, Serialize)]
pub(super) struct Object<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    pub(super) choices: Vec<Choice<'a>>,
    /// Absent, null, or there: with `include_usage` every chunk but the last has null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Option<UsageBody>>,
    /// Extension: where the time went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<TimingBody>,
}

#[derive(Debug, Serialize)]
pub(super) struct Choice<'a> {
    pub(super) index: usize,
    #[serde(flatten)]
    pub(super) content: Content<'a>,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) finish_reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Content<'a> {
    Text(&'a str),
    Message(Turn<'a>),
    Delta(Turn<'a>),
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Turn<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    /// Absent, null, or there: null where there are calls instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CallBody<'a>>,
}

/// A call of a tool, or a piece of one.
#[derive(Debug, Serialize)]
pub(super) struct CallBody<'a> {
    /// In pieces only: whose piece it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionBody<'a>,
}

#[derive(Debug, Serialize)]
struct FunctionBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> CallBody<'a> {
    /// A whole call.
    pub(super) fn whole(id: String, name: &'a str, arguments: &'a str) -> Self {
        Self {
            index: None,
            id: Some(id),
            r#type: Some("function"),
            function: FunctionBody { name: Some(name), arguments },
        }
    }

    /// The first piece of call `index`.
    pub(super) fn first(index: usize, id: String, name: &'a str) -> Self {
        Self { index: Some(index), ..Self::whole(id, name, "") }
    }

    /// A further piece of call `index`.
    pub(super) fn more(index: usize, arguments: &'a str) -> Self {
        Self { index: Some(index), id: None, r#type: None, function: FunctionBody { name: None, arguments } }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct UsageBody {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

/// Predictions are the drafts; unlike OpenAI's, rejected ones are not among the completion's tokens.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CompletionDetails {
    accepted_prediction_tokens: u32,
    rejected_prediction_tokens: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct TimingBody {
    queue: f64,
    prefill: f64,
    transfer: f64,
    first_token: f64,
    total: f64,
    prefill_worker: String,
    decode_worker: String,
    migrations: u32,
}

impl Frame {
    pub(super) fn new(kind: Kind, id: &str, router: &Router, choices_per_prompt: usize) -> Self {
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            kind,
            id: format!("{prefix}-{id}"),
            created: since_epoch.as_secs(),
            model: router.model.name.clone(),
            choices_per_prompt,
            random: router.random.clone(),
        }
    }

    /// The id of one more call of a tool.
    pub(super) fn call_id(&self) -> String {
        format!("call_{}", self.random.uuid().simple())
    }

    /// Counts one choice's tokens into the answer's; choices of the same prompt count its tokens once.
    pub(super) fn count(&self, index: usize, usage: &Usage, all: &mut UsageBody) {
        if index.is_multiple_of(self.choices_per_prompt) {
            all.prompt_tokens += usage.prompt_tokens;
            all.prompt_tokens_details.cached_tokens += usage.cached_tokens;
        }
        all.completion_tokens += usage.completion_tokens;
        let details = &mut all.completion_tokens_details;
        details.accepted_prediction_tokens += usage.accepted_tokens;
        details.rejected_prediction_tokens += usage.drafted_tokens.saturating_sub(usage.accepted_tokens);
        all.total_tokens = all.prompt_tokens + all.completion_tokens;
    }

    pub(super) fn whole<'a>(&'a self, choices: Vec<Choice<'a>>) -> Object<'a> {
        let object = if self.kind == Kind::Chat { "chat.completion" } else { "text_completion" };
        self.object(object, choices)
    }

    pub(super) fn chunk<'a>(&'a self, choices: Vec<Choice<'a>>) -> Object<'a> {
        let object = if self.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" };
        self.object(object, choices)
    }

    fn object<'a>(&'a self, object: &'static str, choices: Vec<Choice<'a>>) -> Object<'a> {
        let Self { id, created, model, .. } = self;
        Object { id, object, created: *created, model, choices, usage: None, timing: None }
    }
}

impl From<Timing> for TimingBody {
    fn from(timing: Timing) -> Self {
        let Timing {
            queue,
            prefill,
            transfer,
            first_token,
            total,
            prefill_worker,
            decode_worker,
            migrations,
        } = timing;
        Self { queue, prefill, transfer, first_token, total, prefill_worker, decode_worker, migrations }
    }
}

/// Why the answer ended, as OpenAI says it: a stop string is no reason of its own, `calls` of tools are one.
pub(super) fn finish_reason(finish: &Finish, calls: usize) -> &'static str {
    match finish.reason() {
        FinishReason::Stop if calls > 0 => "tool_calls",
        FinishReason::Stop | FinishReason::StopSequence => "stop",
        FinishReason::Length | FinishReason::Unspecified => "length",
    }
}
