//! The answer in one piece.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::future::try_join_all;
use proto::v1::{Finish, Logprobs as TokenLogprobs, Timing, Usage};

use super::answer::{Choice, Content, Frame, Kind, Turn, UsageBody, finish_reason};
use super::logprobs::Logprobs;
use crate::error::Error;
use crate::relay::TokenStream;

#[derive(Default)]
struct Collected {
    text: String,
    logprobs: Vec<TokenLogprobs>,
    finish: Finish,
    usage: Usage,
    timing: Timing,
}

/// Waits for every choice.
pub(super) async fn response(frame: Frame, choices: Vec<TokenStream>) -> Result<Response, Error> {
    let collected = try_join_all(choices.into_iter().map(collect)).await?;
    let mut usage = UsageBody::default();
    let mut choices = Vec::new();
    for (index, one) in collected.iter().enumerate() {
        frame.count(index, &one.usage, &mut usage);
        let text = one.text.as_str();
        choices.push(Choice {
            index,
            content: match frame.kind {
                Kind::Completion => Content::Text(text),
                Kind::Chat => Content::Message(Turn { role: Some("assistant"), content: Some(text) }),
            },
            logprobs: (!one.logprobs.is_empty()).then(|| Logprobs::of(frame.kind, &one.logprobs, &mut 0)),
            finish_reason: Some(finish_reason(&one.finish)),
        });
    }
    let mut whole = frame.whole(choices);
    whole.usage = Some(Some(usage));
    let longest = collected.iter().max_by(|a, b| a.timing.total.total_cmp(&b.timing.total));
    whole.timing = longest.map(|one| one.timing.clone().into());
    let json = serde_json::to_vec(&whole).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], Body::from(json)).into_response())
}

async fn collect(mut tokens: TokenStream) -> Result<Collected, Error> {
    let mut all = Collected::default();
    while let Some(delta) = tokens.next().await {
        let delta = delta?;
        all.text.push_str(&delta.text);
        all.logprobs.extend(delta.logprobs);
        if let Some(finish) = delta.finish {
            all.finish = finish;
            all.usage = delta.usage.unwrap_or_default();
            all.timing = delta.timing.unwrap_or_default();
        }
    }
    Ok(all)
}
