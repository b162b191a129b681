//! A request before and after its check. Both doors bring an [`Asked`]; only a [`Request`] goes on.

use std::time::SystemTime;

use process::Random;
use programs::sampling::{self, Sampling};
use text::{ChatOptions, Message, Rendered, ReplyStyle};

use crate::error::Error;
use crate::model::Model;

#[cfg(test)]
mod tests;

const MAX_ID_BYTES: usize = 128;

/// Which API a client speaks: the two name fields differently, and errors name them as the client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    #[default]
    Grpc,
    Http,
}

impl Door {
    fn sampling(self, field: &str) -> String {
        match self {
            Self::Grpc => format!("sampling.{field}"),
            Self::Http => field.to_owned(),
        }
    }

    fn token_ids(self) -> &'static str {
        match self {
            Self::Grpc => "prompt.tokens.ids",
            Self::Http => "prompt",
        }
    }

    /// A field of a conversation or of what it is rendered with.
    pub(crate) fn chat(self, field: &str) -> String {
        match self {
            Self::Grpc => format!("prompt.chat.{field}"),
            Self::Http => field.to_owned(),
        }
    }
}

/// What a client wrote, whichever door it came through.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub door: Door,
    /// Empty: the router makes one.
    pub request_id: String,
    pub model: String,
    pub prompt: Prompt,
    pub sampling: sampling::Asked,
    /// Stands in for an unset `max_tokens`; without it the context is the limit.
    pub default_max_tokens: Option<u32>,
    pub priority: i32,
    pub tenant: String,
    pub cache_salt: String,
}

/// The prompt in one of its forms.
#[derive(Clone, Debug, Default)]
pub enum Prompt {
    #[default]
    Missing,
    Text(String),
    Tokens(Vec<i64>),
    Chat(Chat),
}

/// A conversation, and what it is rendered with.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    pub messages: Vec<Message>,
    pub options: ChatOptions,
}

impl Prompt {
    /// Bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Missing | Self::Tokens(_) => 0,
            Self::Text(text) => text.len(),
            Self::Chat(chat) => {
                let tools: usize = chat.options.tools.iter().map(text::Tool::bytes).sum();
                tools + chat.messages.iter().map(Message::bytes).sum::<usize>()
            }
        }
    }
}

/// A request in which every field is right: it can be served as soon as there is room.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: String,
    pub prompt: Vec<u32>,
    /// `max_tokens` is set.
    pub sampling: Sampling,
    /// Prompt and output together fit the context.
    pub max_tokens: u32,
    /// The model's own unless ignored, and the request's.
    pub end_tokens: Vec<u32>,
    /// How the answer is to be read.
    pub reply: ReplyStyle,
    pub priority: i32,
    pub tenant: String,
    pub cache_salt: String,
}

impl Request {
    /// Checks everything that can be checked without a worker, and tokenizes. `context`: longest prompt and output
    /// together; `random`: of what a request does not name; `now`: for chat templates that write the date.
    pub fn check(
        asked: Asked,
        model: &Model,
        context: u32,
        random: &Random,
        now: SystemTime,
    ) -> Result<Self, Error> {
        if asked.model != model.name {
            return Err(unknown_model(asked.model, model));
        }
        let id = checked_id(asked.request_id, random)?;
        let mut sampling = asked
            .sampling
            .checked(model.vocabulary, random.seed())
            .map_err(|refused| Error::invalid(asked.door.sampling(refused.field), refused.why))?;
        let (prompt, reply) = tokens(asked.door, asked.prompt, model, context, now)?;
        let room = room(prompt.len(), context)?;
        let max_tokens = sampling
            .max_tokens
            .unwrap_or_else(|| asked.default_max_tokens.map_or(room, |most| most.min(room)));
        if max_tokens > room {
            let tokens = prompt.len() as u64 + u64::from(max_tokens);
            return Err(Error::ContextLength { field: asked.door.sampling("max_tokens"), tokens, context });
        }
        sampling.max_tokens = Some(max_tokens);
        let mut end_tokens = if sampling.ignore_eos { Vec::new() } else { model.end_tokens.clone() };
        end_tokens.extend(&sampling.stop_token_ids);
        Ok(Self {
            id,
            prompt,
            sampling,
            max_tokens,
            end_tokens,
            reply,
            priority: asked.priority,
            tenant: asked.tenant,
            cache_salt: asked.cache_salt,
        })
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> u32 {
        u32::try_from(self.prompt.len()).unwrap_or(u32::MAX)
    }
}

fn unknown_model(asked: String, model: &Model) -> Error {
    if asked.is_empty() {
        return Error::invalid("model", format!("is required; {:?} is served here", model.name));
    }
    Error::UnknownModel { model: asked, served: model.name.clone() }
}

fn checked_id(id: String, random: &Random) -> Result<String, Error> {
    if id.is_empty() {
        return Ok(random.uuid().to_string());
    }
    if id.len() > MAX_ID_BYTES || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::invalid(
            "request_id",
            format!("must be at most {MAX_ID_BYTES} visible ASCII characters"),
        ));
    }
    Ok(id)
}

/// Tokens that may follow a prompt of this length.
fn room(prompt_tokens: usize, context: u32) -> Result<u32, Error> {
    if prompt_tokens == 0 {
        return Err(Error::invalid("prompt", "is empty"));
    }
    let tokens = prompt_tokens as u64;
    u32::try_from(tokens)
        .ok()
        .and_then(|tokens| context.checked_sub(tokens))
        .filter(|&room| room > 0)
        .ok_or_else(|| Error::ContextLength { field: "prompt".to_owned(), tokens, context })
}

fn tokens(
    door: Door,
    prompt: Prompt,
    model: &Model,
    context: u32,
    now: SystemTime,
) -> Result<(Vec<u32>, ReplyStyle), Error> {
    let failed = |error: text::Error| Error::invalid("prompt", error.to_string());
    let ids = match prompt {
        Prompt::Missing => return Err(Error::invalid("prompt", "is required")),
        Prompt::Text(text) => {
            refuse_endless(text.len(), model, context)?;
            if text.is_empty() {
                return Err(Error::invalid("prompt", "is empty"));
            }
            model.tokenizer.encode(&text).map_err(failed)?
        }
        Prompt::Tokens(ids) => {
            ids.into_iter().map(|id| token(door, id, model.vocabulary)).collect::<Result<_, _>>()?
        }
        Prompt::Chat(chat) => {
            let rendered = rendered(door, &chat, model, now)?;
            refuse_endless(rendered.prompt.bytes(), model, context)?;
            let ids = model.tokenizer.encode_prompt(&rendered.prompt).map_err(failed)?;
            return Ok((ids, rendered.reply));
        }
    };
    Ok((ids, ReplyStyle::plain()))
}

fn rendered(door: Door, chat: &Chat, model: &Model, now: SystemTime) -> Result<Rendered, Error> {
    let refused = |field: &str, why: &str| Err(Error::invalid(door.chat(field), why));
    if chat.messages.is_empty() {
        return refused("messages", "is empty");
    }
    let Some(template) = &model.chat else {
        return refused("messages", "the model has no chat template");
    };
    if !template.has_tools() {
        let outcome = chat.messages.iter().position(|message| matches!(message, Message::Tool(_)));
        if let Some(index) = outcome {
            return refused(&format!("messages[{index}].role"), "the model has no tools");
        }
        if !chat.options.tools.is_empty() {
            return refused("tools", "is not supported: the model has none");
        }
    }
    template.render(&chat.messages, &chat.options, now).map_err(|error| match error {
        text::Error::Messages(why) => Error::invalid(door.chat("messages"), why),
        text::Error::Refused { field, why } => Error::invalid(door.chat(&field), why),
        other => Error::Internal(other.to_string()),
    })
}

/// Refuses a text that is too long however it is cut, before minutes are spent on cutting it.
fn refuse_endless(bytes: usize, model: &Model, context: u32) -> Result<(), Error> {
    let fewest = (bytes / model.tokenizer.longest_token_bytes().max(1)) as u64;
    if fewest > u64::from(context) {
        return Err(Error::ContextLength { field: "prompt".to_owned(), tokens: fewest, context });
    }
    Ok(())
}

fn token(door: Door, id: i64, vocabulary: u32) -> Result<u32, Error> {
    u32::try_from(id).ok().filter(|&id| id < vocabulary).ok_or_else(|| {
        Error::invalid(door.token_ids(), format!("token id {id} is not in the vocabulary of {vocabulary}"))
    })
}
