//! The signatures that tokens may carry, checked by ring.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self as checks, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use signature::Verifier;

/// Checks signatures; makes none.
pub(crate) static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Signatures of these kinds are accepted: none that a shared secret makes, which whoever checks could make, too.
pub(crate) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

enum Check {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

fn check(algorithm: Algorithm) -> Option<Check> {
    Some(match algorithm {
        Algorithm::RS256 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&checks::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&checks::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Check::Curve(&checks::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Curve(&checks::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Curve(&checks::ED25519),
        _ => return None,
    })
}

struct Checker {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let check = check(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    Ok(Box::new(Checker { algorithm: *algorithm, check, key: key.clone() }))
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

impl Verifier<Vec<u8>> for Checker {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        let wrong = |_| signature::Error::new();
        match (&self.check, self.key.kind()) {
            (Check::Rsa(how), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(how, message, signed).map_err(wrong)
            }
            (Check::Curve(how), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*how, point).verify(message, signed).map_err(wrong)
            }
            _ => Err(signature::Error::new()),
        }
    }
}

impl JwtVerifier for Checker {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
