//! Answers the conformance suite's lines with this SDK. See ../../conformance/README.md.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    io::stdin,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use prost::Message;
use serde::{Deserialize, Serialize};
use tandem_sdk::{
    Client, Error, Generation, Reason, Retry, Tls,
    v1::{ErrorReason, GenerateRequest},
};

#[derive(Deserialize)]
struct Line {
    url: String,
    call: String,
    request: String,
    timeout: Option<f64>,
    cancel_after: Option<usize>,
    cancel_after_seconds: Option<f64>,
    credential: Option<String>,
    ca: Option<String>,
    server_name: Option<String>,
    #[serde(default)]
    retry: Bounds,
}

#[derive(Default, Deserialize)]
struct Bounds {
    calls: Option<u32>,
    resume: Option<bool>,
}

#[derive(Default, Serialize)]
struct Answer {
    responses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<String>>,
    reasons: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion: Option<Whole>,
    error: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Whole {
    token_ids: Vec<u32>,
    text: String,
    logprobs: usize,
    finish: String,
}

#[derive(Serialize)]
struct Failure {
    reason: String,
    code: i32,
    field: String,
    retry_after: Option<f64>,
    message: String,
    request_id: String,
    delivered: u32,
}

#[tokio::main]
async fn main() {
    for text in stdin().lines() {
        let line: Line = serde_json::from_str(&text.unwrap()).unwrap();
        let (begin, mut answer) = (Instant::now(), Answer::default());
        match client(&line).await {
            Err(error) => answer.refused = Some(error.to_string()),
            Ok(client) => {
                answer.error = run(&client, line, &mut answer).await.err().map(Failure::from);
            }
        }
        answer.seconds = begin.elapsed().as_secs_f64();
        println!("{}", serde_json::to_string(&answer).unwrap());
    }
}

async fn client(line: &Line) -> Result<Client, Error> {
    let defaults = Retry::default();
    let calls = line.retry.calls.unwrap_or(defaults.calls);
    let resume = line.retry.resume.unwrap_or(defaults.resume);
    let mut builder = Client::builder(&line.url).retry(Retry { calls, resume, ..defaults });
    if let Some(credential) = &line.credential {
        builder = builder.credential(credential);
    }
    if let Some(ca) = &line.ca {
        let ca = Some(std::fs::read(ca).unwrap());
        builder = builder.tls(Tls { ca, server_name: line.server_name.clone(), ..Tls::default() });
    }
    builder.build().await
}

async fn run(client: &Client, line: Line, answer: &mut Answer) -> Result<(), Error> {
    let timeout = line.timeout.map(Duration::from_secs_f64);
    match line.call.as_str() {
        "reasons" => answer.reasons = reasons(),
        "list_models" => {
            let models = client.list_models(timeout).await?;
            answer.models = Some(models.iter().map(encoded).collect());
        }
        call => {
            let request =
                GenerateRequest::decode(STANDARD.decode(&line.request).unwrap().as_slice()).unwrap();
            let generation = client.generate(request, timeout);
            if call == "collect" {
                let whole = generation.collect().await?;
                answer.completion = Some(Whole {
                    token_ids: whole.token_ids,
                    text: whole.text,
                    logprobs: whole.logprobs.len(),
                    finish: encoded(&whole.finish),
                });
            } else {
                stream(generation, &line, answer).await?;
            }
        }
    }
    Ok(())
}

async fn stream(mut generation: Generation, line: &Line, answer: &mut Answer) -> Result<(), Error> {
    let patience = Duration::from_secs_f64(line.cancel_after_seconds.unwrap_or(3600.0));
    let until = tokio::time::Instant::now() + patience;
    loop {
        match tokio::time::timeout_at(until, generation.message()).await {
            Err(_) => generation.cancel(),
            Ok(response) => match response? {
                None => return Ok(()),
                Some(response) => answer.responses.push(encoded(&response)),
            },
        }
        if line.cancel_after == Some(answer.responses.len()) {
            generation.cancel();
        }
    }
}

/// The names that the crate has.
fn reasons() -> Vec<String> {
    let contract = (1..).map_while(|number| ErrorReason::try_from(number).ok()).map(Reason::Contract);
    let own = [Reason::Unreachable, Reason::Diverged, Reason::Malformed];
    let mut names: Vec<String> = contract.chain(own).map(|reason| reason.to_string()).collect();
    names.sort();
    names
}

fn encoded<M: Message>(message: &M) -> String {
    STANDARD.encode(message.encode_to_vec())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            reason: error.reason.to_string(),
            code: error.code.into(),
            field: error.field.unwrap_or_default(),
            retry_after: error.retry_after.map(|after| after.as_secs_f64()),
            message: error.message,
            request_id: error.request_id,
            delivered: error.delivered,
        }
    }
}
