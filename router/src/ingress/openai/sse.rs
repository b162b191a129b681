//! The answer as server-sent events: one write a delta.

use std::convert::Infallible;
use std::io::Write;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use proto::v1::GenerateResponse;
use serde::{Deserialize, Serialize};
use text::{Part, ReplyParser};

use super::answer::{CallBody, Choice, Content, Frame, Kind, Turn, UsageBody, finish_reason};
use super::logprobs::Logprobs;
use super::problem;
use crate::error::Error;
use crate::relay::TokenStream;

const DONE: &[u8] = b"data: [DONE]\n\n";

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Deltas of all choices, each with its index.
type Merged = BoxStream<'static, (usize, Result<GenerateResponse, Error>)>;

pub(super) fn response(frame: Frame, choices: Vec<TokenStream>, options: StreamOptions) -> Response {
    let started = choices.iter().map(Started::new).collect();
    let events = Events { frame, options, choices: started, usage: UsageBody::default() };
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(bytes(events, merged(choices)))).into_response()
}

fn merged(choices: Vec<TokenStream>) -> Merged {
    let mut streams = choices
        .into_iter()
        .enumerate()
        .map(|(index, tokens)| tokens.into_stream().map(move |delta| (index, delta)).boxed());
    match (streams.next(), streams.len()) {
        (Some(only), 0) => only,
        (first, _) => stream::select_all(first.into_iter().chain(streams)).boxed(),
    }
}

fn bytes(events: Events, merged: Merged) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((events, merged)), |state| async move {
        let (mut events, mut merged) = state?;
        loop {
            match merged.next().await {
                Some((index, Ok(delta))) => {
                    let bytes = events.delta(index, &delta);
                    if !bytes.is_empty() {
                        return Some((Ok(bytes.into()), Some((events, merged))));
                    }
                }
                // One failed choice ends the answer; dropping the streams cancels the others.
                Some((_, Err(error))) => return Some((Ok(failed(&error).into()), None)),
                None => return Some((Ok(events.end().into()), None)),
            }
        }
    })
}

struct Events {
    frame: Frame,
    options: StreamOptions,
    choices: Vec<Started>,
    usage: UsageBody,
}

/// How far a choice is.
struct Started {
    has_role: bool,
    /// Characters of the tokens so far.
    offset: usize,
    parser: ReplyParser,
    /// Calls that began.
    calls: usize,
}

impl Started {
    fn new(tokens: &TokenStream) -> Self {
        Self { has_role: false, offset: 0, parser: tokens.reply().parser(), calls: 0 }
    }

    /// What a delta means in a chat; at least one turn if it has more than text.
    fn parts(&mut self, delta: &GenerateResponse) -> Vec<Part> {
        let mut parts = self.parser.push(&delta.text);
        if delta.finish.is_some() {
            parts.extend(self.parser.finish());
        }
        parts.retain(|part| *part != Part::CallEnd);
        if parts.is_empty() && (!delta.logprobs.is_empty() || delta.finish.is_some()) {
            parts.push(Part::Text(String::new()));
        }
        parts
    }

    fn turn<'p>(&mut self, part: &'p Part, frame: &Frame) -> Turn<'p> {
        let role = (!std::mem::replace(&mut self.has_role, true)).then_some("assistant");
        let turn = Turn { role, ..Turn::default() };
        match part {
            Part::Text(text) => {
                let shown = role.is_some() || !text.is_empty();
                Turn { content: shown.then_some(Some(text)), ..turn }
            }
            Part::Reasoning(text) => Turn { reasoning_content: Some(text), ..turn },
            Part::Call { name } => {
                self.calls += 1;
                Turn { tool_calls: vec![CallBody::first(self.calls - 1, frame.call_id(), name)], ..turn }
            }
            Part::Arguments(json) => {
                Turn { tool_calls: vec![CallBody::more(self.calls.saturating_sub(1), json)], ..turn }
            }
            Part::CallEnd => turn,
        }
    }
}

impl Events {
    /// The events of one delta; nothing while all of its text is held back.
    fn delta(&mut self, index: usize, delta: &GenerateResponse) -> Vec<u8> {
        if delta.text.is_empty() && delta.logprobs.is_empty() && delta.finish.is_none() {
            return Vec::new();
        }
        let kind = self.frame.kind;
        let started = &mut self.choices[index];
        let parts = match kind {
            Kind::Completion => Vec::new(),
            Kind::Chat => started.parts(delta),
        };
        let contents: Vec<Content<'_>> = match kind {
            Kind::Completion => vec![Content::Text(&delta.text)],
            Kind::Chat => parts.iter().map(|part| Content::Delta(started.turn(part, &self.frame))).collect(),
        };
        let mut logprobs =
            (!delta.logprobs.is_empty()).then(|| Logprobs::of(kind, &delta.logprobs, &mut started.offset));
        let calls = started.parser.calls();
        let last = contents.len().saturating_sub(1);
        let mut bytes = Vec::new();
        for (number, content) in contents.into_iter().enumerate() {
            let finish = delta.finish.as_ref().filter(|_| number == last);
            let finish_reason = finish.map(|finish| finish_reason(finish, calls));
            let choice = Choice { index, content, logprobs: logprobs.take(), finish_reason };
            let mut chunk = self.frame.chunk(vec![choice]);
            chunk.usage = self.options.include_usage.then_some(None);
            chunk.timing = finish.and_then(|_| delta.timing.clone()).map(Into::into);
            bytes.extend(event(&chunk));
        }
        if let Some(usage) = &delta.usage {
            self.frame.count(index, usage, &mut self.usage);
        }
        bytes
    }

    fn end(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.options.include_usage {
            let mut chunk = self.frame.chunk(Vec::new());
            chunk.usage = Some(Some(self.usage));
            bytes = event(&chunk);
        }
        bytes.extend_from_slice(DONE);
        bytes
    }
}

fn failed(error: &Error) -> Vec<u8> {
    tracing::info!(%error, "request ended");
    let mut bytes = event(&problem::body(error));
    bytes.extend_from_slice(DONE);
    bytes
}

fn event(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut bytes, value)
        .and_then(|()| bytes.write_all(b"\n\n").map_err(serde_json::Error::io))
    {
        tracing::error!(%error, "an event could not be written");
    }
    bytes
}
