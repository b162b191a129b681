use std::fs;
use std::path::Path;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::config::{Error, JwtConfig};

const FETCH: Duration = Duration::from_secs(10);
/// A key set is a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;
const HTTPS: &str = "https://";

/// Whether the key set is fetched from afar, so that looking costs somebody something.
pub(crate) fn is_remote(jwt: &JwtConfig) -> bool {
    jwt.jwks.starts_with(HTTPS)
}

/// The text of the key set. Blocks, for [`FETCH`] at most.
pub(crate) fn read(jwt: &JwtConfig) -> Result<String, Error> {
    let wrong = |why: String| Error::Keys { from: jwt.jwks.clone(), why };
    if !is_remote(jwt) {
        return fs::read_to_string(&jwt.jwks).map_err(|fault| wrong(fault.to_string()));
    }
    let roots = match &jwt.ca {
        Some(path) => authorities(path).map_err(wrong)?,
        None => RootCerts::WebPki,
    };
    let tls = TlsConfig::builder().root_certs(roots).build();
    let config = Agent::config_builder().tls_config(tls).https_only(true).timeout_global(Some(FETCH)).build();
    let mut answer =
        Agent::new_with_config(config).get(&jwt.jwks).call().map_err(|fault| wrong(fault.to_string()))?;
    answer
        .body_mut()
        .with_config()
        .limit(MOST_BYTES)
        .read_to_string()
        .map_err(|fault| wrong(fault.to_string()))
}

fn authorities(path: &Path) -> Result<RootCerts, String> {
    let wrong = |fault: String| format!("jwt.ca: {}: {fault}", path.display());
    let pem = fs::read(path).map_err(|fault| wrong(fault.to_string()))?;
    let mut found: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|fault| wrong(fault.to_string()))? {
            found.push(certificate.to_owned());
        }
    }
    match found.is_empty() {
        true => Err(wrong("holds no certificate".to_owned())),
        false => Ok(RootCerts::from(found)),
    }
}
