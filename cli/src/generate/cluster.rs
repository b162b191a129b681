//! Generation through a router.

use anyhow::{Context, bail};
use proto::{
    status::{Fault, reason_name},
    v1::{GenerateRequest, ListModelsRequest, Tokens, generate_request::Prompt},
};
use tonic::Status;

use super::{
    output::{Ended, Output},
    request::Request,
};
use crate::router::{Client, Flags};

/// A router and the model to ask it for.
pub(super) struct Cluster {
    client: Client,
    model: String,
}

impl Cluster {
    pub(super) async fn connect(router: &Flags, model: Option<&str>) -> anyhow::Result<Self> {
        let mut client = router.connect().await?;
        let model = match model {
            Some(name) => name.to_owned(),
            None => {
                let models =
                    client.list_models(ListModelsRequest {}).await.map_err(|status| told(&status))?;
                models.into_inner().models.into_iter().next().context("the router serves no model")?.name
            }
        };
        Ok(Self { client, model })
    }

    pub(super) async fn generate(&mut self, request: Request, output: &mut Output) -> anyhow::Result<()> {
        let sampling = Some(request.sampling());
        let prompt = match request.prompt_ids {
            Some(ids) => Prompt::Tokens(Tokens { ids }),
            None => Prompt::Text(request.prompt.unwrap_or_default()),
        };
        let message = GenerateRequest {
            model: self.model.clone(),
            prompt: Some(prompt),
            sampling,
            ..GenerateRequest::default()
        };
        let mut stream = self.client.generate(message).await.map_err(|status| told(&status))?.into_inner();
        while let Some(response) = stream.message().await.map_err(|status| told(&status))? {
            output.delta(&response.token_ids, &response.text)?;
            if let Some(finish) = response.finish {
                let reason = finish.reason().as_str_name().trim_start_matches("FINISH_REASON_").to_owned();
                let (usage, timing) =
                    (response.usage.unwrap_or_default(), response.timing.unwrap_or_default());
                return output.end(&Ended::new(reason, &usage, timing));
            }
        }
        bail!("the router ended the stream without a finish")
    }
}

fn told(status: &Status) -> anyhow::Error {
    let fault = Fault::from_status(status);
    anyhow::anyhow!("{}: {}", reason_name(fault.reason), fault.message)
}
