//! Chat messages: text only.

use serde::Deserialize;
use text::Message;

use crate::error::Error;

#[derive(Debug, Deserialize)]
pub(super) struct MessageBody {
    role: String,
    content: Option<ContentBody>,
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

pub(super) fn checked(messages: Vec<MessageBody>) -> Result<Vec<Message>, Error> {
    messages.into_iter().enumerate().map(|(index, message)| message.checked(index)).collect()
}

impl MessageBody {
    fn checked(self, index: usize) -> Result<Message, Error> {
        let content = match self.content {
            Some(ContentBody::Text(text)) => text,
            Some(ContentBody::Parts(parts)) => joined(parts, index)?,
            None => return Err(Error::invalid(format!("messages[{index}].content"), "is required")),
        };
        // OpenAI's newer name for the same role.
        let role = if self.role == "developer" { "system".to_owned() } else { self.role };
        Ok(Message { role, content })
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
