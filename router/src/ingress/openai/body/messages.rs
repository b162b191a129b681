//! Chat messages: text, and calls of tools.

use serde::Deserialize;
use serde_json::{Map, Value};
use text::{Answer, Arguments, Message, Outcome, Said, ToolCall};

use crate::error::Error;

#[derive(Debug, Deserialize)]
pub(super) struct MessageBody {
    role: String,
    content: Option<ContentBody>,
    name: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<CallBody>>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of parts")]
enum ContentBody {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    r#type: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CallBody {
    id: Option<String>,
    function: FunctionBody,
}

#[derive(Debug, Deserialize)]
struct FunctionBody {
    name: String,
    arguments: Option<ArgumentsBody>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a JSON object as a string")]
enum ArgumentsBody {
    Text(String),
    Object(Map<String, Value>),
}

pub(super) fn checked(messages: Vec<MessageBody>) -> Result<Vec<Message>, Error> {
    messages.into_iter().enumerate().map(|(index, message)| message.checked(index)).collect()
}

impl MessageBody {
    fn checked(self, index: usize) -> Result<Message, Error> {
        let calls = self.tool_calls.unwrap_or_default();
        // The API has messages without content only where there is something else.
        let may_lack = !calls.is_empty() || self.reasoning_content.is_some();
        let content = match self.content {
            Some(ContentBody::Text(text)) => text,
            Some(ContentBody::Parts(parts)) => joined(parts, index)?,
            None if may_lack => String::new(),
            None => return Err(Error::invalid(format!("messages[{index}].content"), "is required")),
        };
        match self.role.as_str() {
            // The second is OpenAI's newer name for the same role.
            "system" | "developer" => Ok(Message::System(Said { content, name: self.name })),
            "user" => Ok(Message::User(Said { content, name: self.name })),
            "assistant" => {
                let calls = calls.into_iter().enumerate().map(|(call, body)| body.checked(index, call));
                let calls = calls.collect::<Result<_, _>>()?;
                Ok(Message::Assistant(Answer { content, reasoning: self.reasoning_content, calls }))
            }
            "tool" => Ok(Message::Tool(Outcome { content, call: self.tool_call_id, name: self.name })),
            other => {
                let why = format!("{other:?} is not one of system, user, assistant, tool");
                Err(Error::invalid(format!("messages[{index}].role"), why))
            }
        }
    }
}

impl CallBody {
    fn checked(self, message: usize, call: usize) -> Result<ToolCall, Error> {
        let arguments = match self.function.arguments {
            None => Some(Arguments::Object(Map::new())),
            Some(ArgumentsBody::Object(object)) => Some(Arguments::Object(object)),
            Some(ArgumentsBody::Text(text)) => Arguments::parse(&text),
        };
        let arguments = arguments.ok_or_else(|| {
            let field = format!("messages[{message}].tool_calls[{call}].function.arguments");
            Error::invalid(field, "must be a JSON object")
        })?;
        Ok(ToolCall { id: self.id, name: self.function.name, arguments })
    }
}

fn joined(parts: Vec<Part>, message: usize) -> Result<String, Error> {
    let mut whole = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        match (part.r#type.as_str(), part.text) {
            ("text", Some(text)) => whole.push_str(&text),
            ("text", None) => {
                let field = format!("messages[{message}].content[{index}].text");
                return Err(Error::invalid(field, "is required"));
            }
            (other, _) => {
                let field = format!("messages[{message}].content[{index}].type");
                return Err(Error::invalid(field, format!("{other:?} is not supported, only \"text\" is")));
            }
        }
    }
    Ok(whole)
}
