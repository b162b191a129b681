//! One generation, over as many calls as it takes.

use futures::{Stream, stream};
use tonic::{Code, Streaming};

use crate::{
    client::Client,
    completion::Completion,
    error::{Error, Reason},
    retry::Calls,
    splice::Splice,
    v1::{ErrorReason, GenerateRequest, GenerateResponse},
};

/// One generation under way: responses are numbered without a gap, the last has a `finish`.
///
/// Dropping it, or [`cancel`](Self::cancel), ends it early and frees everything it holds in the cluster.
#[derive(Debug)]
pub struct Generation {
    client: Client,
    request: GenerateRequest,
    calls: Calls,
    splice: Splice,
    state: State,
}

#[derive(Debug)]
enum State {
    /// To be asked, or asked again.
    Idle,
    Streaming(Box<Streaming<GenerateResponse>>),
    Over,
    Cancelled,
}

impl Generation {
    pub(crate) fn new(client: Client, request: GenerateRequest, calls: Calls) -> Self {
        Self { client, request, calls, splice: Splice::default(), state: State::Idle }
    }

    /// Names the request in the router's logs.
    pub fn request_id(&self) -> &str {
        &self.request.request_id
    }

    /// The next response; `None` after the last. The future may be dropped and made anew without losing one.
    pub async fn message(&mut self) -> Result<Option<GenerateResponse>, Error> {
        loop {
            let outcome = match &mut self.state {
                State::Over => return Ok(None),
                State::Cancelled => Err(cancelled()),
                State::Idle => self.ask().await.map(|()| None),
                State::Streaming(stream) => match self.calls.within(stream.message()).await {
                    Ok(Some(response)) => self.splice.accept(response),
                    Ok(None) => {
                        Err(Error::new(Reason::Malformed, Code::Unknown, "the stream ended without a finish"))
                    }
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Ok(None) => {}
                Ok(Some(response)) => {
                    if response.finish.is_some() {
                        self.state = State::Over;
                    }
                    return Ok(Some(response));
                }
                Err(error) => self.recover(error).await?,
            }
        }
    }

    /// The responses as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<GenerateResponse, Error>> + Send {
        stream::try_unfold(self, |mut generation| async move {
            Ok(generation.message().await?.map(|response| (response, generation)))
        })
    }

    /// Waits for the whole answer.
    pub async fn collect(mut self) -> Result<Completion, Error> {
        let mut whole = Completion::default();
        while let Some(response) = self.message().await? {
            whole.add(response);
        }
        Ok(whole)
    }

    /// Ends the generation; [`message`](Self::message) then fails with reason `CANCELLED`.
    pub fn cancel(&mut self) {
        self.state = State::Cancelled;
    }

    async fn ask(&mut self) -> Result<(), Error> {
        self.splice.begin();
        let request = self.client.request(self.request.clone(), self.calls.remaining())?;
        let stream = self.calls.within(self.client.stub().generate(request)).await?;
        self.state = State::Streaming(Box::new(stream.into_inner()));
        Ok(())
    }

    /// Waits until the request may be asked again; fails if the generation ends here.
    async fn recover(&mut self, error: Error) -> Result<(), Error> {
        let error = Error {
            request_id: self.request.request_id.clone(),
            delivered: self.splice.delivered(),
            ..error
        };
        let Some(delay) = self.calls.after(&error) else {
            self.state = State::Over;
            return Err(error);
        };
        self.state = State::Idle;
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

fn cancelled() -> Error {
    Error::new(Reason::Contract(ErrorReason::Cancelled), Code::Cancelled, "cancelled by the client")
}
