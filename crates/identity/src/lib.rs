//! Who a client is, and what it may use.
//!
//! The router asks [`Credentials`] which [`Tenant`] an `authorization` header stands for, and [`Quotas`] whether that tenant may
//! use so many tokens now. Tenants are bound to what a client can prove: an API key, of which the configuration holds
//! the SHA-256 only, or a token that one of the keys of a JSON Web Key Set has signed. Who reads the configuration learns
//! no key from it, and neither do logs: no error repeats what was sent.

mod config;
mod credentials;
mod denied;
mod keys;
mod provider;
mod quota;
mod source;

pub use config::{Error, Limits};
pub use credentials::{Credentials, Tenant};
pub use denied::Denied;
pub use quota::{Charge, Over, Quotas};

#[cfg(test)]
mod tests;
