//! The checkpoint's chat template: a conversation as the one text that the model was trained on.

use std::path::Path;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};

use crate::error::{Error, read};

#[cfg(test)]
mod tests;

const TEMPLATE: &str = "chat";

/// One turn of a conversation.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    pub content: String,
}

/// A compiled chat template, with the variables that Hugging Face's templates expect.
#[derive(Debug)]
pub struct ChatTemplate {
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

impl ChatTemplate {
    /// Reads `chat_template.jinja` in `folder`, else `chat_template` in `tokenizer_config.json`.
    pub fn open(folder: &Path) -> Result<Self, Error> {
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

    /// The text for `messages`, ready for the assistant's answer. `now` is what `strftime_now` formats, in UTC.
    pub fn render(&self, messages: &[Message], now: SystemTime) -> Result<String, Error> {
        let refused = |error: minijinja::Error| Error::Messages(reason(&error));
        // transformers leaves tokens that the tokenizer lacks undefined, not none.
        let token = |token: Option<&str>| token.map_or(Value::UNDEFINED, Value::from);
        let template = self.environment.get_template(TEMPLATE).map_err(refused)?;
        let strftime_now = Value::from_function(move |format: String| strftime(&format, now));
        let variables = context! {
            messages => Value::from(Serde(messages)),
            strftime_now,
            add_generation_prompt => true,
            bos_token => token(self.bos_token.as_deref()),
            eos_token => token(self.eos_token.as_deref()),
        };
        template.render(variables).map_err(refused)
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
