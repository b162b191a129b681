use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::config::{Config, Error, KeyDigest, Limits};
use crate::denied::Denied;
use crate::keys::KeySet;
use crate::source;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often a key set is fetched.
const FETCH: Duration = Duration::from_secs(300);

/// A client that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub name: Arc<str>,
    pub limits: Limits,
}

/// Who may ask, by what they show. Clones are the same.
#[derive(Clone)]
pub struct Credentials {
    path: PathBuf,
    current: Arc<RwLock<Arc<Loaded>>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Loaded {
    config: Config,
    by_key: HashMap<KeyDigest, Arc<str>>,
    keys: KeySet,
    /// The key set as it was read.
    text: String,
    fetched: Instant,
}

impl Credentials {
    /// Reads the configuration, and the key set that it names. Blocks.
    ///
    /// # Errors
    /// What is wrong, by file and field.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let loaded = Loaded::new(Config::read(path)?, None)?;
        Ok(Self { path: path.to_owned(), current: Arc::new(RwLock::new(Arc::new(loaded))) })
    }

    /// Whom an `authorization` header stands for.
    ///
    /// # Errors
    /// Why for nobody.
    pub fn identify(&self, authorization: Option<&str>, now: SystemTime) -> Result<Tenant, Denied> {
        let shown = bearer(authorization.ok_or(Denied::Missing)?)?;
        let current = self.current();
        if let Some(name) = current.by_key.get(&KeyDigest(Sha256::digest(shown).into())) {
            let limits =
                current.config.tenants.get(&**name).map(|tenant| tenant.limits()).unwrap_or_default();
            return Ok(Tenant { name: Arc::clone(name), limits });
        }
        let Some(jwt) = current.config.jwt.as_ref().filter(|_| shown.matches('.').count() == 2) else {
            return Err(Denied::UnknownKey);
        };
        let name = current.keys.tenant(shown, jwt, now)?;
        let listed = current.config.tenants.get(&name).map(|tenant| tenant.limits());
        match listed.or(current.config.others) {
            Some(limits) => Ok(Tenant { name: name.into(), limits }),
            None => Err(Denied::UnknownTenant(name)),
        }
    }

    /// Keeps up with what is written to the files and to the key set's address, for ever. While they are wrong, the last right
    /// ones are in force.
    pub async fn keep(self) {
        loop {
            sleep(LOOK).await;
            let again = self.clone();
            match tokio::task::spawn_blocking(move || again.look()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "credentials stay as they were"),
                Err(error) => tracing::error!(%error, "credentials were not read"),
            }
        }
    }

    fn look(&self) -> Result<(), Error> {
        let (config, before) = (Config::read(&self.path)?, self.current());
        let after = Loaded::new(config, Some(&before))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
        Ok(())
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Loaded {
    fn new(config: Config, before: Option<&Self>) -> Result<Self, Error> {
        let named = |(name, tenant): (&String, &crate::config::TenantConfig)| {
            let name: Arc<str> = name.as_str().into();
            tenant.keys.iter().map(|key| (*key, Arc::clone(&name))).collect::<Vec<_>>()
        };
        let by_key = config.tenants.iter().flat_map(named).collect();
        let Some(jwt) = &config.jwt else {
            let (keys, text) = (KeySet::default(), String::new());
            return Ok(Self { config, by_key, keys, text, fetched: Instant::now() });
        };
        let same = |before: &&Self| before.config.jwt.as_ref().is_some_and(|old| old.jwks == jwt.jwks);
        let fresh =
            before.filter(same).filter(|before| source::is_remote(jwt) && before.fetched.elapsed() < FETCH);
        let (text, fetched) = match fresh {
            Some(before) => (before.text.clone(), before.fetched),
            None => (source::read(jwt)?, Instant::now()),
        };
        let keys = KeySet::parse(&text).map_err(|why| Error::Keys { from: jwt.jwks.clone(), why })?;
        Ok(Self { config, by_key, keys, text, fetched })
    }
}

fn bearer(header: &str) -> Result<&str, Denied> {
    let (scheme, shown) = header.split_once(' ').ok_or(Denied::NotBearer)?;
    let shown = shown.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || shown.is_empty() || shown.contains(' ') {
        return Err(Denied::NotBearer);
    }
    Ok(shown)
}
