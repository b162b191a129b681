//! What HTTP clients write: OpenAI's fields, and the extensions that others made common.

mod messages;
mod tools;
mod unsupported;

use std::collections::BTreeMap;

use axum::body::Body as HttpBody;
use futures::StreamExt;
use programs::sampling;
use serde::Deserialize;

use super::answer::Kind;
use super::sse::StreamOptions;
use crate::error::Error;
use crate::request::{Asked, Chat, Door, Prompt};
use messages::MessageBody;
use tools::ToolsBody;
use unsupported::Unsupported;

#[cfg(test)]
mod tests;

/// Largest body, in bytes.
const LIMIT: usize = 8 << 20;
/// How much of a body over the limit is read and thrown away, so that its sender gets to see the answer.
const DISCARDED: usize = 64 << 20;
/// Most choices of one request: prompts times `n`.
const MAX_CHOICES: usize = 16;
/// OpenAI's default for completions; chats have none.
const COMPLETION_TOKENS: u32 = 16;

/// The whole body as text.
pub(super) async fn read(body: HttpBody) -> Result<String, Error> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| Error::invalid("body", format!("can not be read: {error}")))?;
        length += frame.len();
        match length {
            0..=LIMIT => bytes.extend_from_slice(&frame),
            _ if length <= DISCARDED => bytes = Vec::new(),
            _ => break,
        }
    }
    if length > LIMIT {
        return Err(Error::BodyTooLarge { limit: LIMIT });
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::invalid("body", format!("is not UTF-8 at byte {at}"))
    })
}

/// Reads the body's JSON; a wrong field is named.
pub(super) fn parse(text: &str) -> Result<Body, Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let body: Body = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        // Where the JSON ends in the middle of a name, the path has a question mark in its place.
        let known = path.trim_end_matches('?').trim_end_matches('.');
        let field = if known.is_empty() { "body" } else { known }.to_owned();
        Error::invalid(field, error.into_inner().to_string())
    })?;
    json.end().map_err(|error| Error::invalid("body", error.to_string()))?;
    Ok(body)
}

/// A request as it stands in the body. Unknown fields are ignored, as OpenAI's clients expect.
#[derive(Debug, Deserialize)]
pub(super) struct Body {
    #[serde(default)]
    model: String,
    prompt: Option<PromptBody>,
    messages: Option<Vec<MessageBody>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    seed: Option<i128>,
    repetition_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    stop: Option<StopBody>,
    stop_token_ids: Option<Vec<i64>>,
    ignore_eos: Option<bool>,
    logprobs: Option<LogprobsBody>,
    top_logprobs: Option<i64>,
    logit_bias: Option<BTreeMap<String, f64>>,
    n: Option<i64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    priority: Option<i32>,
    cache_salt: Option<String>,
    #[serde(flatten)]
    tools: ToolsBody,
    #[serde(flatten)]
    unsupported: Unsupported,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a list of strings, or a list of token ids")]
enum PromptBody {
    Text(String),
    Tokens(Vec<i64>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<i64>>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum StopBody {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, or a number")]
enum LogprobsBody {
    Flag(bool),
    Top(i64),
}

/// What a body asks the router to do.
#[derive(Debug)]
pub(super) struct Plan {
    /// One for each choice, in order of their index.
    pub(super) asked: Vec<Asked>,
    pub(super) choices_per_prompt: usize,
    pub(super) stream: Option<StreamOptions>,
}

impl Body {
    /// `seed`: for a request that names none.
    pub(super) fn plan(self, kind: Kind, id: &str, seed: u64) -> Result<Plan, Error> {
        self.unsupported.refuse()?;
        let n = self.n.unwrap_or(1);
        let n = usize::try_from(n)
            .ok()
            .filter(|n| (1..=MAX_CHOICES).contains(n))
            .ok_or_else(|| Error::invalid("n", format!("{n} is not from 1 to {MAX_CHOICES}")))?;
        let sampling = self.sampling(kind, seed)?;
        let default_max_tokens = (kind == Kind::Completion).then_some(COMPLETION_TOKENS);
        let stream = self.stream.unwrap_or(false).then(|| self.stream_options.unwrap_or_default());
        let prompts = prompts(kind, self.prompt, self.messages, self.tools)?;
        let choices = prompts.len() * n;
        if choices > MAX_CHOICES {
            let why = format!("{} prompts with n = {n} are more than {MAX_CHOICES} choices", prompts.len());
            return Err(Error::invalid("prompt", why));
        }
        let asked = (0..choices).map(|index| Asked {
            door: Door::Http,
            request_id: if choices == 1 { id.to_owned() } else { format!("{id}-{index}") },
            model: self.model.clone(),
            prompt: prompts[index / n].clone(),
            sampling: sampling::Asked {
                seed: sampling.seed.map(|seed| derived_seed(seed, index % n)),
                ..sampling.clone()
            },
            default_max_tokens,
            priority: self.priority.unwrap_or(0),
            tenant: String::new(),
            cache_salt: self.cache_salt.clone().unwrap_or_default(),
        });
        Ok(Plan { asked: asked.collect(), choices_per_prompt: n, stream })
    }

    fn sampling(&self, kind: Kind, seed: u64) -> Result<sampling::Asked, Error> {
        Ok(sampling::Asked {
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            seed: Some(self.seed.map_or(Ok(seed), seed_bits)?),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            stop: match &self.stop {
                None => Vec::new(),
                Some(StopBody::One(stop)) => vec![stop.clone()],
                Some(StopBody::Many(stops)) => stops.clone(),
            },
            stop_token_ids: self.stop_token_ids.clone().unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs: self.top_logprobs(kind)?,
            logit_bias: self.logit_bias.iter().flatten().map(bias).collect::<Result<_, _>>()?,
        })
    }

    /// Chats say `logprobs: true, top_logprobs: n`, completions `logprobs: n`.
    fn top_logprobs(&self, kind: Kind) -> Result<Option<i64>, Error> {
        let most = i64::from(sampling::MAX_LOGPROBS);
        match (kind, &self.logprobs, self.top_logprobs) {
            (_, None | Some(LogprobsBody::Flag(false)), None) => Ok(None),
            (Kind::Chat, Some(LogprobsBody::Flag(true)), Some(top)) if !(0..=most).contains(&top) => {
                Err(Error::invalid("top_logprobs", format!("{top} is not from 0 to {most}")))
            }
            (Kind::Chat, Some(LogprobsBody::Flag(true)), top) => Ok(Some(top.unwrap_or(0))),
            (Kind::Completion, Some(LogprobsBody::Top(top)), None) => Ok(Some(*top)),
            (Kind::Chat, Some(LogprobsBody::Top(_)), _) => {
                Err(Error::invalid("logprobs", "must be true or false; the number is top_logprobs"))
            }
            (Kind::Chat, _, Some(_)) => Err(Error::invalid("top_logprobs", "needs logprobs to be true")),
            (Kind::Completion, Some(LogprobsBody::Flag(true)), _) => {
                Err(Error::invalid("logprobs", "must be a number of alternatives"))
            }
            (Kind::Completion, _, Some(_)) => {
                Err(Error::invalid("top_logprobs", "belongs to chats; completions have logprobs"))
            }
        }
    }
}

fn prompts(
    kind: Kind,
    prompt: Option<PromptBody>,
    messages: Option<Vec<MessageBody>>,
    tools: ToolsBody,
) -> Result<Vec<Prompt>, Error> {
    if kind == Kind::Chat {
        let messages = messages.ok_or_else(|| Error::invalid("messages", "is required"))?;
        let messages = messages::checked(messages)?;
        return Ok(vec![Prompt::Chat(Chat { messages, options: tools.checked()? })]);
    }
    tools.refuse()?;
    let prompts = match prompt.ok_or_else(|| Error::invalid("prompt", "is required"))? {
        PromptBody::Text(text) => vec![Prompt::Text(text)],
        PromptBody::Tokens(ids) => vec![Prompt::Tokens(ids)],
        PromptBody::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
        PromptBody::TokenLists(lists) => lists.into_iter().map(Prompt::Tokens).collect(),
    };
    Ok(prompts)
}

/// Any integer of 64 bits, signed or not.
fn seed_bits(seed: i128) -> Result<u64, Error> {
    let signed = i64::try_from(seed).map(i64::cast_unsigned);
    u64::try_from(seed)
        .or(signed)
        .map_err(|_| Error::invalid("seed", format!("{seed} has more than 64 bits")))
}

/// Choice 0 has the request's own seed; the others are as far apart as seeds can be (the golden ratio's bits).
fn derived_seed(seed: u64, choice: usize) -> u64 {
    seed.wrapping_add((choice as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn bias((token, &bias): (&String, &f64)) -> Result<(i64, f64), Error> {
    let id = token.parse().map_err(|_| Error::invalid("logit_bias", format!("{token:?} is no token id")))?;
    Ok((id, bias))
}
