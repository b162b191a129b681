//! The router that a command talks to.

use std::{fmt, time::Duration};

use anyhow::Context;
use proto::{MESSAGE_LIMIT, v1::inference_client::InferenceClient};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

/// Flatten into a command's flags.
#[derive(Clone, clap::Args)]
pub struct Flags {
    /// Router's gRPC address
    #[arg(long, env = "TANDEM_URL", default_value = "127.0.0.1:50051")]
    pub url: String,
    /// API key or token to show, where the router asks for one
    #[arg(long, env = "TANDEM_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub api_key: Option<String>,
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flags").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A client that shows its key with every call.
pub(crate) type Client = InferenceClient<InterceptedService<Channel, Bearer>>;

/// What is shown.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(shown) = &self.0 {
            request.metadata_mut().insert("authorization", shown.clone());
        }
        Ok(request)
    }
}

impl Flags {
    /// Connects (host:port, or with a scheme).
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let url = &self.url;
        let address = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let bearer = self.api_key.as_ref().map(|key| {
            let mut shown: MetadataValue<Ascii> = format!("Bearer {key}").parse()?;
            shown.set_sensitive(true);
            anyhow::Ok(shown)
        });
        let bearer = Bearer(bearer.transpose().context("--api-key")?);
        let channel = Endpoint::from_shared(address)
            .with_context(|| format!("--url {url}"))?
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(5))
            .connect()
            .await
            .with_context(|| format!("no router at {url}"))?;
        Ok(InferenceClient::with_interceptor(channel, bearer)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT))
    }
}
