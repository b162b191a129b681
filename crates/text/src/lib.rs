//! Text to tokens and back, never half a character; conversations to prompts, and answers to their parts.
//!
//! A checkpoint's own tokenizer and chat template win; Kimi K3 and GLM-5.3-Flash have theirs built in. The router calls
//! in for every request it serves, and `tandem generate --single-process` for its one. Calls nothing of ours: files of
//! a checkpoint's folder go in, values come out.

mod chat;
mod decoder;
mod error;
mod family;
mod prompt;
mod python;
mod reply;
mod stop;
mod tokenizer;

pub use chat::{
    Answer, Arguments, ChatOptions, ChatTemplate, Message, Outcome, Rendered, Said, Tool, ToolCall,
};
pub use decoder::Decoder;
pub use error::Error;
pub use family::Family;
pub use prompt::{Prompt, Segment};
pub use reply::{Opening, Part, ReplyParser, ReplyStyle};
pub use stop::{Checked, StopMatcher};
pub use tokenizer::Tokenizer;
