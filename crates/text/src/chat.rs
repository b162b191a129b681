//! A conversation as the one prompt that the model was trained on.

mod glm;
mod jinja;
mod k3;
mod message;
mod outcomes;

use std::path::Path;
use std::time::SystemTime;

use crate::error::Error;
use crate::family::Family;
use crate::prompt::Prompt;
use crate::reply::{Opening, ReplyStyle};
use crate::tokenizer::Tokenizer;
use jinja::Jinja;
pub use message::{Answer, Arguments, ChatOptions, Message, Outcome, Said, Tool, ToolCall};

/// How a checkpoint wants conversations written.
#[derive(Debug)]
pub struct ChatTemplate {
    renderer: Renderer,
    /// Whose markers answers have.
    family: Option<Family>,
}

#[derive(Debug)]
enum Renderer {
    Jinja { template: Box<Jinja>, markers: Vec<String> },
    Family(Family),
}

/// A conversation, ready for the assistant's answer.
#[derive(Clone, Debug)]
pub struct Rendered {
    pub prompt: Prompt,
    /// How the answer is to be read.
    pub reply: ReplyStyle,
}

impl ChatTemplate {
    /// The template in `folder` (`chat_template.jinja`, else `chat_template` in `tokenizer_config.json`); where there
    /// is none, the one of the tokenizer's family.
    pub fn open(folder: &Path, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let family = tokenizer.family();
        let renderer = match (Jinja::open(folder), family) {
            (Ok(template), _) => {
                Renderer::Jinja { template: Box::new(template), markers: tokenizer.markers() }
            }
            (Err(Error::NoChatTemplate), Some(family)) => Renderer::Family(family),
            (Err(error), _) => return Err(error),
        };
        Ok(Self { renderer, family })
    }

    /// Whether conversations may have tools, and answers call them.
    pub fn has_tools(&self) -> bool {
        self.family.is_some()
    }

    /// The prompt for `messages`. `now`: what a template that writes the date takes it from, in UTC.
    pub fn render(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        now: SystemTime,
    ) -> Result<Rendered, Error> {
        let (prompt, opening) = match &self.renderer {
            Renderer::Jinja { template, markers } => {
                let prompt = template.render(messages, options, markers, now)?;
                let opening = self.family.map_or(Opening::Answer, |family| Opening::of(family, &prompt));
                (prompt, opening)
            }
            Renderer::Family(Family::Glm5Next) => (glm::render(messages, options)?, Opening::Thinking),
            Renderer::Family(Family::KimiK3) => k3::render(messages, options)?,
        };
        let tools = if options.tools_forbidden { &[][..] } else { &options.tools };
        Ok(Rendered { prompt, reply: ReplyStyle::new(self.family, opening, tools) })
    }
}

/// Refuses variables of `chat_template_kwargs` that a family's renderer does not have.
fn refuse_variables(options: &ChatOptions, known: &[&str]) -> Result<(), Error> {
    match options.variables.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let why = format!("is not one of {}", known.join(", "));
            Err(Error::refused(format!("chat_template_kwargs.{name}"), why))
        }
    }
}

/// A variable of `chat_template_kwargs` that is true or false.
fn flag(options: &ChatOptions, name: &str) -> Result<Option<bool>, Error> {
    match options.variables.get(name) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(Error::refused(format!("chat_template_kwargs.{name}"), "must be true or false")),
    }
}

#[cfg(test)]
mod tests;
