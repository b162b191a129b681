//! What ties a ticket to the two processes it was made for.

use std::fmt;

use hmac::Mac;
use x25519_dalek::{PublicKey, StaticSecret};

use crate::key;
use crate::ticket::{BadLength, Secret};

/// One start's private key, X25519 (RFC 7748). Whoever has somebody else's ticket and not this cannot use it.
#[derive(Clone)]
pub struct EndKey(StaticSecret);

/// What others must know to bind a ticket to the start that has the [`EndKey`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicEnd([u8; PublicEnd::BYTES]);

/// A public key that binds to nobody: with it, everybody would reckon the same secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no public key of one end")]
pub struct NobodysKey;

impl EndKey {
    /// Of so many random bytes, which must be fit for secrets.
    pub fn new(random: [u8; PublicEnd::BYTES]) -> EndKey {
        EndKey(StaticSecret::from(random))
    }

    pub fn public(&self) -> PublicEnd {
        PublicEnd(PublicKey::from(&self.0).to_bytes())
    }

    /// The secret of a transfer: the ticket's, and what only this end and `other` can reckon. Both ends come to the same.
    pub fn bind(&self, ticket: &Secret, other: &PublicEnd) -> Result<Secret, NobodysKey> {
        let shared = self.0.diffie_hellman(&PublicKey::from(other.0));
        if !shared.was_contributory() {
            return Err(NobodysKey);
        }
        let mut bound = key::hmac(&Secret(shared.to_bytes()));
        bound.update(b"tandem ticket of two ends");
        bound.update(&ticket.0);
        Ok(Secret(bound.finalize().into_bytes().into()))
    }
}

impl PublicEnd {
    pub const BYTES: usize = 32;

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for PublicEnd {
    type Error = BadLength;

    fn try_from(bytes: &[u8]) -> Result<PublicEnd, BadLength> {
        let need = PublicEnd::BYTES;
        bytes.try_into().map(PublicEnd).map_err(|_| BadLength { have: bytes.len(), need })
    }
}

impl fmt::Debug for EndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndKey(..)")
    }
}

impl fmt::Debug for PublicEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicEnd(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests;
