//! Log probabilities in the shapes of both APIs.

use proto::v1::{self, TokenLogprob};
use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::Kind;

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Logprobs {
    Chat { content: Vec<ChatToken> },
    Completion(CompletionTokens),
}

#[derive(Debug, Serialize)]
pub(super) struct ChatToken {
    #[serde(flatten)]
    token: Named,
    top_logprobs: Vec<Named>,
}

/// A token by its text, which is U+FFFD where its bytes are no characters, and by its bytes.
#[derive(Debug, Serialize)]
struct Named {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// One entry a token in each list.
#[derive(Debug, Default, Serialize)]
pub(super) struct CompletionTokens {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Map<String, Value>>,
    /// In characters, from the start of this choice's text.
    text_offset: Vec<usize>,
}

impl Logprobs {
    /// `offset`: characters before these tokens; it is moved behind them.
    pub(super) fn of(kind: Kind, tokens: &[v1::Logprobs], offset: &mut usize) -> Self {
        match kind {
            Kind::Chat => Self::Chat { content: tokens.iter().map(chat).collect() },
            Kind::Completion => Self::Completion(completion(tokens, offset)),
        }
    }
}

fn chat(token: &v1::Logprobs) -> ChatToken {
    let chosen = token.chosen.clone().unwrap_or_default();
    ChatToken { token: named(&chosen), top_logprobs: token.top.iter().map(named).collect() }
}

fn completion(tokens: &[v1::Logprobs], offset: &mut usize) -> CompletionTokens {
    let mut lists = CompletionTokens::default();
    for token in tokens {
        let chosen = named(&token.chosen.clone().unwrap_or_default());
        let mut top: Map<String, Value> =
            token.top.iter().map(named).map(|top| (top.token, top.logprob.into())).collect();
        top.insert(chosen.token.clone(), chosen.logprob.into());
        lists.text_offset.push(*offset);
        *offset += chosen.token.chars().count();
        lists.tokens.push(chosen.token);
        lists.token_logprobs.push(chosen.logprob);
        lists.top_logprobs.push(top);
    }
    lists
}

fn named(token: &TokenLogprob) -> Named {
    Named {
        token: String::from_utf8_lossy(&token.bytes).into_owned(),
        logprob: token.logprob,
        bytes: token.bytes.to_vec(),
    }
}
