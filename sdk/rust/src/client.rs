//! The client, and how one is made.

use std::{fmt, sync::Arc, time::Duration};

use tonic::{Code, Request, metadata::AsciiMetadataValue, transport::Channel};

use crate::{
    address::Address,
    channel::{Connections, MESSAGE_LIMIT, Tls},
    error::Error,
    generation::Generation,
    retry::{Calls, Retry},
    v1::{GenerateRequest, ListModelsRequest, Model, inference_client::InferenceClient},
};

/// An API key or a token, or what gives a fresh one for each call; sent as `authorization: Bearer`.
#[derive(Clone)]
pub struct Credential(Arc<dyn Fn() -> String + Send + Sync>);

impl Credential {
    /// Asked before each call.
    pub fn from_fn(token: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(token))
    }
}

impl<T: Into<String>> From<T> for Credential {
    fn from(token: T) -> Self {
        let token = token.into();
        Self::from_fn(move || token.clone())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Credential")
    }
}

/// Asks routers. Clones share its connections, which close with the last of them.
#[derive(Debug, Clone)]
pub struct Client {
    connections: Arc<Connections>,
    credential: Option<Credential>,
    retry: Retry,
}

/// How a client asks.
#[derive(Debug)]
pub struct Builder {
    url: String,
    credential: Option<Credential>,
    plaintext_credential: bool,
    tls: Option<Tls>,
    retry: Retry,
}

impl Builder {
    #[must_use]
    pub fn credential(mut self, credential: impl Into<Credential>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// Lets the credential leave the machine in plain text, on a network that is trusted.
    #[must_use]
    pub fn plaintext_credential(mut self) -> Self {
        self.plaintext_credential = true;
        self
    }

    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Looks the name up. Connections are made when there is something to ask.
    pub async fn build(self) -> Result<Client, Error> {
        let address = Address::parse(&self.url)?;
        let safe = address.tls || address.loopback() || self.plaintext_credential;
        if self.credential.is_some() && !safe {
            let message =
                "credential needs an https url, or plaintext_credential on a network that is trusted";
            return Err(Error::invalid("credential", message));
        }
        let connections = Arc::new(Connections::to(address, self.tls).await?);
        Ok(Client { connections, credential: self.credential, retry: self.retry })
    }
}

impl Client {
    /// Of the router, or the routers, at `http://host:port` (plain text) or `https://host:port` (TLS).
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            credential: None,
            plaintext_credential: false,
            tls: None,
            retry: Retry::default(),
        }
    }

    /// One generation; read what comes. `timeout` is for all of it, calls asked again included.
    pub fn generate(&self, request: GenerateRequest, timeout: Option<Duration>) -> Generation {
        Generation::new(self.clone(), determined(request), Calls::new(self.retry.clone(), timeout))
    }

    /// The models that can be asked for.
    pub async fn list_models(&self, timeout: Option<Duration>) -> Result<Vec<Model>, Error> {
        let mut calls = Calls::new(self.retry.clone(), timeout);
        loop {
            let request = self.request(ListModelsRequest {}, calls.remaining())?;
            let error = match calls.within(self.stub().list_models(request)).await {
                Ok(answer) => return Ok(answer.into_inner().models),
                Err(error) => error,
            };
            let Some(delay) = calls.after(&error) else { return Err(error) };
            tokio::time::sleep(delay).await;
        }
    }

    pub(crate) fn stub(&self) -> InferenceClient<Channel> {
        InferenceClient::new(self.connections.channel.clone())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// With credential and deadline.
    pub(crate) fn request<T>(&self, message: T, remaining: Option<Duration>) -> Result<Request<T>, Error> {
        let mut request = Request::new(message);
        if let Some(remaining) = remaining {
            request.set_timeout(remaining);
        }
        if let Some(Credential(token)) = &self.credential {
            let value: AsciiMetadataValue = format!("Bearer {}", token()).parse().map_err(|_| Error {
                code: Code::InvalidArgument,
                ..Error::invalid("credential", "has characters that a header can't carry")
            })?;
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

/// With a request id and a seed: asked again, it is the same request, and draws the same tokens.
fn determined(mut request: GenerateRequest) -> GenerateRequest {
    if request.request_id.is_empty() {
        request.request_id = format!("{:032x}", rand::random::<u128>());
    }
    request.sampling.get_or_insert_default().seed.get_or_insert_with(rand::random);
    request
}
