//! `tandem.v1.Inference`.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use proto::v1::generate_request::Prompt as PromptMessage;
use proto::v1::inference_server::Inference;
use proto::v1::{self, GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse};
use text::{Answer, Message, Said};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tracing::{Span, info_span};

use crate::clients::Client;
use crate::error::Error;
use crate::journey::Router;
use crate::request::{Asked, Chat, Door, Prompt};

/// The gRPC door of a router.
#[derive(Clone, Debug)]
pub struct Grpc {
    router: Router,
}

impl Grpc {
    pub fn new(router: Router) -> Self {
        Self { router }
    }

    /// Who calls.
    fn client(&self, metadata: &MetadataMap) -> Result<Client, Error> {
        let shown = metadata.get("authorization").map(|value| value.to_str().unwrap_or_default());
        self.router.clients.identify(shown)
    }
}

#[tonic::async_trait]
impl Inference for Grpc {
    type GenerateStream = Pin<Box<dyn Stream<Item = Result<GenerateResponse, Status>> + Send>>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let span = info_span!("generate", door = "grpc", request = %request.get_ref().request_id);
        telemetry::propagate::from_metadata(&span, request.metadata());
        let told = |error: Error| told(&span, &error);
        let refused = |error: Error| {
            self.router.metrics.refused(&error);
            told(error)
        };
        let client = self.client(request.metadata()).map_err(refused)?;
        let arrival = self.router.arrival(span.clone(), client, timeout(request.metadata()));
        let asked = asked(request.into_inner()).map_err(refused)?;
        let tokens = self.router.generate(asked, arrival).await.map_err(told)?;
        let span = span.clone();
        let stream = tokens.into_stream().map_err(move |error| self::told(&span, &error));
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_models(
        &self,
        request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        self.client(request.metadata()).map_err(|error| error.fault().to_status())?;
        let model = &self.router.model;
        let chat = model.chat.as_ref().map(|_| "chat");
        let tools = model.chat.as_ref().filter(|chat| chat.has_tools()).map(|_| "tools");
        let features = ["completion", "logprobs", "stop", "penalties", "logit_bias"];
        let features = features.into_iter().chain(chat).chain(tools);
        let model = v1::Model {
            name: model.name.clone(),
            context_length: self.router.context(),
            eos_token_ids: model.end_tokens.clone(),
            vocabulary_size: model.vocabulary,
            features: features.map(str::to_owned).collect(),
        };
        Ok(Response::new(ListModelsResponse { models: vec![model] }))
    }
}

/// The one place where an error becomes a gRPC status.
fn told(span: &Span, error: &Error) -> Status {
    let _entered = span.enter();
    if let Error::Internal(_) = error {
        tracing::error!(%error, "request failed");
    } else {
        tracing::info!(%error, "request ended");
    }
    error.fault().to_status()
}

/// `grpc-timeout`: up to eight digits and a unit.
fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let value = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (amount, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let amount: u64 = amount.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount.saturating_mul(3600))),
        "M" => Some(Duration::from_secs(amount.saturating_mul(60))),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

pub(crate) fn asked(request: GenerateRequest) -> Result<Asked, Error> {
    let prompt = match request.prompt {
        None => Prompt::Missing,
        Some(PromptMessage::Text(text)) => Prompt::Text(text),
        Some(PromptMessage::Tokens(tokens)) => {
            Prompt::Tokens(tokens.ids.into_iter().map(i64::from).collect())
        }
        Some(PromptMessage::Chat(chat)) => {
            let messages = chat.messages.into_iter().enumerate().map(|(index, said)| message(index, said));
            let messages = messages.collect::<Result<_, _>>()?;
            Prompt::Chat(Chat { messages, ..Chat::default() })
        }
    };
    Ok(Asked {
        door: Door::Grpc,
        request_id: request.request_id,
        model: request.model,
        prompt,
        sampling: proto::sampling::asked(request.sampling.unwrap_or_default()),
        default_max_tokens: None,
        priority: request.priority,
        tenant: request.tenant,
        cache_salt: request.cache_salt,
    })
}

fn message(index: usize, message: v1::ChatMessage) -> Result<Message, Error> {
    let v1::ChatMessage { role, content } = message;
    match role.as_str() {
        "system" => Ok(Message::System(Said { content, name: None })),
        "user" => Ok(Message::User(Said { content, name: None })),
        "assistant" => Ok(Message::Assistant(Answer { content, ..Answer::default() })),
        other => {
            let field = Door::Grpc.chat(&format!("messages[{index}].role"));
            Err(Error::invalid(field, format!("{other:?} is not one of system, user, assistant")))
        }
    }
}

#[cfg(test)]
mod tests;
