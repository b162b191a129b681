use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::routes;
use crate::test_cluster::{CONFIG, Cluster, Ill, PATIENT, Script};

mod tools;

async fn post(cluster: &Cluster, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).body(body.into()).unwrap();
    let response = routes(cluster.router.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn whole(cluster: &Cluster, path: &str, body: Value) -> Value {
    let (status, text) = post(cluster, path, body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The events of a stream, which ends with `[DONE]`.
async fn events(cluster: &Cluster, path: &str, body: Value) -> Vec<Value> {
    let (status, text) = post(cluster, path, body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let text = text.strip_suffix("data: [DONE]\n\n").unwrap();
    let events = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

async fn refused(cluster: &Cluster, path: &str, body: impl Into<Body>) -> (u16, Value) {
    let (status, text) = post(cluster, path, body).await;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert!(body["error"]["message"].is_string(), "{text}");
    (status.as_u16(), body["error"].clone())
}

#[tokio::test]
async fn completions_in_one_piece() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let body = json!({"model": "demo", "prompt": "hello", "max_tokens": 3, "logprobs": 1, "n": 2});
    let answer = whole(&cluster, "/v1/completions", body).await;
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][1]["text"], "abc");
    assert_eq!(answer["choices"][1]["index"], 1);
    assert_eq!(answer["choices"][1]["finish_reason"], "length");
    let logprobs = json!({"tokens": ["a", "b", "c"], "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}, {"c": -0.5}], "text_offset": [0, 1, 2]});
    assert_eq!(answer["choices"][0]["logprobs"], logprobs);
    assert_eq!(answer["usage"]["prompt_tokens"], 5, "choices of one prompt count it once");
    assert_eq!(answer["usage"]["total_tokens"], 11);
    let none = json!({"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0});
    assert_eq!(answer["usage"]["completion_tokens_details"], none);
    assert_eq!(answer["timing"]["decode_worker"], "d0");
    cluster.all_is_free().await;
}

#[tokio::test]
async fn chats_as_a_stream() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let body = json!({"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
        "stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 1});
    let events = events(&cluster, "/v1/chat/completions", body).await;
    let (usage, chunks) = events.split_last().unwrap();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": "a"}));
    assert_eq!(chunks[1]["choices"][0]["delta"], json!({"content": "b"}));
    let entry = json!({"token": "b", "logprob": -0.5, "bytes": [98]});
    assert_eq!(chunks[1]["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([entry]));
    assert!(
        chunks.iter().all(|chunk| chunk["usage"].is_null() && chunk["object"] == "chat.completion.chunk")
    );
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["timing"]["prefill_worker"], "p0");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 3);
    cluster.draws(3);
    let body = json!({"model": "demo", "prompt": "x", "max_tokens": 6, "n": 2});
    let drafted = whole(&cluster, "/v1/completions", body).await;
    let details = json!({"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 2});
    assert_eq!(drafted["usage"]["completion_tokens_details"], details);
    cluster.all_is_free().await;
}

#[tokio::test]
async fn two_choices_share_a_stream() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let body = json!({"model": "demo", "prompt": "x", "max_tokens": 4, "n": 2, "stream": true});
    let events = events(&cluster, "/v1/completions", body).await;
    for index in 0..2 {
        let choices =
            events.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == index);
        let text: String = choices.map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(text, "abcd");
    }
    cluster.all_is_free().await;
}

#[tokio::test]
async fn choices_of_a_dead_worker_go_on() {
    let cluster = Cluster::start(PATIENT, 1, 2).await;
    cluster.says(Script::Keyed);
    let body = json!({"model": "demo", "prompt": "x", "max_tokens": 9, "n": 2, "logprobs": 1, "seed": 3});
    let right = whole(&cluster, "/v1/completions", body.clone()).await;
    assert_ne!(right["choices"][0]["text"], right["choices"][1]["text"]);
    for decode in ["d0", "d1"] {
        cluster.falls_ill(decode, Ill::Breaks(4));
    }
    // each choice loses both, and another start of one serves them
    let restart = async {
        cluster.migrated(4).await;
        cluster.restarts("d0");
        cluster.joins("d0");
    };
    let (resumed, ()) = tokio::join!(whole(&cluster, "/v1/completions", body), restart);
    assert_eq!((&resumed["choices"], &resumed["usage"]), (&right["choices"], &right["usage"]));
    assert_eq!(resumed["timing"]["migrations"], 2);
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_stream_that_fails_says_so() {
    let bounds = crate::Bounds { retries: 0, ..CONFIG.bounds };
    let cluster = Cluster::start(crate::Config { bounds, ..CONFIG }, 1, 1).await;
    cluster.falls_ill("d0", Ill::Breaks(3));
    let body = json!({"model": "demo", "prompt": "x", "max_tokens": 9, "stream": true});
    let events = events(&cluster, "/v1/completions", body).await;
    let error = &events.last().unwrap()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!("WORKER_LOST"), &json!("server_error")));
    cluster.all_is_free().await;
}

#[tokio::test]
async fn bad_input_is_refused_by_name_and_the_next_request_works() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"model": "demo", "prompt": "x", "max_tokens": 2});
        body[field] = value;
        body.to_string()
    };
    let path = "/v1/completions";
    for (field, value) in [
        ("prompt", json!("")),
        ("prompt", json!([1, 9999])),
        ("max_tokens", json!(-1)),
        ("stop", json!(vec!["x"; 1000])),
        ("temperature", json!("warm")),
    ] {
        let (status, error) = refused(&cluster, path, with(field, value)).await;
        assert_eq!((status, &error["param"]), (400, &json!(field)), "{error}");
    }
    let (status, error) = refused(&cluster, path, with("model", json!("gpt"))).await;
    assert_eq!((status, &error["code"]), (404, &json!("UNKNOWN_MODEL")));
    let (status, error) = refused(&cluster, path, with("prompt", json!(vec![1; 65]))).await;
    assert_eq!((status, &error["code"]), (400, &json!("CONTEXT_LENGTH")));
    let (status, error) = refused(&cluster, path, &b"{\"prompt\": \"\xff\"}"[..]).await;
    assert_eq!((status, &error["param"]), (400, &json!("body")));
    let (status, error) = refused(&cluster, path, vec![b' '; 10 << 20]).await;
    assert_eq!((status, &error["param"]), (413, &json!("body")));
    let (status, _) = refused(&cluster, "/v1/nothing", "").await;
    assert_eq!(status, 404);
    assert_eq!(
        whole(&cluster, path, json!({"model": "demo", "prompt": "x", "max_tokens": 2})).await["choices"][0]["text"],
        "ab"
    );
    cluster.all_is_free().await;
}
