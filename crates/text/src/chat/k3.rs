//! Kimi K3's conversations: XTML, in which each tag's brackets are tokens.
//!
//! K3 has no Jinja template; `encoding_k3.py` of its repository writes prompts part by part, and each part is
//! tokenized by itself: in `role="user"` the key, `="`, the value and the last quote are four. Facts from there, and
//! from vllm 0.33.0 (`renderers/kimi_k3.py`), which calls it.

use serde_json::{Map, Value, json};

use super::outcomes::{outcomes, position, run_end};
use super::{Answer, Arguments, ChatOptions, Message, Outcome, Said, ToolCall, flag, refuse_variables};
use crate::error::Error;
use crate::prompt::Prompt;
use crate::python::{dumps, dumps_compact};
use crate::reply::Opening;

const EFFORTS: [&str; 3] = ["low", "high", "max"];

/// The prompt, up to the channel that the answer begins in.
pub(super) fn render(messages: &[Message], options: &ChatOptions) -> Result<(Prompt, Opening), Error> {
    refuse_variables(options, &["enable_thinking", "thinking"])?;
    let effort = effort(options)?;
    let mut writer = Writer { prompt: Prompt::default(), thinks: effort.is_some() };
    if !options.tools.is_empty() {
        writer.declare(options);
    }
    if let Some(effort) = effort {
        let body = format!(
            "`thinking_effort` guides on how much to think in your thinking channel (not including the response \
             channel), supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with \
             `thinking_effort={effort}`."
        );
        writer.note("thinking-effort", &body);
    }
    writer.conversation(messages)?;
    if options.tools_forbidden {
        let body = "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
        writer.note("tool-choice", body);
    }
    writer.open("message", &[("role", "assistant")]);
    let (channel, opening) =
        if writer.thinks { ("think", Opening::Thinking) } else { ("response", Opening::Answer) };
    writer.open(channel, &[]);
    Ok((writer.prompt, opening))
}

/// How much to think; nothing: not at all.
fn effort(options: &ChatOptions) -> Result<Option<&str>, Error> {
    let asked = options.effort.as_deref();
    let thinks = match (flag(options, "thinking")?, flag(options, "enable_thinking")?) {
        (Some(thinks), _) | (None, Some(thinks)) => thinks,
        (None, None) => asked != Some("none"),
    };
    match asked {
        None | Some("none") => Ok(thinks.then_some("max")),
        Some(effort) if EFFORTS.contains(&effort) => Ok(thinks.then_some(effort)),
        Some(other) => {
            let why = format!("{other:?} is not one of none, {}", EFFORTS.join(", "));
            Err(Error::refused("reasoning_effort", why))
        }
    }
}

struct Writer {
    prompt: Prompt,
    thinks: bool,
}

impl Writer {
    fn open(&mut self, tag: &str, attributes: &[(&str, &str)]) {
        self.prompt.marker("<|open|>");
        self.prompt.separate(tag);
        for (key, value) in attributes {
            self.prompt.separate(&format!(" {key}"));
            self.prompt.separate("=\"");
            self.prompt.separate(&value.replace('&', "&amp;").replace('"', "&quot;"));
            self.prompt.separate("\"");
        }
        self.prompt.marker("<|sep|>");
    }

    fn close(&mut self, tag: &str) {
        self.prompt.marker("<|close|>");
        self.prompt.separate(tag);
        self.prompt.marker("<|sep|>");
    }

    fn end_message(&mut self) {
        self.close("message");
        self.prompt.marker("<|end_of_msg|>");
    }

    fn message(&mut self, attributes: &[(&str, &str)], content: &str) {
        self.open("message", attributes);
        self.prompt.separate(content);
        self.end_message();
    }

    /// A system message that no client wrote.
    fn note(&mut self, kind: &str, body: &str) {
        self.message(&[("role", "system"), ("type", kind)], body);
    }

    fn declare(&mut self, options: &ChatOptions) {
        let tools: Vec<Value> =
            options.tools.iter().map(|tool| sorted(&Value::Object(tool.declaration().clone()))).collect();
        let body = format!(
            "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```",
            dumps_compact(&tools)
        );
        self.note("tool-declare", &body);
    }

    fn conversation(&mut self, messages: &[Message]) -> Result<(), Error> {
        let mut calls: &[ToolCall] = &[];
        let mut answered = 0;
        let mut index = 0;
        while let Some(message) = messages.get(index) {
            let mut next = index + 1;
            match message {
                Message::System(said) => self.said("system", said),
                Message::User(said) => self.said("user", said),
                Message::Assistant(answer) => {
                    (calls, answered) = (&answer.calls, 0);
                    self.answer(answer, index)?;
                }
                Message::Tool(_) => {
                    next = run_end(messages, index);
                    for outcome in named_in_order(calls, answered, &outcomes(&messages[index..next])) {
                        answered += 1;
                        self.outcome(outcome, answered, index)?;
                    }
                }
            }
            index = next;
        }
        Ok(())
    }

    fn said(&mut self, role: &str, said: &Said) {
        let mut attributes = vec![("role", role)];
        if let Some(name) = said.name.as_deref().filter(|name| !name.is_empty()) {
            attributes.push(("name", name));
        }
        self.message(&attributes, &said.content);
    }

    /// `number`: of the outcomes since the last answer. `run`: index of the first message of its run.
    fn outcome(
        &mut self,
        (name, outcome): (Option<&str>, &Outcome),
        number: usize,
        run: usize,
    ) -> Result<(), Error> {
        let name = name.ok_or_else(|| {
            let why = "belongs to no call: it has no name, and there is no such call before it";
            Error::refused(format!("messages[{run}].tool_call_id"), why)
        })?;
        let attributes = [("role", "tool"), ("tool", name), ("index", &number.to_string())];
        self.message(&attributes, &outcome.content);
        Ok(())
    }

    fn answer(&mut self, answer: &Answer, index: usize) -> Result<(), Error> {
        self.open("message", &[("role", "assistant")]);
        if self.thinks {
            let reasoning = answer.reasoning.as_deref().unwrap_or_default();
            self.open("think", &[]);
            self.prompt.separate(if reasoning.trim().is_empty() { "" } else { reasoning });
            self.close("think");
        }
        self.open("response", &[]);
        self.prompt.separate(&answer.content);
        self.close("response");
        if !answer.calls.is_empty() {
            self.open("tools", &[]);
            for (number, call) in answer.calls.iter().enumerate() {
                if call.name.is_empty() {
                    let field = format!("messages[{index}].tool_calls[{number}].function.name");
                    return Err(Error::refused(field, "is empty"));
                }
                self.call(call, number + 1);
            }
            self.close("tools");
        }
        self.end_message();
        Ok(())
    }

    fn call(&mut self, call: &ToolCall, number: usize) {
        self.open("call", &[("tool", &call.name), ("index", &number.to_string())]);
        match &call.arguments {
            Arguments::Object(arguments) => {
                for (key, value) in arguments {
                    self.open("argument", &[("key", key), ("type", kind(value))]);
                    match value {
                        Value::String(text) => self.prompt.separate(text),
                        other => self.prompt.separate(&dumps(other)),
                    }
                    self.close("argument");
                }
            }
            Arguments::Broken(text) => {
                self.open("json", &[("type", "object")]);
                self.prompt.separate(text);
                self.close("json");
            }
        }
        self.close("call");
    }
}

/// Outcomes with their tools' names. In the order of the calls, where each names a call by its id; else as they came,
/// with their own names or those of the calls at the same places. `before`: outcomes of the same calls so far.
fn named_in_order<'o>(
    calls: &'o [ToolCall],
    before: usize,
    outcomes: &[&'o Outcome],
) -> Vec<(Option<&'o str>, &'o Outcome)> {
    let places: Option<Vec<usize>> =
        outcomes.iter().map(|outcome| position(calls, outcome.call.as_deref())).collect();
    if let Some(places) = places {
        let mut placed: Vec<_> = places.into_iter().zip(outcomes).collect();
        placed.sort_by_key(|(place, _)| *place);
        return placed
            .into_iter()
            .map(|(place, outcome)| (Some(calls[place].name.as_str()), *outcome))
            .collect();
    }
    let at_same_place = |index: usize| calls.get(before + index).map(|call| call.name.as_str());
    let named = |(index, outcome): (usize, &&'o Outcome)| {
        (outcome.name.as_deref().or_else(|| at_same_place(index)), *outcome)
    };
    outcomes.iter().enumerate().map(named).collect()
}

/// The type of an argument as XTML names it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// With all keys in order, so that the same tools are the same text.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_unstable();
            let members = keys.into_iter().map(|key| (key.clone(), sorted(&object[key])));
            Value::Object(members.collect::<Map<String, Value>>())
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        other => json!(other),
    }
}
