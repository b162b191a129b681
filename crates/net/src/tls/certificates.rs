use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::member::Member;
use crate::MEMBER;

/// A file of a TLS folder that can not be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct TlsError {
    path: PathBuf,
    fault: String,
}

/// What a folder's files make, as they are now or last were right.
#[derive(Debug)]
pub(super) struct Certificates {
    files: Files,
    name: ServerName<'static>,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    /// As the files were when they were read last, right or wrong.
    seen: [Option<Stamp>; 3],
    roles: Roles,
}

/// Both sides of a connection.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

impl Certificates {
    pub(super) fn read(folder: &Path) -> Result<Self, TlsError> {
        let files = Files::of(folder);
        let name = ServerName::try_from(MEMBER).map_err(wrong(folder))?;
        let seen = files.stamps();
        let roles = files.read(&name)?;
        Ok(Self { files, name, read: Mutex::new(Read { seen, roles }) })
    }

    /// Whom a client asks for.
    pub(super) fn peer(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// For the next connection. The files are few and small, and lie in memory where secrets do.
    pub(super) fn current(&self) -> Roles {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // taken before the files are read: what changes meanwhile is read again
        let stamps = self.files.stamps();
        if read.seen != stamps {
            read.seen = stamps;
            match self.files.read(&self.name) {
                Ok(roles) => {
                    tracing::info!("certificates were replaced");
                    read.roles = roles;
                }
                Err(error) => tracing::warn!(%error, "the former certificates stay in use"),
            }
        }
        read.roles.clone()
    }
}

/// What changes when a file is written or replaced: inode, length, and the times of the last change of content and inode.
type Stamp = (u64, u64, [i64; 4]);

fn stamp(file: &Metadata) -> Stamp {
    (file.ino(), file.len(), [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()])
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Files {
    fn of(folder: &Path) -> Self {
        let [certificate, key, authority] = ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name));
        Self { certificate, key, authority }
    }

    fn stamps(&self) -> [Option<Stamp>; 3] {
        [&self.certificate, &self.key, &self.authority]
            .map(|path| std::fs::metadata(path).ok().as_ref().map(stamp))
    }

    /// Wrong is also what a peer with the same authority would refuse.
    fn read(&self, name: &ServerName<'static>) -> Result<Roles, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(wrong(&self.key))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authority)? {
            roots.add(authority).map_err(wrong(&self.authority))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(wrong(&self.authority))?;
        let authority = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(wrong(&self.authority))?;
        let clients = Arc::new(Member { authority, name: name.clone() });
        if let [own, between @ ..] = chain.as_slice() {
            let now = UnixTime::now();
            servers.verify_server_cert(own, between, name, &[], now).map_err(wrong(&self.certificate))?;
            clients.verify_client_cert(own, between, now).map_err(wrong(&self.certificate))?;
        }
        Ok(Roles {
            client: Arc::new(self.client(&provider, servers, chain.clone(), key.clone_key())?),
            server: Arc::new(self.server(&provider, clients, chain, key)?),
        })
    }

    fn client(
        &self,
        provider: &Arc<CryptoProvider>,
        servers: Arc<WebPkiServerVerifier>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ClientConfig, TlsError> {
        let mut client = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong(&self.certificate))?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain, key)
            .map_err(wrong(&self.key))?;
        client.resumption = Resumption::disabled();
        Ok(client)
    }

    fn server(
        &self,
        provider: &Arc<CryptoProvider>,
        clients: Arc<Member>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, TlsError> {
        let mut server = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong(&self.certificate))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(wrong(&self.key))?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        // other clients of gRPC than ours insist on being told
        server.alpn_protocols = vec![b"h2".to_vec()];
        Ok(server)
    }
}

/// At least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).map_err(wrong(path))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(wrong(path))?;
    if all.is_empty() {
        return Err(wrong(path)("no certificate in it"));
    }
    Ok(all)
}

fn wrong<F: ToString>(path: &Path) -> impl Fn(F) -> TlsError {
    move |fault| TlsError { path: path.to_owned(), fault: fault.to_string() }
}
