//! Admit, place, start and relay requests; gRPC, OpenAI HTTP.
//!
//! Clients call in through [`ingress`]; workers are called through their own contracts. A request's types follow its
//! journey, each made from the one before: `Asked`, `Request`, `Admitted`, `Placed`, `Decoding`, [`TokenStream`].

mod admission;
mod caches;
mod channels;
mod clients;
mod dispatch;
mod error;
mod flags;
mod fleet;
#[doc(hidden)]
pub mod fuzz;
pub mod ingress;
mod joining;
mod journey;
mod metrics;
mod model;
mod placement;
mod recovery;
mod relay;
mod request;
mod scaling;
mod server;
mod status;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod test_model;
mod token_log;

pub use admission::{Arrival, Limits};
pub use clients::Clients;
pub use error::Error;
pub use flags::Flags;
pub use joining::Joining;
pub use journey::{Config, Deps, Router};
pub use model::{Model, OpenError};
pub use recovery::Bounds;
pub use relay::TokenStream;
pub use request::{Asked, Chat, Door, Prompt, Request};
pub use server::{Listeners, ServeError};
