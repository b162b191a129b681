//! Arguments of calls: values in a family's spelling, made JSON.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Part;
use crate::chat::Tool;
use crate::python::dumps;

/// What tools say about their parameters: by tool, the JSON schema of its arguments.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    by_tool: HashMap<String, Value>,
}

impl Schemas {
    pub(super) fn of(tools: &[Tool]) -> Self {
        let schema = |tool: &Tool| tool.function().and_then(|function| function.get("parameters")).cloned();
        let by_tool = tools.iter().map(|tool| (tool.name().to_owned(), schema(tool).unwrap_or_default()));
        Self { by_tool: by_tool.collect() }
    }

    /// Whether there is no tool.
    pub(super) fn is_empty(&self) -> bool {
        self.by_tool.is_empty()
    }

    /// A value that was written without saying whether it is a string: what its schema allows; JSON before a string
    /// where both are possible.
    pub(super) fn typed(&self, tool: &str, key: &str, text: &str) -> Value {
        let allowed = self.by_tool.get(tool).and_then(|schema| {
            let property = schema["properties"].as_object()?.get(key)?;
            types(property)
        });
        let as_string = || Value::String(text.to_owned());
        let value = match serde_json::from_str(text) {
            // Strings are written as they are: quotes are part of it.
            Err(_) | Ok(Value::String(_)) => return as_string(),
            Ok(value) => value,
        };
        let is = |name: &&str| *name == kind(&value) || (*name == "integer" && is_whole(&value));
        match allowed {
            Some(allowed) if !allowed.iter().any(is) && allowed.contains(&"string") => as_string(),
            Some(_) | None => value,
        }
    }
}

/// Types that a schema allows; nothing, where it does not say so plainly.
fn types(schema: &Value) -> Option<Vec<&str>> {
    let schema = schema.as_object()?;
    match schema.get("type") {
        Some(Value::String(one)) => return Some(vec![one]),
        Some(Value::Array(several)) => return Some(several.iter().filter_map(Value::as_str).collect()),
        _ => {}
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().map(kind).collect());
    }
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
    let each: Option<Vec<Vec<&str>>> = alternatives.iter().map(types).collect();
    Some(each?.concat())
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

/// A value's type as schemas name it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// One call's arguments on their way out, as pieces of one JSON object.
#[derive(Debug, Default)]
pub(super) struct Object {
    begun: bool,
}

impl Object {
    /// Whether it has a member.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// One more member.
    pub(super) fn member(&mut self, key: &str, value: &Value) -> Part {
        let member = dumps(&Map::from_iter([(key.to_owned(), value.clone())]));
        // Without its braces.
        let member = &member[1..member.len() - 1];
        let before = if std::mem::replace(&mut self.begun, true) { ", " } else { "{" };
        Part::Arguments(format!("{before}{member}"))
    }

    /// No member follows.
    pub(super) fn end(self) -> [Part; 2] {
        let rest = if self.begun { "}" } else { "{}" };
        [Part::Arguments(rest.to_owned()), Part::CallEnd]
    }
}
