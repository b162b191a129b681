//! Tools, thoughts, and what else a conversation is rendered with.

use serde::Deserialize;
use serde_json::{Map, Value};
use text::{ChatOptions, Tool};

use crate::error::Error;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolsBody {
    tools: Option<Vec<Value>>,
    tool_choice: Value,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<String>,
    /// Variables of the template's own; an extension that others made common.
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl ToolsBody {
    /// For the API without conversations: harmless values only.
    pub(super) fn refuse(&self) -> Result<(), Error> {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        if has_tools {
            Err(Error::invalid("tools", "is not supported"))
        } else {
            self.forbidden().map(|_| ())
        }
    }

    pub(super) fn checked(self) -> Result<ChatOptions, Error> {
        let tools_forbidden = self.forbidden()?;
        let tools = self.tools.unwrap_or_default();
        if !tools.is_empty() && self.parallel_tool_calls == Some(false) {
            return Err(Error::invalid("parallel_tool_calls", "false is not supported"));
        }
        let tools = tools.into_iter().enumerate().map(|(index, tool)| checked(index, tool));
        let tools = tools.collect::<Result<_, _>>()?;
        let mut variables = self.chat_template_kwargs.unwrap_or_default();
        let effort = match (self.reasoning_effort, variables.shift_remove("reasoning_effort")) {
            (Some(effort), _) | (None, Some(Value::String(effort))) => Some(effort),
            (None, None | Some(Value::Null)) => None,
            (None, Some(_)) => {
                return Err(Error::invalid("chat_template_kwargs.reasoning_effort", "must be a string"));
            }
        };
        Ok(ChatOptions { tools, tools_forbidden, effort, variables })
    }

    fn forbidden(&self) -> Result<bool, Error> {
        match &self.tool_choice {
            Value::Null => Ok(false),
            Value::String(choice) if choice == "auto" => Ok(false),
            Value::String(choice) if choice == "none" => Ok(true),
            _ => Err(Error::invalid("tool_choice", "is not supported, only \"auto\" and \"none\" are")),
        }
    }
}

fn checked(index: usize, tool: Value) -> Result<Tool, Error> {
    let refused = |field: &str, why: &str| Err(Error::invalid(format!("tools[{index}]{field}"), why));
    let Value::Object(declaration) = tool else {
        return refused("", "must be an object");
    };
    if declaration.get("type").is_some_and(|kind| kind != "function") {
        return refused(".type", "is not supported, only \"function\" is");
    }
    match Tool::new(declaration) {
        Some(tool) => Ok(tool),
        None => refused(".function.name", "is required"),
    }
}
