//! Which call a tool's outcome belongs to: families want outcomes in the order of the calls.

use super::{Message, Outcome, ToolCall};

/// The end of the run of outcomes that begins at `start`.
pub(super) fn run_end(messages: &[Message], start: usize) -> usize {
    let outcomes = messages[start..].iter().take_while(|message| matches!(message, Message::Tool(_)));
    start + outcomes.count()
}

/// The outcomes of a run of messages.
pub(super) fn outcomes(run: &[Message]) -> Vec<&Outcome> {
    run.iter()
        .filter_map(|message| match message {
            Message::Tool(outcome) => Some(outcome),
            Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
        })
        .collect()
}

/// The index of the call with this id; the first, where several have it.
pub(super) fn position(calls: &[ToolCall], id: Option<&str>) -> Option<usize> {
    let id = id?;
    calls.iter().position(|call| call.id.as_deref() == Some(id))
}
