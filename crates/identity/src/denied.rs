/// Why a client is not who it should be. All of them are the client's fault, and none repeats what it sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("authorization: is missing; `Bearer` and an API key or a token are asked for")]
    Missing,
    #[error("authorization: is no `Bearer` and one word")]
    NotBearer,
    #[error("authorization: the API key is not known")]
    UnknownKey,
    #[error("authorization: the token {0}")]
    BadToken(String),
    /// The token is right, and its tenant is none of ours.
    #[error("authorization: tenant {0:?} is not served")]
    UnknownTenant(String),
    /// The request names a tenant that the credential does not stand for.
    #[error("tenant: {asked:?} is not the credential's tenant")]
    OtherTenant { asked: String },
}

impl Denied {
    /// Whether the client is known, and may not do this; otherwise nobody knows who it is.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::UnknownTenant(_) | Self::OtherTenant { .. })
    }
}
