use std::path::Path;

use serde_json::{Value, json};

use super::{events, refused, whole};
use crate::test_cluster::{CONFIG, Cluster, Script};
use crate::test_model::{write_glm, write_k3};

const CHAT: &str = "/v1/chat/completions";

async fn saying(write: fn(&Path), answer: &str) -> Cluster {
    let cluster = Cluster::of(write, CONFIG, 1, 1).await;
    let ids = cluster.router.model.tokenizer.encode(answer).unwrap();
    cluster.says(Script::Said(ids));
    cluster
}

fn request(messages: Value, more: Value) -> Value {
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let tool = json!({"type": "function", "function": {"name": "get_weather", "parameters": parameters}});
    let mut body = json!({"model": "demo", "messages": messages, "tools": [tool], "max_tokens": 500});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn question() -> Value {
    json!([{"role": "user", "content": "Weather in Zürich?"}])
}

/// A message as a client puts it together from the chunks of a stream.
fn assembled(chunks: &[Value]) -> (Value, Value) {
    let mut message = json!({"content": null, "tool_calls": []});
    let mut finish = Value::Null;
    let append = |to: &mut Value, piece: &Value| {
        if let Some(piece) = piece.as_str() {
            *to = format!("{}{piece}", to.as_str().unwrap_or_default()).into();
        }
    };
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        assert_eq!(finish, Value::Null, "nothing follows the finish");
        let delta = &choice["delta"];
        append(&mut message["role"], &delta["role"]);
        append(&mut message["content"], &delta["content"]);
        append(&mut message["reasoning_content"], &delta["reasoning_content"]);
        for piece in delta["tool_calls"].as_array().map_or(&[][..], Vec::as_slice) {
            let calls = message["tool_calls"].as_array_mut().unwrap();
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                assert!(piece["id"].as_str().unwrap().starts_with("call_"), "{piece}");
                calls.push(json!({"type": piece["type"], "function": {"name": piece["function"]["name"]}}));
            }
            append(&mut calls[index]["function"]["arguments"], &piece["function"]["arguments"]);
        }
        finish = choice["finish_reason"].clone();
    }
    (message, finish)
}

/// The whole answer and the streamed one, which say the same.
async fn answered(cluster: &Cluster, body: Value) -> (Value, Value) {
    let answer = whole(cluster, CHAT, body.clone()).await;
    let choice = &answer["choices"][0];
    let mut streaming = body;
    streaming["stream"] = true.into();
    let (message, finish) = assembled(&events(cluster, CHAT, streaming).await);
    assert_eq!(finish, choice["finish_reason"]);
    for field in ["role", "reasoning_content"] {
        assert_eq!(message[field], choice["message"][field], "{field}");
    }
    assert_eq!(
        message["content"].as_str().unwrap_or_default(),
        choice["message"]["content"].as_str().unwrap_or_default()
    );
    let calls = choice["message"]["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), calls.len());
    for (streamed, call) in message["tool_calls"].as_array().unwrap().iter().zip(calls) {
        assert_eq!((&streamed["function"], &streamed["type"]), (&call["function"], &json!("function")));
    }
    cluster.all_is_free().await;
    (choice["message"].clone(), finish)
}

#[tokio::test]
async fn glm_thinks_answers_and_calls() {
    let answer = "I look it up: 北京.</think>One moment.\n<tool_call>get_weather<arg_key>city</arg_key><arg_value>12</arg_value>\
        <arg_key>days</arg_key><arg_value>2</arg_value></tool_call><|observation|>";
    let cluster = saying(write_glm, answer).await;
    let (message, finish) = answered(&cluster, request(question(), json!({"reasoning_effort": "low"}))).await;
    assert_eq!(finish, "tool_calls");
    assert_eq!(
        (&message["reasoning_content"], &message["content"]),
        (&json!("I look it up: 北京."), &json!("One moment."))
    );
    let function = json!({"name": "get_weather", "arguments": "{\"city\": \"12\", \"days\": 2}"});
    assert_eq!(message["tool_calls"][0]["function"], function);

    // The client answers with what the tool said, and the model has what it needs.
    cluster.says(Script::Said(cluster.router.model.tokenizer.encode("</think>Rain.<|user|>").unwrap()));
    let call = &message["tool_calls"][0];
    let outcome = json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"});
    let messages = json!([question()[0], message, outcome]);
    let (message, finish) = answered(&cluster, request(messages, json!({}))).await;
    assert_eq!((&finish, &message), (&json!("stop"), &json!({"role": "assistant", "content": "Rain."})));

    cluster.says(Script::Said(
        cluster.router.model.tokenizer.encode("cut <tool_call>get_weather<arg_key>city").unwrap(),
    ));
    let cut = request(question(), json!({"max_tokens": 4}));
    let (message, finish) = answered(&cluster, cut).await;
    assert_eq!((finish, message["reasoning_content"].as_str().unwrap()), (json!("length"), "cut "));
}

#[tokio::test]
async fn k3_thinks_answers_and_calls() {
    let call = |number: u32| {
        format!(
            "<|open|>call tool=\"get_weather\" index=\"{number}\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>\
             Zürich<|close|>argument<|sep|><|close|>call<|sep|>"
        )
    };
    let answer = format!(
        "Hm.<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>{}{}<|close|>tools<|sep|>\
         <|close|>message<|sep|><|end_of_msg|>",
        call(1),
        call(2)
    );
    let cluster = saying(write_k3, &answer).await;
    let (message, finish) = answered(&cluster, request(question(), json!({}))).await;
    assert_eq!(
        (finish, &message["content"], &message["reasoning_content"]),
        (json!("tool_calls"), &Value::Null, &json!("Hm."))
    );
    let function = json!({"name": "get_weather", "arguments": "{\"city\": \"Zürich\"}"});
    assert_eq!(
        (&message["tool_calls"][0]["function"], &message["tool_calls"][1]["function"]),
        (&function, &function)
    );

    let answer = "Hi <|b|>\n<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";
    cluster.says(Script::Said(cluster.router.model.tokenizer.encode(answer).unwrap()));
    let off = json!({"chat_template_kwargs": {"enable_thinking": false}, "tool_choice": "none"});
    let (message, finish) = answered(&cluster, request(question(), off)).await;
    assert_eq!((finish, message), (json!("stop"), json!({"role": "assistant", "content": "Hi <|b|>\n"})));
}

#[tokio::test]
async fn what_a_family_can_not_do_is_refused_by_name() {
    let field = async |cluster: &Cluster, more: Value| {
        let (status, error) = refused(cluster, CHAT, request(question(), more).to_string()).await;
        assert_eq!(status, 400, "{error}");
        error["param"].as_str().unwrap().to_owned()
    };
    let glm = Cluster::of(write_glm, CONFIG, 1, 1).await;
    assert_eq!(field(&glm, json!({"reasoning_effort": "medium"})).await, "reasoning_effort");
    assert_eq!(field(&glm, json!({"tool_choice": "required"})).await, "tool_choice");
    let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
    assert_eq!(field(&glm, off).await, "chat_template_kwargs.enable_thinking");
    let plain = Cluster::start(CONFIG, 1, 1).await;
    assert_eq!(field(&plain, json!({})).await, "tools");
    let outcome = json!([{"role": "tool", "content": "x"}]);
    assert_eq!(field(&plain, json!({"messages": outcome, "tools": []})).await, "messages[0].role");
}
