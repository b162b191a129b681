use std::time::Duration;

use serde::Serialize;

/// Turn received state into tokens
#[derive(Clone, Debug, clap::Parser, Serialize)]
#[command(name = "tandem-decode-worker", version)]
#[serde(rename_all = "kebab-case")]
// the flattened flags have a group of this name
#[group(skip)]
pub struct Flags {
    /// What both worker roles have
    #[command(flatten)]
    #[serde(flatten)]
    pub worker: worker::Flags,
    /// Address to take state in on (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_DATA", default_value = "127.0.0.1:0")]
    pub data: String,
    /// Decode batch sizes in sequences, ascending [default: the engine's, up to the slots]
    #[arg(long, env = "TANDEM_BATCHES", value_delimiter = ',')]
    pub batches: Option<Vec<u32>>,
    /// How long a reservation lives without progress (milliseconds)
    #[arg(long, env = "TANDEM_RESERVATION_LEASE", default_value_t = 15_000)]
    pub reservation_lease: u64,
    /// Bytes of one transfer on their way at once
    #[arg(long, env = "TANDEM_TRANSFER_WINDOW", default_value_t = kvxfer::Bounds::default().window)]
    pub transfer_window: u64,
    /// Bytes of all transfers on their way at once
    #[arg(long, env = "TANDEM_TRANSFER_STAGING", default_value_t = kvxfer::Bounds::default().staging)]
    pub transfer_staging: u64,
    /// Hand state over within memory between workers of one host, where the system lets one read the other's
    #[arg(long, env = "TANDEM_TRANSFER_MEMORY", default_value_t = true, action = clap::ArgAction::Set)]
    pub transfer_memory: bool,
}

impl Flags {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.reservation_lease)
    }

    pub(crate) fn bounds(&self) -> kvxfer::Bounds {
        kvxfer::Bounds {
            window: self.transfer_window,
            staging: self.transfer_staging,
            ..kvxfer::Bounds::default()
        }
    }
}
