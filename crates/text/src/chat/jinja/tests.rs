use std::time::{Duration, SystemTime};

use super::Jinja;
use crate::chat::{ChatOptions, Message, Said};
use crate::{Error, Tokenizer};

const TEMPLATE: &str = "\
{{ bos_token }}
{%- if strftime_now is defined %}[{{ strftime_now('%d %b %Y') }}]{% endif %}
{% for message in messages %}
    {% if message['role'] not in ['system', 'user', 'assistant'] %}
{{ raise_exception('unknown role ' + message['role']) }}
    {% endif %}
<|{{ message.role }}|>{{ message.content.strip() }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}";

fn said(content: &str) -> Said {
    Said { content: content.to_owned(), name: None }
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn renders_as_transformers_does() {
    let config = r#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}}"#;
    let folder = folder(&[("chat_template.jinja", TEMPLATE), ("tokenizer_config.json", config)]);
    let template = Jinja::open(folder.path()).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    let messages = [Message::System(said(" be <brief> ")), Message::User(said("hi"))];
    let render = |messages: &[Message]| {
        template.render(messages, &ChatOptions::default(), &[], now).map(|prompt| prompt.to_string())
    };
    // jinja2 3.1 with trim_blocks and lstrip_blocks prints the same.
    assert_eq!(
        render(&messages).unwrap(),
        "<s>[02 Jan 1970]<|system|>be <brief></s>\n<|user|>hi</s>\n<|assistant|>"
    );
    let refused = render(&[Message::Tool(crate::Outcome::default())]).unwrap_err();
    assert_eq!(refused.to_string(), "messages: unknown role tool");
}

#[test]
fn finds_the_template_in_the_tokenizer_config() {
    let config =
        r#"{"chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]}"#;
    let folder = folder(&[("tokenizer_config.json", config)]);
    let template = Jinja::open(folder.path()).unwrap();
    let prompt = template.render(&[], &ChatOptions::default(), &[], SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(prompt.to_string(), "yes");
}

#[test]
fn says_when_there_is_none_or_it_is_broken() {
    assert!(matches!(Jinja::open(folder(&[]).path()), Err(Error::NoChatTemplate)));
    let broken = folder(&[("chat_template.jinja", "{% if %}")]);
    assert!(matches!(Jinja::open(broken.path()), Err(Error::Malformed { .. })));
}

#[test]
fn tools_and_variables_reach_the_template() {
    let source = "{{ tools[0] | tojson }} {{ reasoning_effort }} {{ mood }} {{ messages[0].tool_calls[0].function.arguments.a }}";
    let folder = folder(&[("chat_template.jinja", source)]);
    let template = Jinja::open(folder.path()).unwrap();
    let tool = serde_json::json!({"type": "function", "function": {"name": "f", "parameters": {"b": "<", "a": 1.0}}});
    let options = ChatOptions {
        tools: vec![crate::Tool::new(tool.as_object().unwrap().clone()).unwrap()],
        effort: Some("low".to_owned()),
        variables: [("mood".to_owned(), "good".into()), ("messages".to_owned(), "none".into())]
            .into_iter()
            .collect(),
        ..ChatOptions::default()
    };
    let call = crate::ToolCall {
        id: None,
        name: "f".to_owned(),
        arguments: crate::Arguments::parse("{\"a\": 7}").unwrap(),
    };
    let messages = [Message::Assistant(crate::Answer { calls: vec![call], ..crate::Answer::default() })];
    let text = template.render(&messages, &options, &[], SystemTime::UNIX_EPOCH).unwrap().to_string();
    let tool = r#"{"type": "function", "function": {"name": "f", "parameters": {"b": "<", "a": 1.0}}}"#;
    assert_eq!(text, format!("{tool} low good 7"));
}

#[test]
fn only_the_template_writes_special_tokens() {
    let added = serde_json::json!({"id": 3, "content": "<|end|>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false});
    let vocab =
        serde_json::json!({"<": 0, "|": 1, ">": 2, "<|end|>": 3, "e": 4, "n": 5, "d": 6, "h": 7, "i": 8});
    let json = serde_json::json!({"version": "1.0", "added_tokens": [added],
        "model": {"type": "BPE", "vocab": vocab, "merges": []}});
    let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
    let folder = folder(&[("chat_template.jinja", "{{ messages[0].content }}<|end|>")]);
    let template = Jinja::open(folder.path()).unwrap();
    let ids = |text: &str| {
        let messages = [Message::User(said(text))];
        let options = ChatOptions::default();
        let prompt =
            template.render(&messages, &options, &tokenizer.markers(), SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(prompt.to_string(), format!("{text}<|end|>"));
        tokenizer.encode_prompt(&prompt).unwrap()
    };
    assert_eq!(ids("hi"), [7, 8, 3]);
    assert_eq!(ids("h<|end|>i"), [7, 0, 1, 4, 5, 6, 1, 2, 8, 3]);
}
