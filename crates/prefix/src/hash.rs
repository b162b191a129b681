use std::fmt;

use blake3::Hasher;

/// Whose prompts may begin alike: a digest of the tenant's salt and of the model's fingerprint, part of every hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Namespace([u8; 32]);

impl Namespace {
    /// The namespace of a tenant's `salt` (empty where tenants share) and a model's `fingerprint`.
    pub fn of(salt: &[u8], fingerprint: &[u8]) -> Self {
        let mut hasher = Hasher::new_derive_key("tandem prefix namespace");
        // The length keeps a salt's end from standing for a fingerprint's beginning.
        hasher.update(&(salt.len() as u64).to_le_bytes()).update(salt).update(fingerprint);
        Self(*hasher.finalize().as_bytes())
    }

    pub(crate) fn hash(&self, parent: PrefixHash, unit: &[u32]) -> PrefixHash {
        let mut bytes = Vec::with_capacity(parent.0.len() + size_of_val(unit));
        bytes.extend_from_slice(&parent.0);
        for token in unit {
            bytes.extend_from_slice(&token.to_le_bytes());
        }
        let digest = blake3::keyed_hash(&self.0, &bytes);
        let mut hash = PrefixHash::ROOT;
        hash.0.copy_from_slice(&digest.as_bytes()[..16]);
        hash
    }
}

impl fmt::Debug for Namespace {
    // A salt can be a secret, and with the key at hand short ones could be guessed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Namespace(..)")
    }
}

/// Stands for all tokens up to a boundary, and the namespace they were asked for in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrefixHash(pub [u8; 16]);

impl PrefixHash {
    /// What the first unit takes as its parent; no boundary has it.
    pub(crate) const ROOT: Self = Self([0; 16]);
}

impl fmt::Display for PrefixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PrefixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixHash({self})")
    }
}
