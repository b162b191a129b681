//! Where etcd is, and how it is spoken to.

use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use tokio::time::timeout;

use super::{EtcdFlags, value::Keys};
use crate::Error;

/// What a server that is well answers within, many times over.
pub(super) const ANSWER: Duration = Duration::from_secs(3);

/// Why etcd is of no use just now. All of it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Etcd(#[from] etcd_client::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("{0}")]
    Ended(String),
    /// A file that was right at the start, and is not now.
    #[error(transparent)]
    Setting(#[from] Error),
}

/// Checked flags.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) servers: Vec<String>,
    pub(super) keys: Keys,
    tls: Option<PathBuf>,
    user: Option<(String, PathBuf)>,
}

impl Settings {
    /// None: there is to be no etcd.
    pub(super) fn of(flags: &EtcdFlags) -> Result<Option<Self>, Error> {
        let named = flags.etcd.iter().map(|url| url.trim()).filter(|url| !url.is_empty());
        let servers: Vec<String> = named.map(str::to_owned).collect();
        if servers.is_empty() {
            return Ok(None);
        }
        for server in &servers {
            let wrong =
                |reason: &str| Err(Error::Address { address: server.clone(), reason: reason.to_owned() });
            match (server.split_once("://"), &flags.etcd_tls) {
                (Some(("http", host)) | Some(("https", host)), _) if host.is_empty() => {
                    return wrong("names no host");
                }
                (Some(("http", _)), None) | (Some(("https", _)), Some(_)) => {}
                (Some(("http", _)), Some(_)) => return wrong("--etcd-tls wants https://"),
                (Some(("https", _)), None) => return wrong("https:// wants --etcd-tls"),
                _ => return wrong("begins with neither http:// nor https://"),
            }
            if let Err(error) = tonic::transport::Endpoint::from_shared(server.clone()) {
                return wrong(&error.to_string());
            }
        }
        let user = flags.etcd_user.clone().zip(flags.etcd_password_file.clone());
        let settings =
            Self { servers, keys: Keys::below(&flags.etcd_prefix), tls: flags.etcd_tls.clone(), user };
        // What is wrong with a file is said at the start, and not when it is needed.
        settings.options()?;
        Ok(Some(settings))
    }

    /// A connection to one server, logged in. Its files are read anew.
    pub(super) async fn connect(&self, server: &str) -> Result<Client, Fault> {
        let options = self.options()?;
        answered(Client::connect([server], Some(options))).await
    }

    fn options(&self) -> Result<ConnectOptions, Error> {
        // A server that has lost its fellows answers from what it has, and hears of nothing new: it counts as away.
        let mut options = ConnectOptions::new().with_connect_timeout(ANSWER).with_require_leader(true);
        if let Some(folder) = &self.tls {
            let mut tls =
                TlsOptions::new().ca_certificate(Certificate::from_pem(read(&folder.join("ca.crt"))?));
            let (own, key) = (folder.join("tls.crt"), folder.join("tls.key"));
            if own.exists() || key.exists() {
                tls = tls.identity(Identity::from_pem(read(&own)?, read(&key)?));
            }
            options = options.with_tls(tls);
        }
        if let Some((name, file)) = &self.user {
            let password = String::from_utf8_lossy(&read(file)?).trim_end().to_owned();
            options = options.with_user(name, password);
        }
        Ok(options)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::File { path: path.to_owned(), reason: error.to_string() })
}

/// An answer that is waited for no longer than it can take.
pub(super) async fn answered<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, Fault> {
    match timeout(ANSWER, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Fault::Silent(ANSWER)),
    }
}
