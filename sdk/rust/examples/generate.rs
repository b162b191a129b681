//! Streams one answer: `cargo run -p tandem-sdk --example generate PROMPT`. TANDEM_URL names the router.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{
    env,
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use tandem_sdk::{
    Client, Error,
    v1::{GenerateRequest, Sampling, generate_request::Prompt},
};

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let prompt = if words.is_empty() { "In the beginning".to_owned() } else { words.join(" ") };
    match generate(prompt).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}; ask again after: {:?}", error.retry_after);
            ExitCode::FAILURE
        }
    }
}

async fn generate(prompt: String) -> Result<(), Error> {
    let url = env::var("TANDEM_URL").unwrap_or_else(|_| "http://127.0.0.1:50051".to_owned());
    let mut builder = Client::builder(url);
    if let Ok(key) = env::var("TANDEM_API_KEY") {
        builder = builder.credential(key);
    }
    let client = builder.build().await?;
    let models = client.list_models(Some(Duration::from_secs(5))).await?;
    let request = GenerateRequest {
        model: models.into_iter().next().unwrap_or_default().name,
        prompt: Some(Prompt::Text(prompt)),
        sampling: Some(Sampling { max_tokens: Some(64), temperature: Some(0.8), ..Sampling::default() }),
        ..GenerateRequest::default()
    };
    let mut generation = client.generate(request, Some(Duration::from_secs(60)));
    while let Some(response) = generation.message().await? {
        print!("{}", response.text);
        stdout().flush().ok();
        if let (Some(usage), Some(timing)) = (response.usage, response.timing) {
            eprintln!("\n{} tokens, first after {:.3} s", usage.completion_tokens, timing.first_token);
        }
    }
    Ok(())
}
