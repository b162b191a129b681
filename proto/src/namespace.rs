//! Whose prompts share cached state: one rule for workers, who hold it, and routers, who look for it.

use prefix::Namespace;
use prost::Message;

use crate::v1::Fingerprint;

/// The namespace of a tenant's prompts under a salt, on workers of one fingerprint. The tenant's length stands before it, so
/// that no tenant and salt together read as another's; the fingerprint is its protobuf encoding.
#[must_use]
pub fn of(tenant: &str, cache_salt: &str, fingerprint: &Fingerprint) -> Namespace {
    let mut salt = (tenant.len() as u64).to_le_bytes().to_vec();
    salt.extend_from_slice(tenant.as_bytes());
    salt.extend_from_slice(cache_salt.as_bytes());
    Namespace::of(&salt, &fingerprint.encode_to_vec())
}
