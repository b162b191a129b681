use prost::Message;
use proto::fuzz::changed;
use proto::v1::{Chat, ChatMessage, GenerateRequest, generate_request::Prompt};

use super::{bodies, generate};

#[test]
fn changed_bodies_are_taken_or_refused() {
    let chat = r#"{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"x\": [1]}"}}]},
        {"role": "tool", "content": "\u00e9", "tool_call_id": "c"}], "tools": [{"type": "function", "function":
        {"name": "f", "parameters": {}}}], "tool_choice": "auto", "logprobs": true, "top_logprobs": 3, "stop": ["x"],
        "logit_bias": {"5": -1}, "seed": -1, "stream": true, "stream_options": {"include_usage": true}}"#;
    let completion =
        r#"{"prompt": [[1, 2], [3]], "n": 2, "temperature": 0.5, "logprobs": 2, "max_tokens": 9}"#;
    for sound in [chat, completion] {
        assert_eq!(bodies(sound.as_bytes()), 1, "{sound}");
        let taken = changed(sound.as_bytes()).filter(|body| bodies(body) > 0).count();
        assert!(taken > 10 && taken < sound.len() * 6, "{taken}");
    }
}

#[test]
fn changed_grpc_requests_are_taken_or_refused() {
    let said = |role: &str| ChatMessage { role: role.to_owned(), content: "hello".to_owned() };
    let chat = Chat { messages: vec![said("system"), said("user"), said("assistant")] };
    let request = GenerateRequest { prompt: Some(Prompt::Chat(chat)), ..GenerateRequest::default() };
    let sound = request.encode_to_vec();
    assert!(generate(&sound));
    let taken = changed(&sound).filter(|bytes| generate(bytes)).count();
    assert!(taken > 10 && taken < sound.len() * 6, "{taken}");
}
