//! The registry in etcd: many routers, one view.
//!
//! A worker writes one key, `<prefix>/workers/<name>`, under a lease that it keeps alive:
//!
//! ```json
//! {"version": 1, "record": {"name": "decode-0", "role": "ROLE_DECODE", "incarnation": "3q2+7w...", "grpcAddress": "10.0.0.7:50052", ...}}
//! ```
//!
//! `record` is `tandem.v1.WorkerRecord` in protobuf's JSON mapping; fields that a reader does not know are passed over, a `version`
//! that it does not know is skipped, as is whatever else lies below the prefix. There is one key a name, so a worker is
//! never there twice. What changes with every step, the load, is not in etcd: routers hear it from each worker.

mod announce;
mod backoff;
mod directory;
mod flags;
mod following;
mod listing;
mod metrics;
mod settings;
mod value;
mod worker;

use std::time::Duration;

use process::Random;
use telemetry::Meters;

use self::{backoff::Backoff, metrics::Metrics, settings::Settings, value::Format};
use crate::Error;

pub use flags::EtcdFlags;
pub use following::{Contact, Following};

/// The longest pause before etcd is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// etcd, as one process uses it. It is reached only when it is announced to, or followed.
#[derive(Debug, Clone)]
pub struct Etcd {
    settings: Settings,
    format: Format,
    metrics: Metrics,
    random: Random,
}

impl Etcd {
    /// None: the flags name no etcd. A file or an address that is wrong is an error now.
    pub fn new(flags: &EtcdFlags, random: Random, meters: &Meters) -> Result<Option<Self>, Error> {
        let Some(settings) = Settings::of(flags)? else { return Ok(None) };
        Ok(Some(Self { settings, format: Format::new()?, metrics: Metrics::register(meters), random }))
    }

    fn backoff(&self, longest: Duration) -> Backoff {
        Backoff::new(self.random.clone(), longest)
    }

    /// The servers in turn, for ever, from a drawn one on.
    fn servers(&self) -> impl Iterator<Item = String> + Send + use<> {
        let servers = self.settings.servers.clone();
        let first = usize::try_from(self.random.seed() % servers.len().max(1) as u64).unwrap_or_default();
        servers.into_iter().cycle().skip(first)
    }
}
