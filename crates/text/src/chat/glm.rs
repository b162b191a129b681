//! GLM-5.3's conversations.
//!
//! Facts from `srt/parser/glm53_chat_template.py` of sglang 0.5.23, which renders to the letter as the model's own
//! template does. What clients wrote is ordinary text here, whatever it spells.

use std::collections::HashSet;

use serde_json::Value;

use super::outcomes::{outcomes, position, run_end};
use super::{Answer, Arguments, ChatOptions, Message, Outcome, ToolCall, flag, refuse_variables};
use crate::error::Error;
use crate::family::Family;
use crate::prompt::Prompt;
use crate::python::dumps;

const TOOLS_BEFORE: &str = "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
    You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
const TOOLS_AFTER: &str = "</tools>\n\nFor each function call, output the function name and arguments within the \
    following XML format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}\
    </arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>";

/// Members of a function's declaration that the model does not see.
const UNSEEN: [&str; 2] = ["defer_loading", "strict"];

/// The prompt, up to the thoughts that every answer begins with.
pub(super) fn render(messages: &[Message], options: &ChatOptions) -> Result<Prompt, Error> {
    refuse_variables(options, &["clear_thinking", "enable_thinking", "thinking"])?;
    for name in ["enable_thinking", "thinking"] {
        if flag(options, name)? == Some(false) {
            let why = "this model always thinks; reasoning_effort says how much";
            return Err(Error::refused(format!("chat_template_kwargs.{name}"), why));
        }
    }
    let clear_thinking = flag(options, "clear_thinking")?.unwrap_or(false);
    let mut prompt = Prompt::default();
    for marker in ["[gMASK]", "<sop>", "<|system|>"] {
        prompt.marker(marker);
    }
    prompt.text("Reasoning Effort: ");
    prompt.text(effort(options.effort.as_deref())?);
    if !options.tools_forbidden {
        declare(&mut prompt, options);
    }
    let last_user = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let mut index = 0;
    while let Some(message) = messages.get(index) {
        let mut next = index + 1;
        match message {
            Message::System(said) => turn(&mut prompt, "<|system|>", &said.content),
            Message::User(said) => turn(&mut prompt, "<|user|>", &said.content),
            Message::Assistant(answer) => {
                let cleared = clear_thinking && last_user.is_some_and(|last| index <= last);
                render_answer(&mut prompt, answer, cleared, index)?;
            }
            Message::Tool(_) => {
                next = run_end(messages, index);
                let before = index.checked_sub(1).map(|before| &messages[before]);
                render_outcomes(&mut prompt, before, &outcomes(&messages[index..next]));
            }
        }
        index = next;
    }
    prompt.marker("<|assistant|>");
    prompt.marker("<think>");
    Ok(prompt)
}

fn effort(asked: Option<&str>) -> Result<&'static str, Error> {
    match asked {
        None | Some("max") => Ok("Max"),
        Some("high") => Ok("High"),
        Some("low") => Ok("Low"),
        Some(other) => {
            Err(Error::refused("reasoning_effort", format!("{other:?} is not one of low, high, max")))
        }
    }
}

fn declare(prompt: &mut Prompt, options: &ChatOptions) {
    if options.tools.is_empty() {
        return;
    }
    prompt.marker("<|system|>");
    prompt.text(TOOLS_BEFORE);
    let functions = options.tools.iter().filter_map(|tool| tool.function());
    for function in functions.filter(|function| !is_true(function.get("defer_loading"))) {
        let seen = function.iter().filter(|(key, _)| !UNSEEN.contains(&key.as_str()));
        let fields: Vec<String> = seen.map(|(key, value)| format!("\"{key}\": {}", dumps(value))).collect();
        prompt.text(&format!("{{{}}}\n", fields.join(", ")));
    }
    prompt.template(TOOLS_AFTER, Family::Glm5Next.markers());
}

/// As Python takes a value for true.
fn is_true(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(values)) => !values.is_empty(),
        Some(Value::Object(object)) => !object.is_empty(),
    }
}

fn turn(prompt: &mut Prompt, role: &str, content: &str) {
    prompt.marker(role);
    prompt.text(content);
}

/// `cleared`: its thoughts are left out.
fn render_answer(prompt: &mut Prompt, answer: &Answer, cleared: bool, index: usize) -> Result<(), Error> {
    let (reasoning, content) = match &answer.reasoning {
        Some(reasoning) => (reasoning.as_str(), answer.content.as_str()),
        None => thoughts_within(&answer.content),
    };
    prompt.marker("<|assistant|>");
    prompt.marker("<think>");
    if !cleared {
        prompt.text(reasoning);
    }
    prompt.marker("</think>");
    prompt.text(content.trim());
    for (number, call) in answer.calls.iter().enumerate() {
        let Arguments::Object(arguments) = &call.arguments else {
            let field = format!("messages[{index}].tool_calls[{number}].function.arguments");
            return Err(Error::refused(field, "must be a JSON object"));
        };
        prompt.marker("<tool_call>");
        prompt.text(&call.name);
        for (key, value) in arguments {
            prompt.marker("<arg_key>");
            prompt.text(key);
            prompt.marker("</arg_key>");
            prompt.marker("<arg_value>");
            match value {
                Value::String(text) => prompt.text(text),
                other => prompt.text(&dumps(other)),
            }
            prompt.marker("</arg_value>");
        }
        prompt.marker("</tool_call>");
    }
    Ok(())
}

/// Thoughts that a client left in the content: before the first `</think>`; the answer is what follows the last.
fn thoughts_within(content: &str) -> (&str, &str) {
    let (Some((before, _)), Some((_, after))) =
        (content.split_once("</think>"), content.rsplit_once("</think>"))
    else {
        return ("", content);
    };
    let thoughts = before.rsplit_once("<think>").map_or(before, |(_, thoughts)| thoughts);
    (thoughts, after)
}

fn render_outcomes(prompt: &mut Prompt, before: Option<&Message>, outcomes: &[&Outcome]) {
    prompt.marker("<|observation|>");
    let calls = match before {
        Some(Message::Assistant(answer)) => answer.calls.as_slice(),
        Some(Message::System(_) | Message::User(_) | Message::Tool(_)) | None => &[],
    };
    for outcome in in_order_of_calls(calls, outcomes) {
        prompt.marker("<tool_response>");
        prompt.text(&outcome.content);
        prompt.marker("</tool_response>");
    }
}

/// In the order of the calls, where every call and outcome has an id of its own and each outcome's is a call's; else
/// as they came.
fn in_order_of_calls<'o>(calls: &[ToolCall], outcomes: &[&'o Outcome]) -> Vec<&'o Outcome> {
    let distinct = |ids: Vec<Option<&str>>| {
        let mut seen = HashSet::new();
        ids.into_iter().all(|id| id.is_some_and(|id| !id.is_empty() && seen.insert(id)))
    };
    let mut ordered = outcomes.to_vec();
    if !distinct(calls.iter().map(|call| call.id.as_deref()).collect())
        || !distinct(outcomes.iter().map(|outcome| outcome.call.as_deref()).collect())
    {
        return ordered;
    }
    let place = |outcome: &&Outcome| position(calls, outcome.call.as_deref());
    if outcomes.iter().all(|outcome| place(outcome).is_some()) {
        ordered.sort_by_key(place);
    }
    ordered
}
