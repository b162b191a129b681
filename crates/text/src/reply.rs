//! What the model wrote, taken apart: thoughts, answer, calls of tools.
//!
//! A pure state machine over streamed text. Pieces may be cut anywhere, within markers too; what comes out, joined, is
//! the same.

mod arguments;
mod glm;
mod k3;
mod scanner;

use std::sync::Arc;

use crate::chat::Tool;
use crate::family::Family;
use crate::prompt::Prompt;
use arguments::Schemas;
use scanner::Grammar;

#[cfg(test)]
mod tests;

/// The part of an answer that a prompt ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Thinking,
    Answer,
}

impl Opening {
    /// Of a prompt that a checkpoint's own template wrote.
    pub(crate) fn of(family: Family, prompt: &Prompt) -> Self {
        let last = match family {
            Family::KimiK3 => "<|open|>think<|sep|>",
            Family::Glm5Next => "<think>",
        };
        if prompt.to_string().trim_end().ends_with(last) { Self::Thinking } else { Self::Answer }
    }
}

/// How the answer to one prompt is to be read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReplyStyle {
    family: Option<Family>,
    opening: Opening,
    schemas: Arc<Schemas>,
}

impl ReplyStyle {
    /// Without a family all is text. Calls are looked for if there are tools.
    pub fn new(family: Option<Family>, opening: Opening, tools: &[Tool]) -> Self {
        Self { family, opening, schemas: Arc::new(Schemas::of(tools)) }
    }

    /// All is text.
    pub fn plain() -> Self {
        Self::new(None, Opening::Answer, &[])
    }

    /// A fresh parser for one answer.
    pub fn parser(&self) -> ReplyParser {
        let machine = match self.family {
            None => Machine::Plain,
            Some(Family::Glm5Next) => Machine::Glm(glm::Glm::new(self.opening, Arc::clone(&self.schemas))),
            Some(Family::KimiK3) => Machine::K3(k3::K3::new(self.opening, !self.schemas.is_empty())),
        };
        ReplyParser { machine, calls: 0 }
    }
}

/// A piece of an answer; pieces of the same kind in a row belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Reasoning(String),
    Text(String),
    /// A call begins; the arguments that follow are its.
    Call {
        name: String,
    },
    /// A piece of JSON.
    Arguments(String),
    /// The arguments are whole.
    CallEnd,
}

/// The parser of one answer.
#[derive(Debug)]
pub struct ReplyParser {
    machine: Machine,
    calls: usize,
}

#[derive(Debug)]
enum Machine {
    Plain,
    Glm(glm::Glm),
    K3(k3::K3),
}

impl ReplyParser {
    /// What is sure after this piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let parts = match &mut self.machine {
            Machine::Plain => text_part(text.to_owned()).into_iter().collect(),
            Machine::Glm(glm) => glm.push(text),
            Machine::K3(k3) => k3.push(text),
        };
        self.counted(parts)
    }

    /// What is left when no text follows. A call that did not end stays open.
    pub fn finish(&mut self) -> Vec<Part> {
        let parts = match &mut self.machine {
            Machine::Plain => Vec::new(),
            Machine::Glm(glm) => glm.finish(),
            Machine::K3(k3) => k3.finish(),
        };
        self.counted(parts)
    }

    /// Calls that ended.
    pub fn calls(&self) -> usize {
        self.calls
    }

    fn counted(&mut self, parts: Vec<Part>) -> Vec<Part> {
        self.calls += parts.iter().filter(|part| **part == Part::CallEnd).count();
        parts
    }
}

/// Nothing for no text.
fn text_part(text: String) -> Option<Part> {
    (!text.is_empty()).then_some(Part::Text(text))
}

/// Text without the white space around it, while it arrives.
#[derive(Debug, Default)]
struct Trimmed {
    begun: bool,
    /// White space that is shown only if more follows.
    held: String,
}

impl Trimmed {
    fn push(&mut self, text: &str) -> Option<Part> {
        let text = if self.begun { text } else { text.trim_start() };
        let end = text.trim_end().len();
        if end == 0 {
            self.held.push_str(text);
            return None;
        }
        self.begun = true;
        let mut shown = std::mem::take(&mut self.held);
        shown.push_str(&text[..end]);
        self.held.push_str(&text[end..]);
        text_part(shown)
    }
}
