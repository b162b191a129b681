//! Finding other workers for a request, in a task of its own: a client that reads nothing must not hold up its deadline.

use tokio::task::JoinHandle;
use tracing::Instrument;

use super::held::Held;
use crate::dispatch::{Dispatch, Stranded};
use crate::error::Error;

/// A request between its workers. Dropping it ends the request, and gives back what was reserved meanwhile.
#[derive(Debug)]
pub(super) struct Recovering(JoinHandle<Result<Held, Error>>);

impl Recovering {
    pub(super) fn begin(stranded: Stranded, dispatch: Dispatch) -> Self {
        let span = stranded.admitted.arrival.span.clone();
        let restart = async move { dispatch.restart(stranded).await.map(Held::new) };
        Self(tokio::spawn(restart.instrument(span)))
    }

    /// Waits for the others. May be dropped and called again until it has returned.
    pub(super) async fn done(&mut self) -> Result<Held, Error> {
        let failed = |error| Error::Internal(format!("the request was lost between its workers: {error}"));
        (&mut self.0).await.map_err(failed)?
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        self.0.abort();
    }
}
