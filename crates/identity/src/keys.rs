use std::collections::HashMap;
use std::time::SystemTime;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::Value;

use crate::config::JwtConfig;
use crate::denied::Denied;
use crate::provider::{ALGORITHMS, PROVIDER};

/// Clocks of issuers may be off by this much, in seconds.
const LEEWAY: u64 = 60;

/// The keys that may sign tokens.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Signer>,
}

#[derive(Debug)]
struct Signer {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// Of a JSON Web Key Set; keys of kinds that sign nothing here are left out.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // Installing it twice is the same provider again.
        let _ = PROVIDER.install_default();
        let set: JwkSet = serde_json::from_str(text).map_err(|error| format!("is no key set: {error}"))?;
        let keys: Vec<Signer> = set.keys.iter().filter_map(Signer::of).collect();
        if keys.is_empty() {
            return Err("holds no key that could sign a token".to_owned());
        }
        Ok(Self { keys })
    }

    /// The tenant that a token names, if one of the keys signed it for us, and it is in force at `now`.
    pub(crate) fn tenant(&self, token: &str, config: &JwtConfig, now: SystemTime) -> Result<String, Denied> {
        let bad = |why: &str| Denied::BadToken(why.to_owned());
        let header = decode_header(token).map_err(|_| bad("can not be read"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(bad("is signed in a way that is not accepted"));
        }
        let fits = |signer: &&Signer| {
            signer.algorithms.contains(&header.alg) && (header.kid.is_none() || signer.id == header.kid)
        };
        let mut last = bad("names a key that is not in the key set");
        for signer in self.keys.iter().filter(fits) {
            match decode::<HashMap<String, Value>>(token, &signer.key, &validation(header.alg, config)) {
                Ok(found) => return tenant_of(&found.claims, config, now),
                Err(error) => last = bad(said(error.kind())),
            }
        }
        Err(last)
    }
}

/// Times are checked apart: what the time is, is an argument.
fn validation(algorithm: Algorithm, config: &JwtConfig) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_audience(&[&config.audience]);
    validation.set_issuer(&[&config.issuer]);
    validation.set_required_spec_claims(&["exp", "aud", "iss"]);
    (validation.validate_exp, validation.validate_nbf) = (false, false);
    validation
}

fn tenant_of(claims: &HashMap<String, Value>, config: &JwtConfig, now: SystemTime) -> Result<String, Denied> {
    let bad = |why: String| Denied::BadToken(why);
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = |claim: &str| claims.get(claim).and_then(Value::as_f64).map(|at| at as u64);
    match time("exp") {
        Some(until) if until + LEEWAY > seconds => {}
        Some(_) => return Err(bad("has expired".to_owned())),
        None => return Err(bad("has no time of expiry".to_owned())),
    }
    if time("nbf").is_some_and(|from| from > seconds + LEEWAY) {
        return Err(bad("is not in force yet".to_owned()));
    }
    let named = claims.get(&config.tenant_claim).and_then(Value::as_str).filter(|name| !name.is_empty());
    named.map(str::to_owned).ok_or_else(|| bad(format!("has no claim {:?} with a name", config.tenant_claim)))
}

fn said(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidSignature => "is not signed by the key that it names",
        ErrorKind::InvalidIssuer => "is of another issuer",
        ErrorKind::InvalidAudience => "is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "lacks an expiry, an issuer or an audience",
        _ => "can not be read",
    }
}

impl Signer {
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
            return None;
        }
        let possible: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &ALGORITHMS[..6],
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            _ => return None,
        };
        let named = common.key_algorithm.map(|named| named.to_string());
        let said =
            |algorithm: &&Algorithm| named.as_ref().is_none_or(|named| *named == format!("{algorithm:?}"));
        let algorithms: Vec<Algorithm> = possible.iter().filter(said).copied().collect();
        let key = DecodingKey::from_jwk(jwk).ok()?;
        (!algorithms.is_empty()).then_some(Self { id: common.key_id.clone(), algorithms, key })
    }
}
