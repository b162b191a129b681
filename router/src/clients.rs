//! Whose request this is, and how much its tenant may use.

use std::path::Path;
use std::time::SystemTime;

use identity::{Charge, Credentials, Quotas, Tenant};
use tokio::time::Instant;

use crate::error::Error;

/// Who may ask. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    credentials: Option<Credentials>,
    quotas: Quotas,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub enum Client {
    /// Nobody has to say: a request's tenant is what it says.
    #[default]
    Anyone,
    /// It has shown a key or a token of this tenant.
    Of(Tenant),
}

impl Clients {
    /// Whether clients must show who they are.
    pub(crate) fn are_known(&self) -> bool {
        self.credentials.is_some()
    }

    /// Only those that show a key or a token of a file of credentials, which is kept up with from now on. Must be called inside the
    /// runtime, and blocks while the file is read.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn listed(file: &Path) -> Result<Self, identity::Error> {
        let credentials = Credentials::open(file)?;
        tokio::spawn(credentials.clone().keep());
        Ok(Self { credentials: Some(credentials), quotas: Quotas::default() })
    }

    /// Who sends this `authorization`.
    pub(crate) fn identify(&self, authorization: Option<&str>) -> Result<Client, Error> {
        match &self.credentials {
            None => Ok(Client::Anyone),
            Some(credentials) => Ok(Client::Of(credentials.identify(authorization, SystemTime::now())?)),
        }
    }

    /// Takes the most that a request can use of what its tenant may use.
    pub(crate) fn charge(&self, client: &Client, tokens: u64) -> Result<Option<Charge>, Error> {
        match client {
            Client::Anyone => Ok(None),
            Client::Of(tenant) => Ok(Some(self.quotas.charge(tenant, tokens, Instant::now().into_std())?)),
        }
    }
}

impl Client {
    /// The tenant of a request that names `named`: a client that is known can name its own only.
    pub(crate) fn tenant(&self, named: String) -> Result<String, Error> {
        match self {
            Self::Anyone => Ok(named),
            Self::Of(tenant) if named.is_empty() || *named == *tenant.name => Ok(tenant.name.to_string()),
            Self::Of(_) => Err(identity::Denied::OtherTenant { asked: named }.into()),
        }
    }
}
