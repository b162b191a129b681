use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::*;
use crate::{MEMBER, system};

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// A certificate of `name`, and its key.
    fn signs(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let own =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        (own.pem(), key.serialize_pem())
    }

    /// Gives a folder what a member has.
    fn fills(&self, folder: &Path) {
        let (own, key) = self.signs(MEMBER);
        write(folder, [("tls.crt", &own), ("tls.key", &key), ("ca.crt", &self.certificate)]);
    }

    fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.fills(folder.path());
        folder
    }

    fn member(&self) -> Tls {
        tls(&self.folder())
    }
}

fn write<const N: usize>(folder: &Path, files: [(&str, &str); N]) {
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

fn tls(folder: &TempDir) -> Tls {
    Tls::new(system(), folder.path()).unwrap()
}

/// Answers every connection with what it says.
async fn echo(network: &Tls, traffic: Traffic) -> SocketAddr {
    let mut listener = network.bind("127.0.0.1:0", traffic).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(stream);
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    address
}

async fn says(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), words: &[u8]) -> io::Result<()> {
    stream.write_all(words).await?;
    stream.flush().await?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).await?;
    // an alert, say
    if answer != words { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
}

async fn asks(network: &(impl Connect + ?Sized), at: SocketAddr, traffic: Traffic) -> io::Result<AnyStream> {
    let mut stream = network.connect(&at.to_string(), traffic).await?;
    says(&mut stream, b"hello").await?;
    Ok(stream)
}

/// A certificate of some name and its key, as `rustls` takes them.
fn parsed((own, key): (String, String)) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let own = CertificateDer::from_pem_slice(own.as_bytes()).unwrap();
    (vec![own], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

/// TLS as members speak it, with any certificate or none.
async fn asks_as(own: Option<(String, String)>, authority: &Authority, at: SocketAddr) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own.map(parsed) {
        Some((own, key)) => config.with_client_auth_cert(own, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(at).await?;
    let name = MEMBER.try_into().unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    says(&mut stream, b"hello").await
}

/// A server that shows this certificate and asks for none.
async fn serves_as(own: (String, String)) -> SocketAddr {
    let (own, key) = parsed(own);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(own, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(config)).accept(stream).await
    });
    at
}

#[tokio::test]
async fn members_reach_each_other() {
    let authority = Authority::new();
    let (one, other) = (authority.member(), authority.member());
    let much: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    for traffic in [Traffic::Calls, Traffic::Bulk] {
        let at = echo(&one, traffic).await;
        let stream = asks(&other, at, traffic).await.unwrap();
        let (mut from, mut to) = tokio::io::split(stream);
        let mut answer = vec![0; much.len()];
        let sending = async {
            to.write_all(&much).await?;
            to.flush().await
        };
        tokio::try_join!(sending, from.read_exact(&mut answer)).unwrap();
        assert!(answer == much);
    }
}

#[tokio::test]
async fn strangers_are_refused_and_members_still_served() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let member = authority.member();
    for traffic in [Traffic::Calls, Traffic::Bulk] {
        let at = echo(&member, traffic).await;
        asks(&foreign.member(), at, traffic).await.unwrap_err();
        asks_as(Some(authority.signs("another")), &authority, at).await.unwrap_err();
        asks_as(None, &authority, at).await.unwrap_err();
        asks(&*system(), at, traffic).await.unwrap_err();
        asks(&authority.member(), at, traffic).await.unwrap();
        asks_as(Some(authority.signs(MEMBER)), &authority, at).await.unwrap();
    }
}

#[tokio::test]
async fn a_member_does_not_call_strangers() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let member = authority.member();
    for stranger in [foreign.signs(MEMBER), authority.signs("another")] {
        let at = serves_as(stranger).await;
        let refused = member.connect(&at.to_string(), Traffic::Calls).await.unwrap_err();
        assert!(refused.to_string().contains("certificate"), "{refused}");
    }
}

#[tokio::test]
async fn whoever_says_nothing_keeps_nobody_out() {
    let authority = Authority::new();
    let member = authority.member();
    let at = echo(&member, Traffic::Calls).await;
    let mut silent = Vec::new();
    for _ in 0..PENDING + 20 {
        silent.push(TcpStream::connect(at).await.unwrap());
    }
    let served = timeout(HANDSHAKE / 2, asks(&member, at, Traffic::Calls)).await;
    served.expect("served before any silent one was given up").unwrap();
    let mut rest = [0];
    assert_eq!(silent[0].read(&mut rest).await.unwrap(), 0, "the oldest made room");

    tokio::time::pause();
    tokio::time::advance(HANDSHAKE).await;
    for stream in &mut silent {
        assert_eq!(stream.read(&mut rest).await.unwrap(), 0, "none waits for ever");
    }
}

#[tokio::test]
async fn replaced_files_are_used_from_the_next_connection_on() {
    let (former, next) = (Authority::new(), Authority::new());
    let [here, there] = [former.folder(), former.folder()];
    let (listening, calling) = (tls(&here), tls(&there));
    let at = echo(&listening, Traffic::Calls).await;
    let mut living = asks(&calling, at, Traffic::Calls).await.unwrap();

    next.fills(here.path());
    asks(&calling, at, Traffic::Calls).await.unwrap_err();
    next.fills(there.path());
    asks(&calling, at, Traffic::Calls).await.unwrap();
    asks(&former.member(), at, Traffic::Calls).await.unwrap_err();
    says(&mut living, b"still here").await.unwrap();
}

#[tokio::test]
async fn half_written_files_keep_the_former_in_use() {
    let (former, next) = (Authority::new(), Authority::new());
    let here = former.folder();
    let (listening, calling) = (tls(&here), former.member());
    let at = echo(&listening, Traffic::Calls).await;
    let (own, key) = next.signs(MEMBER);
    let steps = [
        ("ca.crt", ""),
        ("ca.crt", &next.certificate[..next.certificate.len() / 2]),
        ("ca.crt", &next.certificate),
        ("tls.crt", &own),
        ("tls.key", &key[..key.len() / 2]),
    ];
    for (name, text) in steps {
        write(here.path(), [(name, text)]);
        asks(&calling, at, Traffic::Calls).await.unwrap();
    }
    std::fs::remove_file(here.path().join("tls.key")).unwrap();
    asks(&calling, at, Traffic::Calls).await.unwrap();
    write(here.path(), [("tls.key", &key)]);
    asks(&calling, at, Traffic::Calls).await.unwrap_err();
    asks(&next.member(), at, Traffic::Calls).await.unwrap();
}

#[tokio::test]
async fn the_public_needs_no_certificate() {
    let authority = Authority::new();
    let at = echo(&authority.member(), Traffic::Public).await;
    asks(&*system(), at, Traffic::Public).await.unwrap();
}

#[test]
fn the_file_that_is_wrong_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let another = authority.signs("another").0;
    let wrong = [
        ("tls.crt", None, "tls.crt: "),
        ("tls.crt", Some("no certificate"), "tls.crt: no certificate in it"),
        (
            "tls.crt",
            Some(&another),
            "tls.crt: invalid peer certificate: certificate not valid for name \"tandem\"",
        ),
        ("ca.crt", Some(&other.certificate), "tls.crt: invalid peer certificate: "),
        ("ca.crt", Some(""), "ca.crt: no certificate in it"),
        ("tls.key", Some(""), "tls.key: "),
        ("tls.key", Some(&other.signs(MEMBER).1), "tls.key: keys may not be consistent"),
    ];
    for (name, text, said) in wrong {
        let folder = authority.folder();
        match text {
            Some(text) => write(folder.path(), [(name, text)]),
            None => std::fs::remove_file(folder.path().join(name)).unwrap(),
        }
        let error = Tls::new(system(), folder.path()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}/{said}", folder.path().display())), "{name}: {error}");
    }
}
