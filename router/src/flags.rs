//! What an operator can set.

use std::path::PathBuf;
use std::time::Duration;

use discovery::EtcdFlags;
use process::observe::Observe;
use serde::Serialize;

use crate::admission::Limits;
use crate::journey::Config;
use crate::recovery::Bounds;

/// Admit, place, start and relay requests
#[derive(Clone, Debug, clap::Parser, Serialize)]
#[command(name = "tandem-router", version)]
#[serde(rename_all = "kebab-case")]
pub struct Flags {
    /// Folder of the checkpoint (config.json, tokenizer, chat template; weights are not read)
    #[arg(long, env = "TANDEM_MODEL")]
    pub model: PathBuf,
    /// Name the model is served under [default: the folder's name]
    #[arg(long, env = "TANDEM_MODEL_NAME")]
    pub model_name: Option<String>,
    /// Address to serve gRPC on (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_GRPC", default_value = "127.0.0.1:50051")]
    pub grpc: String,
    /// Address to serve HTTP on (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_HTTP", default_value = "127.0.0.1:8080")]
    pub http: String,
    /// Address that workers join at (host:port, port 0 for any) [default: --grpc's]
    #[arg(long, env = "TANDEM_MEMBERS", value_name = "ADDRESS", group = "joining")]
    pub members: Option<String>,
    /// Where to find workers
    #[command(flatten)]
    #[serde(flatten)]
    pub etcd: EtcdFlags,
    /// Folder with tls.crt, tls.key and ca.crt (PEM): all workers must show a certificate that ca.crt signed and that names the
    /// host `tandem`, and are shown this one. Clients need none: --grpc and --http stay as they are. Files that change are
    /// read again [default: no TLS]
    #[arg(long, env = "TANDEM_TLS", value_name = "FOLDER", requires = "joining")]
    pub tls: Option<PathBuf>,
    /// File that says which tenants there are, with what keys and tokens, and what they may use (README): clients must show one. It is read
    /// again when it changes [default: anyone may ask]
    #[arg(long, env = "TANDEM_CREDENTIALS", value_name = "FILE", requires = "joining")]
    pub credentials: Option<PathBuf>,
    /// Address to serve the status page on, for operators: workers, queues and requests, live (host:port, port 0 for any). It asks nobody
    /// who they are, so it does not belong where clients reach it [default: --http's; with --credentials, none]
    #[arg(long, env = "TANDEM_STATUS", value_name = "ADDRESS")]
    pub status: Option<String>,
    /// Where all routers of the cluster are reached at their --grpc, this one among them (host:port; names that stand for several, such
    /// as a headless Service's, may be given; comma separated): autoscalers are told what all of them have to do
    /// [default: this router is the only one]
    #[arg(long, env = "TANDEM_PEERS", value_name = "ADDRESSES", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// Requests in flight at once
    #[arg(long, env = "TANDEM_MAX_IN_FLIGHT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_in_flight: u32,
    /// Requests that may wait to be admitted
    #[arg(long, env = "TANDEM_MAX_WAITING", default_value_t = 1024)]
    pub max_waiting: u32,
    /// Longest wait to be admitted (seconds)
    #[arg(long, env = "TANDEM_MAX_WAIT", default_value_t = 10)]
    pub max_wait: u64,
    /// Longest life of a request (seconds)
    #[arg(long, env = "TANDEM_REQUEST_TIMEOUT", default_value_t = 600)]
    pub request_timeout: u64,
    /// How often a request that workers failed is placed again at most
    #[arg(long, env = "TANDEM_RETRIES", default_value_t = 8)]
    pub retries: u32,
    /// How many workers in a row a request may lose, without getting on, before it is taken for the cause
    #[arg(long, env = "TANDEM_LOSSES", default_value_t = 3)]
    pub losses: u32,
    /// Longest wait for a worker when all of a role that serves are gone (seconds)
    #[arg(long, env = "TANDEM_WORKER_WAIT", default_value_t = 60)]
    pub worker_wait: u64,
    /// Workers come when requests ask for them, as where an autoscaler goes down to none: this counts as ready without any, and
    /// requests wait for them though there has never been one
    #[arg(long, env = "TANDEM_ON_DEMAND")]
    pub on_demand: bool,
    /// After so many seconds a client's gRPC connection takes no new calls and ends with its last one: clients look up anew which routers
    /// there are, and find those that were added
    #[arg(long, env = "TANDEM_CONNECTION_AGE", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub connection_age: u64,
    /// Silence after which a worker is no longer a member (milliseconds)
    #[arg(long, env = "TANDEM_LEASE", default_value_t = 5000)]
    pub lease: u64,
    /// Seconds that running requests get to end in after SIGTERM
    #[arg(long, env = "TANDEM_GRACE", default_value_t = 30)]
    pub grace: u64,
    /// Logs and traces
    #[command(flatten)]
    #[serde(flatten)]
    pub observe: Observe,
}

impl Flags {
    /// The name the model is served under.
    pub fn served_name(&self) -> String {
        let folder = || self.model.file_name().map(|name| name.to_string_lossy().into_owned());
        self.model_name.clone().or_else(folder).unwrap_or_else(|| "model".to_owned())
    }

    /// How the router behaves.
    pub fn config(&self) -> Config {
        Config {
            limits: Limits {
                in_flight: self.max_in_flight as usize,
                waiting: self.max_waiting as usize,
                wait: Duration::from_secs(self.max_wait),
            },
            timeout: Duration::from_secs(self.request_timeout),
            bounds: Bounds {
                retries: self.retries,
                losses: self.losses,
                wait: Duration::from_secs(self.worker_wait),
            },
            on_demand: self.on_demand,
            connection_age: Duration::from_secs(self.connection_age),
        }
    }

    /// Silence after which a worker is no longer a member.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease)
    }

    /// How long running requests get after SIGTERM.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}
