//! Kimi K3's answers: channels `think`, `response` and `tools` in XTML.
//!
//! Which markers end which channel: `reasoning/kimi_k3_reasoning_parser.py` and `tool_parsers/kimi_k3_tool_parser.py`
//! of vllm 0.33.0. Values are written as they are, so that a value with its own end marker in it ends there.

use serde_json::Value;

use super::arguments::Object;
use super::scanner::{Grammar, Scanner};
use super::{Opening, Part, Trimmed, text_part};

const THINK: &str = "<|open|>think<|sep|>";
const THINK_END: &str = "<|close|>think<|sep|>";
const RESPONSE: &str = "<|open|>response<|sep|>";
const RESPONSE_END: &str = "<|close|>response<|sep|>";
const TOOLS: &str = "<|open|>tools<|sep|>";
const TOOLS_END: &str = "<|close|>tools<|sep|>";
const MESSAGE_END: &str = "<|close|>message<|sep|>";
const CALL: &str = "<|open|>call";
const CALL_END: &str = "<|close|>call<|sep|>";
const ARGUMENT: &str = "<|open|>argument";
const ARGUMENT_END: &str = "<|close|>argument<|sep|>";
const JSON: &str = "<|open|>json";
const JSON_END: &str = "<|close|>json<|sep|>";
const TAG_END: &str = "<|sep|>";

#[derive(Debug)]
pub(super) struct K3 {
    scanner: Scanner,
    state: State,
    /// Text in no channel: none, or an answer whose channel the model forgot.
    stray: Trimmed,
    has_tools: bool,
}

#[derive(Debug)]
enum State {
    /// Between channels.
    Between,
    Think,
    Response,
    Tools,
    CallTag {
        attributes: String,
    },
    Call(Call),
    ArgumentTag {
        call: Call,
        attributes: String,
    },
    Argument {
        call: Call,
        key: String,
        kind: String,
        value: String,
    },
    JsonTag {
        call: Call,
    },
    Json {
        call: Call,
        text: String,
    },
    /// The message is over.
    End,
}

#[derive(Debug)]
struct Call {
    object: Object,
    /// Its arguments came as one text.
    whole: bool,
    /// It has no name, and is left out.
    nameless: bool,
}

impl K3 {
    /// `has_tools`: calls are wanted; without, they are left out.
    pub(super) fn new(opening: Opening, has_tools: bool) -> Self {
        let state = match opening {
            Opening::Thinking => State::Think,
            Opening::Answer => State::Response,
        };
        Self { scanner: Scanner::default(), state, stray: Trimmed::default(), has_tools }
    }

    pub(super) fn finish(&mut self) -> Vec<Part> {
        let rest = self.scanner.rest();
        let mut parts = Vec::new();
        // An output that was cut off within a tag.
        if !rest.is_empty() && !rest.starts_with("<|open|>") && !rest.starts_with("<|close|>") {
            self.text(rest, &mut parts);
        }
        parts
    }
}

impl Grammar for K3 {
    fn scanner(&mut self) -> &mut Scanner {
        &mut self.scanner
    }

    fn markers(&self) -> &'static [&'static str] {
        match &self.state {
            State::Between => &[THINK, RESPONSE, TOOLS, MESSAGE_END],
            State::Think => &[THINK, THINK_END, RESPONSE, TOOLS, MESSAGE_END],
            State::Response => &[RESPONSE, RESPONSE_END, TOOLS, MESSAGE_END],
            State::Tools => &[CALL, TOOLS_END, MESSAGE_END],
            State::CallTag { .. } | State::ArgumentTag { .. } | State::JsonTag { .. } => &[TAG_END],
            State::Call(_) => &[ARGUMENT, JSON, CALL_END],
            State::Argument { .. } => &[ARGUMENT_END],
            State::Json { .. } => &[JSON_END],
            State::End => &[],
        }
    }

    fn text(&mut self, text: String, parts: &mut Vec<Part>) {
        match &mut self.state {
            State::Think => parts.push(Part::Reasoning(text)),
            State::Response => parts.extend(text_part(text)),
            State::CallTag { attributes: open }
            | State::ArgumentTag { attributes: open, .. }
            | State::Argument { value: open, .. }
            | State::Json { text: open, .. } => open.push_str(&text),
            State::Between => parts.extend(self.stray.push(&text)),
            // Nothing that the format has a place for.
            State::Tools | State::Call(_) | State::JsonTag { .. } | State::End => {}
        }
    }

    fn marker(&mut self, marker: &str, parts: &mut Vec<Part>) {
        let state = std::mem::replace(&mut self.state, State::Between);
        self.state = match state {
            State::Between | State::Think | State::Response | State::Tools | State::End => match marker {
                THINK => State::Think,
                RESPONSE => State::Response,
                TOOLS => State::Tools,
                CALL => State::CallTag { attributes: String::new() },
                MESSAGE_END => State::End,
                _ => State::Between,
            },
            State::CallTag { attributes } => {
                let name = attribute(&attributes, "tool").unwrap_or_default();
                let nameless = name.is_empty() || !self.has_tools;
                if !nameless {
                    parts.push(Part::Call { name });
                }
                State::Call(Call { object: Object::default(), whole: false, nameless })
            }
            State::Call(call) => match marker {
                ARGUMENT => State::ArgumentTag { call, attributes: String::new() },
                JSON => State::JsonTag { call },
                _ => {
                    parts.extend(call.end());
                    State::Tools
                }
            },
            State::ArgumentTag { call, attributes } => State::Argument {
                call,
                key: attribute(&attributes, "key").unwrap_or_default(),
                kind: attribute(&attributes, "type").unwrap_or_else(|| "string".to_owned()),
                value: String::new(),
            },
            State::Argument { mut call, key, kind, value } => {
                parts.extend(call.member(&key, &kind, value));
                State::Call(call)
            }
            State::JsonTag { call } => State::Json { call, text: String::new() },
            State::Json { mut call, text } => {
                parts.extend(call.json(text));
                State::Call(call)
            }
        };
    }
}

impl Call {
    /// One argument: a string as it is written, anything else as JSON, and broken JSON as a string.
    fn member(&mut self, key: &str, kind: &str, text: String) -> Option<Part> {
        let value = match serde_json::from_str(&text) {
            Ok(value) if kind != "string" => value,
            Ok(_) | Err(_) => Value::String(text),
        };
        (!self.nameless && !self.whole).then(|| self.object.member(key, &value))
    }

    /// All arguments at once.
    fn json(&mut self, text: String) -> Option<Part> {
        let first = !self.whole && !self.object.has_begun();
        self.whole |= first;
        (first && !self.nameless).then_some(Part::Arguments(text))
    }

    fn end(self) -> Vec<Part> {
        match (self.nameless, self.whole) {
            (true, _) => Vec::new(),
            (false, true) => vec![Part::CallEnd],
            (false, false) => self.object.end().into(),
        }
    }
}

/// The value of `name="..."` in a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let mut rest = tag;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        if key.trim() == name {
            return Some(value.replace("&quot;", "\"").replace("&amp;", "&"));
        }
        rest = after;
    }
    None
}
