//! The template that a checkpoint brings along.

use std::borrow::Cow;
use std::path::Path;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, ErrorKind, Value};
use serde::Deserialize;

use super::{ChatOptions, Message};
use crate::error::{Error, read};
use crate::prompt::{Prompt, Segment};
use crate::python::{dumps, dumps_indented};

#[cfg(test)]
mod tests;

const TEMPLATE: &str = "chat";

/// Breaks a special token's name within what a client wrote, while the template does its work. Unicode promises that
/// no text has this code point.
const BREAK: char = '\u{FDD0}';

/// A compiled chat template, with the variables that Hugging Face's templates expect.
#[derive(Debug)]
pub(super) struct Jinja {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<TemplateEntry>,
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateEntry {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Added { content: String },
}

impl Jinja {
    /// Reads `chat_template.jinja` in `folder`, else `chat_template` in `tokenizer_config.json`.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let config_path = folder.join("tokenizer_config.json");
        let config: TokenizerConfig = if config_path.exists() {
            serde_json::from_str(&read(&config_path)?)
                .map_err(|error| Error::malformed(&config_path, error))?
        } else {
            TokenizerConfig::default()
        };
        let template_path = folder.join("chat_template.jinja");
        let (path, source) = if template_path.exists() {
            (&template_path, Some(read(&template_path)?))
        } else {
            (&config_path, config.chat_template.and_then(TemplateEntry::into_source))
        };
        let source = source.ok_or(Error::NoChatTemplate)?;
        let bos_token = config.bos_token.map(SpecialToken::into_text);
        let eos_token = config.eos_token.map(SpecialToken::into_text);
        Self::from_source(source, bos_token, eos_token).map_err(|why| Error::malformed(path, why))
    }

    /// The prompt for `messages`, ready for the assistant's answer. `markers`: names of special tokens, which only the
    /// template can write. `now` is what `strftime_now` formats, in UTC.
    pub(super) fn render(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        markers: &[String],
        now: SystemTime,
    ) -> Result<Prompt, Error> {
        let messages: Vec<serde_json::Value> =
            messages.iter().map(|message| broken(message.to_json(), markers)).collect();
        let text = self.text(messages, options, markers, now)?;
        if !text.contains(BREAK) {
            return Ok(Prompt::of_template(text));
        }
        let markers: Vec<&str> = markers.iter().map(String::as_str).collect();
        let mut marked = Prompt::default();
        marked.template(&text, &markers);
        let mut prompt = Prompt::default();
        for segment in marked.segments() {
            match segment {
                Segment::Marker(name) => prompt.marker(name),
                Segment::Text(text) | Segment::Template(text) => prompt.text(&text.replace(BREAK, "")),
            }
        }
        Ok(prompt)
    }

    fn text(
        &self,
        messages: Vec<serde_json::Value>,
        options: &ChatOptions,
        markers: &[String],
        now: SystemTime,
    ) -> Result<String, Error> {
        let refused = |error: minijinja::Error| Error::Messages(reason(&error));
        let template = self.environment.get_template(TEMPLATE).map_err(refused)?;
        let mut variables: Vec<(&str, Value)> = Vec::new();
        // First, so that no client takes the place of what follows.
        for (name, value) in &options.variables {
            variables.push((name, Value::from(Serde(broken(value.clone(), markers)))));
        }
        variables.push(("messages", Value::from(Serde(messages))));
        let now = Value::from_function(move |format: String| strftime(&format, now));
        variables.push(("strftime_now", now));
        variables.push(("add_generation_prompt", true.into()));
        // transformers leaves tokens that the tokenizer lacks undefined, not none.
        variables.extend(self.bos_token.as_deref().map(|token| ("bos_token", token.into())));
        variables.extend(self.eos_token.as_deref().map(|token| ("eos_token", token.into())));
        if !options.tools.is_empty() && !options.tools_forbidden {
            let declared = options.tools.iter().map(|tool| tool.declaration().clone().into());
            let tools: Vec<serde_json::Value> = declared.map(|tool| broken(tool, markers)).collect();
            variables.push(("tools", Value::from(Serde(tools))));
        }
        variables.extend(options.effort.as_deref().map(|effort| ("reasoning_effort", effort.into())));
        template.render(Value::from_pairs(variables)).map_err(refused)
    }

    fn from_source(
        source: String,
        bos_token: Option<String>,
        eos_token: Option<String>,
    ) -> Result<Self, minijinja::Error> {
        let mut environment = Environment::new();
        // As transformers sets up jinja2.
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_filter("tojson", to_json);
        environment.add_template_owned(TEMPLATE, source)?;
        Ok(Self { environment, bos_token, eos_token })
    }
}

impl TemplateEntry {
    fn into_source(self) -> Option<String> {
        match self {
            Self::One(source) => Some(source),
            Self::Named(all) => {
                all.into_iter().find(|entry| entry.name == "default").map(|entry| entry.template)
            }
        }
    }
}

impl SpecialToken {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Added { content: text } => text,
        }
    }
}

/// As transformers defines it, whatever the engine's own does about spaces and angle brackets.
fn to_json(value: &Value, options: Kwargs) -> Result<String, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    Ok(indent.map_or_else(|| dumps(value), |indent| dumps_indented(value, indent)))
}

/// `value` with every special token's name in it broken.
fn broken(value: serde_json::Value, markers: &[String]) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => break_markers(&text, markers).into_owned().into(),
        serde_json::Value::Array(values) => values.into_iter().map(|value| broken(value, markers)).collect(),
        serde_json::Value::Object(object) => object
            .into_iter()
            .map(|(key, value)| (break_markers(&key, markers).into_owned(), broken(value, markers)))
            .collect(),
        plain @ (serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => {
            plain
        }
    }
}

fn break_markers<'t>(text: &'t str, markers: &[String]) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for marker in markers {
        let Some(first) = marker.chars().next() else { continue };
        if text.contains(marker.as_str()) {
            let (head, tail) = marker.split_at(first.len_utf8());
            text = Cow::Owned(text.replace(marker.as_str(), &format!("{head}{BREAK}{tail}")));
        }
    }
    text
}

fn strftime(format: &str, now: SystemTime) -> Result<String, minijinja::Error> {
    let failed = |error: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, error.to_string());
    let utc = jiff::Timestamp::try_from(now).map_err(failed)?.to_zoned(jiff::tz::TimeZone::UTC);
    jiff::fmt::strtime::format(format, &utc).map_err(failed)
}

/// The template's own words where it raised, else the engine's.
fn reason(error: &minijinja::Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::InvalidOperation, Some(raised)) => raised.to_owned(),
        _ => format!("the chat template failed: {error}"),
    }
}
