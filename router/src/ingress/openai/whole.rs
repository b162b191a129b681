//! The answer in one piece.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::future::try_join_all;
use proto::v1::{Finish, Logprobs as TokenLogprobs, Timing, Usage};
use text::Part;

use super::answer::{CallBody, Choice, Content, Frame, Kind, Turn, UsageBody, finish_reason};
use super::logprobs::Logprobs;
use crate::error::Error;
use crate::relay::TokenStream;

#[derive(Default)]
struct Collected {
    /// In a chat, the answer proper.
    text: String,
    reasoning: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
    calls_ended: usize,
    logprobs: Vec<TokenLogprobs>,
    finish: Finish,
    usage: Usage,
    timing: Timing,
}

/// Waits for every choice.
pub(super) async fn response(frame: Frame, choices: Vec<TokenStream>) -> Result<Response, Error> {
    let collected = try_join_all(choices.into_iter().map(|tokens| collect(frame.kind, tokens))).await?;
    let mut usage = UsageBody::default();
    let mut choices = Vec::new();
    for (index, one) in collected.iter().enumerate() {
        frame.count(index, &one.usage, &mut usage);
        choices.push(Choice {
            index,
            content: match frame.kind {
                Kind::Completion => Content::Text(&one.text),
                Kind::Chat => Content::Message(one.turn(&frame)),
            },
            logprobs: (!one.logprobs.is_empty()).then(|| Logprobs::of(frame.kind, &one.logprobs, &mut 0)),
            finish_reason: Some(finish_reason(&one.finish, one.calls_ended)),
        });
    }
    let mut whole = frame.whole(choices);
    whole.usage = Some(Some(usage));
    let longest = collected.iter().max_by(|a, b| a.timing.total.total_cmp(&b.timing.total));
    whole.timing = longest.map(|one| one.timing.clone().into());
    let json = serde_json::to_vec(&whole).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], Body::from(json)).into_response())
}

async fn collect(kind: Kind, mut tokens: TokenStream) -> Result<Collected, Error> {
    let mut all = Collected::default();
    let mut parser = tokens.reply().parser();
    while let Some(delta) = tokens.next().await {
        let delta = delta?;
        match kind {
            Kind::Completion => all.text.push_str(&delta.text),
            Kind::Chat => all.take(parser.push(&delta.text)),
        }
        all.logprobs.extend(delta.logprobs);
        if let Some(finish) = delta.finish {
            all.finish = finish;
            all.usage = delta.usage.unwrap_or_default();
            all.timing = delta.timing.unwrap_or_default();
        }
    }
    all.take(parser.finish());
    all.calls_ended = parser.calls();
    Ok(all)
}

impl Collected {
    fn take(&mut self, parts: Vec<Part>) {
        for part in parts {
            match (part, self.calls.last_mut()) {
                (Part::Text(text), _) => self.text.push_str(&text),
                (Part::Reasoning(text), _) => self.reasoning.push_str(&text),
                (Part::Call { name }, _) => self.calls.push((name, String::new())),
                (Part::Arguments(json), Some((_, arguments))) => arguments.push_str(&json),
                (Part::Arguments(_), None) | (Part::CallEnd, _) => {}
            }
        }
    }

    fn turn(&self, frame: &Frame) -> Turn<'_> {
        let calls = self.calls.iter();
        let calls = calls.map(|(name, arguments)| CallBody::whole(frame.call_id(), name, arguments));
        let has_content = self.calls.is_empty() || !self.text.is_empty();
        Turn {
            role: Some("assistant"),
            content: Some(has_content.then_some(self.text.as_str())),
            reasoning_content: (!self.reasoning.is_empty()).then_some(self.reasoning.as_str()),
            tool_calls: calls.collect(),
        }
    }
}
