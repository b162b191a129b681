use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

/// What a tenant may use at each router; none: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// Tokens a minute, of prompts and outputs together; a minute's worth may be used at once.
    pub tokens_per_minute: Option<u64>,
    /// Requests in flight at once.
    pub in_flight: Option<u32>,
}

/// The configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) tenants: BTreeMap<String, TenantConfig>,
    /// Limits of tenants that tokens name and that are not listed; without it they are refused.
    pub(crate) others: Option<Limits>,
    pub(crate) jwt: Option<JwtConfig>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TenantConfig {
    /// `sha256:` and the digest in hexadecimal of each API key.
    #[serde(default)]
    pub(crate) keys: Vec<KeyDigest>,
    pub(crate) tokens_per_minute: Option<u64>,
    pub(crate) in_flight: Option<u32>,
}

impl TenantConfig {
    pub(crate) fn limits(&self) -> Limits {
        Limits { tokens_per_minute: self.tokens_per_minute, in_flight: self.in_flight }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct JwtConfig {
    /// File or `https://` address of the key set.
    pub(crate) jwks: String,
    /// File with the authorities (PEM) that `jwks` is fetched under; none: the public ones.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) issuer: String,
    pub(crate) audience: String,
    /// The claim that names the tenant.
    #[serde(default = "tenant_claim")]
    pub(crate) tenant_claim: String,
}

fn tenant_claim() -> String {
    "tenant".to_owned()
}

/// SHA-256 of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct KeyDigest(pub(crate) [u8; 32]);

impl TryFrom<String> for KeyDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let wrong = "a key must be `sha256:` and 64 hexadecimal digits";
        let digits = text
            .strip_prefix("sha256:")
            .filter(|digits| digits.len() == 64 && digits.is_ascii())
            .ok_or(wrong)?;
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong)?;
        }
        Ok(Self(digest))
    }
}

/// What is wrong with the configuration. Whoever wrote it has to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {fault}")]
    Read { path: PathBuf, fault: io::Error },
    #[error("{path}: {fault}")]
    Parse { path: PathBuf, fault: serde_yaml_ng::Error },
    #[error("{path}: {field}: {why}")]
    Field { path: PathBuf, field: String, why: String },
    #[error("jwt.jwks: {from}: {why}")]
    Keys { from: String, why: String },
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|fault| Error::Read { path: path.to_owned(), fault })?;
        let config: Self =
            serde_yaml_ng::from_str(&text).map_err(|fault| Error::Parse { path: path.to_owned(), fault })?;
        config.check().map_err(|(field, why)| Error::Field { path: path.to_owned(), field, why })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), (String, String)> {
        let mut seen = BTreeMap::new();
        for (name, tenant) in &self.tenants {
            if name.is_empty() {
                return Err(("tenants".to_owned(), "a tenant has no name".to_owned()));
            }
            for key in &tenant.keys {
                if let Some(other) = seen.insert(key.0, name) {
                    return Err((format!("tenants.{name}.keys"), format!("a key is {other:?}'s already")));
                }
            }
        }
        if seen.is_empty() && self.jwt.is_none() {
            return Err(("tenants".to_owned(), "nobody has a key, and there is no jwt".to_owned()));
        }
        Ok(())
    }
}
