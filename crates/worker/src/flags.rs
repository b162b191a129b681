//! Flags of both worker roles.

use std::{io, net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use discovery::EtcdFlags;
use process::{net::BindError, observe::Observe};
use serde::Serialize;

use crate::Numerics;

/// Flatten into a worker's flags.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Flags {
    /// Folder of the checkpoint (config.json, safetensors, tokenizer)
    #[arg(long, env = "TANDEM_MODEL")]
    pub model: PathBuf,
    /// Name the model is served under [default: the folder's name]
    #[arg(long, env = "TANDEM_MODEL_NAME")]
    pub model_name: Option<String>,
    /// This worker's name, unique in its cluster [default: role and process id]
    #[arg(long, env = "TANDEM_NAME")]
    pub name: Option<String>,
    /// Router (host:port) whose membership to join, unless there is --etcd: with TLS, its --members
    #[arg(long, env = "TANDEM_ROUTER", default_value = "127.0.0.1:50051")]
    pub router: String,
    /// Where to say that this worker is there
    #[command(flatten)]
    #[serde(flatten)]
    pub etcd: EtcdFlags,
    /// Address to serve gRPC on (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_GRPC", default_value = "127.0.0.1:0")]
    pub grpc: String,
    /// Address to serve /health, /ready and /metrics on (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_HTTP", default_value = "127.0.0.1:0")]
    pub http: String,
    /// Host that others reach this worker at, for all of its ports [default: the address of each; one that stands for all of a host's
    /// addresses, such as 0.0.0.0, needs this]
    #[arg(long, env = "TANDEM_ADVERTISE", value_name = "HOST")]
    pub advertise: Option<String>,
    /// Folder with tls.crt, tls.key and ca.crt (PEM): all other processes of the cluster must show a certificate that ca.crt signed
    /// and that names the host `tandem`, and are shown this one; not /health, /ready and /metrics. Files that change are read
    /// again [default: no TLS]
    #[arg(long, env = "TANDEM_TLS", value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// PJRT plugin (path) [default: the pinned CPU plugin]
    #[arg(long, env = "TANDEM_PJRT_PLUGIN")]
    pub pjrt_plugin: Option<PathBuf>,
    /// Devices that the model is divided over, by heads and experts; the CPU plugin plays as many as are asked for [default:
    /// all that the plugin has, 1 on CPU]
    #[arg(long, env = "TANDEM_DEVICES")]
    pub devices: Option<NonZeroUsize>,
    /// Folder that compiled programs are kept in
    #[arg(long, env = "TANDEM_CACHE", default_value = ".tools/cache")]
    pub cache: PathBuf,
    /// Threads the device may use [default: all cores]
    #[arg(long, env = "TANDEM_THREADS")]
    pub threads: Option<usize>,
    /// Tokens a latent page
    #[arg(long, env = "TANDEM_PAGE_TOKENS", default_value_t = 64)]
    pub page_tokens: u32,
    /// Latent pages in all [default: every slot can hold half a context]
    #[arg(long, env = "TANDEM_PAGES")]
    pub pages: Option<u32>,
    /// Sequences held at once
    #[arg(long, env = "TANDEM_SLOTS", default_value_t = 16)]
    pub slots: u32,
    /// Longest context in tokens [default: the model's]
    #[arg(long, env = "TANDEM_CONTEXT")]
    pub context: Option<u32>,
    /// What the model computes
    #[command(flatten)]
    #[serde(flatten)]
    pub numerics: Numerics,
    /// Seconds that running requests get to end in after SIGTERM
    #[arg(long, env = "TANDEM_GRACE", default_value_t = 30)]
    pub grace: u64,
    /// Logs and traces
    #[command(flatten)]
    #[serde(flatten)]
    pub observe: Observe,
}

impl Flags {
    /// The name to join under.
    pub fn worker_name(&self, role: &str) -> String {
        self.name.clone().unwrap_or_else(|| format!("{role}-{}", std::process::id()))
    }

    /// The name the model is served under.
    pub fn served_name(&self) -> String {
        let folder = || self.model.file_name().map(|name| name.to_string_lossy().into_owned());
        self.model_name.clone().or_else(folder).unwrap_or_else(|| "model".to_owned())
    }

    /// Where others reach what is bound at `bound` by the flag of the given name.
    ///
    /// # Errors
    /// When nobody could: it stands for all addresses of this host, and `--advertise` does not say which.
    pub fn reached_at(&self, flag: &'static str, bound: SocketAddr) -> Result<String, BindError> {
        match &self.advertise {
            Some(host) if host.contains(':') && !host.starts_with('[') => {
                Ok(format!("[{host}]:{}", bound.port()))
            }
            Some(host) => Ok(format!("{host}:{}", bound.port())),
            None if bound.ip().is_unspecified() => {
                let why =
                    "stands for all addresses of this host: --advertise must say which others reach it at";
                let source = io::Error::new(io::ErrorKind::InvalidInput, why);
                Err(BindError { flag, address: bound.to_string(), source })
            }
            None => Ok(bound.to_string()),
        }
    }

    /// How long running requests get after SIGTERM.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}

#[cfg(test)]
mod tests;
