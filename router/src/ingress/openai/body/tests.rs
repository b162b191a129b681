use super::{Kind, parse};
use crate::error::Error;
use crate::request::{Asked, Prompt};

fn plan(kind: Kind, json: &str) -> Result<Vec<Asked>, Error> {
    parse(json)?.plan(kind, "id", 7).map(|plan| plan.asked)
}

fn refused_field(kind: Kind, json: &str) -> String {
    match plan(kind, json) {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{json}: {other:?}"),
    }
}

#[test]
fn wrong_fields_are_named() {
    let completion = |json: &str| refused_field(Kind::Completion, json);
    assert_eq!(completion(r#"{"prompt": "a", "temperature": NaN}"#), "temperature");
    assert_eq!(completion(r#"{"prompt": "a", "temperature": "hot"}"#), "temperature");
    assert_eq!(completion(r#"{"prompt": 5}"#), "prompt");
    assert_eq!(completion("{}"), "prompt");
    assert_eq!(completion(r#"{"prompt": "a", "n": 0}"#), "n");
    assert_eq!(completion(r#"{"prompt": ["a", "b", "c"], "n": 6}"#), "prompt");
    assert_eq!(completion(r#"{"prompt": "a", "echo": true}"#), "echo");
    assert_eq!(completion(r#"{"prompt": "a", "logprobs": true}"#), "logprobs");
    assert_eq!(completion(r#"{"prompt": "a", "logit_bias": {"x": 1}}"#), "logit_bias");
    assert_eq!(completion(r#"{"prompt": "a""#), "body");
    assert_eq!(completion(r#"{"prompt": "a"} {}"#), "body");
    let chat = |json: &str| refused_field(Kind::Chat, json);
    assert_eq!(chat(r#"{"messages": [{"content": "x"}]}"#), "messages[0]");
    assert_eq!(chat(r#"{"messages": [{"role": "user"}]}"#), "messages[0].content");
    let image = r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#;
    assert_eq!(chat(image), "messages[0].content[0].type");
    assert_eq!(chat(r#"{"messages": [], "tools": [{}]}"#), "tools[0].function.name");
    assert_eq!(chat(r#"{"messages": [], "tools": [{"type": "web"}]}"#), "tools[0].type");
    assert_eq!(chat(r#"{"messages": [], "tool_choice": "required"}"#), "tool_choice");
    assert_eq!(chat(r#"{"messages": [{"role": "robot", "content": ""}]}"#), "messages[0].role");
    let call = r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]}"#;
    assert_eq!(chat(call), "messages[0].tool_calls[0].function.arguments");
    let serial = r#"{"messages": [], "tools": [{"function": {"name": "f"}}], "parallel_tool_calls": false}"#;
    assert_eq!(chat(serial), "parallel_tool_calls");
    assert_eq!(chat(r#"{"messages": [], "chat_template_kwargs": 1}"#), "body");
    assert_eq!(completion(r#"{"prompt": "a", "tools": [{}]}"#), "tools");
    assert_eq!(chat(r#"{"messages": [], "response_format": {"type": "json_object"}}"#), "response_format");
}

#[test]
fn harmless_and_unknown_fields_are_accepted() {
    let json = r#"{"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"},
        {"type": "text", "text": "b"}]}], "tools": [], "tool_choice": "none", "user": "me",
        "response_format": {"type": "text"}, "logprobs": true, "top_logprobs": 3, "max_completion_tokens": 9}"#;
    let asked = &plan(Kind::Chat, json).unwrap()[0];
    let system = text::Message::System(text::Said { content: "ab".to_owned(), name: None });
    assert!(matches!(&asked.prompt, Prompt::Chat(chat) if chat.messages == [system]));
    assert_eq!((asked.sampling.logprobs, asked.sampling.max_tokens), (Some(3), Some(9)));
    assert_eq!(asked.default_max_tokens, None);
}

#[test]
fn choices_differ_in_seed_only() {
    let asked = plan(Kind::Completion, r#"{"prompt": [[1], [2, 3]], "n": 2, "seed": -1}"#).unwrap();
    let seeds: Vec<_> = asked.iter().map(|choice| choice.sampling.seed.unwrap()).collect();
    assert_eq!((seeds[0], seeds[0] == seeds[1], seeds[1] == seeds[3]), (u64::MAX, false, true));
    assert!(matches!(&asked[1].prompt, Prompt::Tokens(ids) if *ids == [1]));
    assert!(matches!(&asked[2].prompt, Prompt::Tokens(ids) if *ids == [2, 3]));
    let ids: Vec<_> = asked.iter().map(|choice| choice.request_id.as_str()).collect();
    assert_eq!(ids, ["id-0", "id-1", "id-2", "id-3"]);
    assert_eq!(plan(Kind::Completion, r#"{"prompt": "a"}"#).unwrap()[0].sampling.seed, Some(7));
}
