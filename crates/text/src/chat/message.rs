//! A conversation as both doors and all templates know it.

use serde_json::{Map, Value, json};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    System(Said),
    User(Said),
    Assistant(Answer),
    /// What a tool that the assistant called gave back.
    Tool(Outcome),
}

/// What someone said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub content: String,
    /// Who of several with the same role.
    pub name: Option<String>,
}

/// An earlier turn of the model's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub content: String,
    /// What it thought before it answered.
    pub reasoning: Option<String>,
    pub calls: Vec<ToolCall>,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: Option<String>,
    pub name: String,
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    Object(Map<String, Value>),
    /// What the model wrote was no JSON.
    Broken(String),
}

/// The outcome of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub content: String,
    /// The call's id.
    pub call: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
}

/// A tool that the model may call, as the client declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    declaration: Map<String, Value>,
}

/// What a conversation is rendered with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatOptions {
    pub tools: Vec<Tool>,
    /// The model must not call any of them.
    pub tools_forbidden: bool,
    /// How much the model should think; which words there are, the family says.
    pub effort: Option<String>,
    /// Variables of the template's own.
    pub variables: Map<String, Value>,
}

impl Message {
    /// Bytes that the client wrote.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(said) | Self::User(said) => said.content.len(),
            Self::Assistant(answer) => {
                let calls: usize = answer.calls.iter().map(|call| call.arguments.bytes()).sum();
                answer.content.len() + answer.reasoning.as_ref().map_or(0, String::len) + calls
            }
            Self::Tool(outcome) => outcome.content.len(),
        }
    }

    /// As Hugging Face's templates expect it.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| json.insert(key.to_owned(), value);
        let role = match self {
            Self::System(_) => "system",
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::Tool(_) => "tool",
        };
        put("role", role.into());
        match self {
            Self::System(said) | Self::User(said) => {
                put("content", said.content.as_str().into());
                said.name.as_ref().map(|name| put("name", name.as_str().into()));
            }
            Self::Assistant(answer) => {
                put("content", answer.content.as_str().into());
                answer.reasoning.as_ref().map(|text| put("reasoning_content", text.as_str().into()));
                if !answer.calls.is_empty() {
                    put("tool_calls", answer.calls.iter().map(ToolCall::to_json).collect());
                }
            }
            Self::Tool(outcome) => {
                put("content", outcome.content.as_str().into());
                outcome.call.as_ref().map(|id| put("tool_call_id", id.as_str().into()));
                outcome.name.as_ref().map(|name| put("name", name.as_str().into()));
            }
        }
        Value::Object(json)
    }
}

impl ToolCall {
    fn to_json(&self) -> Value {
        let arguments = match &self.arguments {
            Arguments::Object(object) => Value::Object(object.clone()),
            Arguments::Broken(text) => text.as_str().into(),
        };
        json!({"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}})
    }
}

impl Arguments {
    /// From what the API calls arguments: a text that should be a JSON object. Nothing for JSON of another kind.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::Object(Map::new()));
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Some(Self::Object(object)),
            Ok(_) => None,
            Err(_) => Some(Self::Broken(text.to_owned())),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
            Self::Broken(text) => text.len(),
        }
    }
}

impl Tool {
    /// A declaration is an object with `function`, which has a name.
    pub fn new(declaration: Map<String, Value>) -> Option<Self> {
        let tool = Self { declaration };
        (!tool.name().is_empty()).then_some(tool)
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        self.declaration.get("function").and_then(|function| function["name"].as_str()).unwrap_or_default()
    }

    pub(crate) fn declaration(&self) -> &Map<String, Value> {
        &self.declaration
    }

    pub(crate) fn function(&self) -> Option<&Map<String, Value>> {
        self.declaration.get("function")?.as_object()
    }

    /// Bytes of the declaration, about.
    pub fn bytes(&self) -> usize {
        self.declaration.iter().map(|(key, value)| key.len() + size(value)).sum()
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
    }
}
