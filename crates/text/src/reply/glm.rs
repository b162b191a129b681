//! GLM's answers: `thoughts</think>answer<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`.
//!
//! Which marker means what in which place: `parser/glm47_moe.py` of vllm 0.33.0.

use std::sync::Arc;

use super::arguments::{Object, Schemas};
use super::scanner::{Grammar, Scanner};
use super::{Opening, Part, Trimmed};

#[derive(Debug)]
pub(super) struct Glm {
    scanner: Scanner,
    state: State,
    /// The template writes answers without the white space around them.
    answer: Trimmed,
    schemas: Arc<Schemas>,
}

#[derive(Debug)]
enum State {
    Thinking,
    Answer,
    Name {
        name: String,
    },
    /// Before an argument, or the end of the call.
    Call(Call),
    Key {
        call: Call,
        key: String,
    },
    /// Between a key and its value.
    Colon {
        call: Call,
        key: String,
    },
    Value {
        call: Call,
        key: String,
        value: String,
    },
}

#[derive(Debug, Default)]
struct Call {
    name: String,
    object: Object,
}

impl Glm {
    pub(super) fn new(opening: Opening, schemas: Arc<Schemas>) -> Self {
        let state = match opening {
            Opening::Thinking => State::Thinking,
            Opening::Answer => State::Answer,
        };
        Self { scanner: Scanner::default(), state, answer: Trimmed::default(), schemas }
    }

    pub(super) fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let rest = self.scanner.rest();
        if !rest.is_empty() {
            self.text(rest, &mut parts);
        }
        parts
    }
}

impl Grammar for Glm {
    fn scanner(&mut self) -> &mut Scanner {
        &mut self.scanner
    }

    fn markers(&self) -> &'static [&'static str] {
        let has_tools = !self.schemas.is_empty();
        match &self.state {
            State::Thinking | State::Answer if has_tools => &["<think>", "</think>", "<tool_call>"],
            State::Thinking | State::Answer => &["<think>", "</think>"],
            State::Name { .. } | State::Call(_) => &["<arg_key>", "</tool_call>"],
            State::Key { .. } => &["</arg_key>"],
            State::Colon { .. } => &["<arg_value>", "</tool_call>"],
            State::Value { .. } => &["</arg_value>"],
        }
    }

    fn text(&mut self, text: String, parts: &mut Vec<Part>) {
        match &mut self.state {
            State::Thinking => parts.push(Part::Reasoning(text)),
            State::Answer => parts.extend(self.answer.push(&text)),
            State::Name { name: open } | State::Key { key: open, .. } | State::Value { value: open, .. } => {
                open.push_str(&text);
            }
            // White space, if anything.
            State::Call(_) | State::Colon { .. } => {}
        }
    }

    fn marker(&mut self, marker: &str, parts: &mut Vec<Part>) {
        let state = std::mem::replace(&mut self.state, State::Answer);
        self.state = match (state, marker) {
            (State::Thinking | State::Answer, "<think>") => State::Thinking,
            (State::Thinking | State::Answer, "<tool_call>") => State::Name { name: String::new() },
            (State::Thinking | State::Answer, _) => State::Answer,
            (State::Name { name }, marker) => {
                let name = name.trim().to_owned();
                parts.push(Part::Call { name: name.clone() });
                Call { name, object: Object::default() }.goes_on(marker, parts)
            }
            (State::Call(call), marker) => call.goes_on(marker, parts),
            (State::Key { call, key }, _) => State::Colon { call, key: key.trim().to_owned() },
            (State::Colon { call, .. }, "</tool_call>") => call.goes_on("</tool_call>", parts),
            (State::Colon { call, key }, _) => State::Value { call, key, value: String::new() },
            (State::Value { mut call, key, value }, _) => {
                let value = self.schemas.typed(&call.name, &key, &value);
                parts.push(call.object.member(&key, &value));
                State::Call(call)
            }
        };
    }
}

impl Call {
    fn goes_on(self, marker: &str, parts: &mut Vec<Part>) -> State {
        if marker == "<arg_key>" {
            return State::Key { call: self, key: String::new() };
        }
        parts.extend(self.object.end());
        State::Answer
    }
}
