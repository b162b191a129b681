use std::time::{Duration, SystemTime};

use super::{ChatTemplate, Message};
use crate::Error;

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

fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
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
    let template = ChatTemplate::open(folder.path()).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    let messages = [message("system", " be <brief> "), message("user", "hi")];
    // jinja2 3.1 with trim_blocks and lstrip_blocks prints the same.
    assert_eq!(
        template.render(&messages, now).unwrap(),
        "<s>[02 Jan 1970]<|system|>be <brief></s>\n<|user|>hi</s>\n<|assistant|>"
    );
    let refused = template.render(&[message("robot", "hi")], now).unwrap_err();
    assert_eq!(refused.to_string(), "messages: unknown role robot");
}

#[test]
fn finds_the_template_in_the_tokenizer_config() {
    let config =
        r#"{"chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]}"#;
    let folder = folder(&[("tokenizer_config.json", config)]);
    let template = ChatTemplate::open(folder.path()).unwrap();
    assert_eq!(template.render(&[], SystemTime::UNIX_EPOCH).unwrap(), "yes");
}

#[test]
fn says_when_there_is_none_or_it_is_broken() {
    assert!(matches!(ChatTemplate::open(folder(&[]).path()), Err(Error::NoChatTemplate)));
    let broken = folder(&[("chat_template.jinja", "{% if %}")]);
    assert!(matches!(ChatTemplate::open(broken.path()), Err(Error::Malformed { .. })));
}
