//! One start of one process.

use bytes::Bytes;
use process::Random;
use proto::{status::Fault, v1::ErrorReason};

/// A random id made at each start, so that messages meant for an earlier start are recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation(Bytes);

impl Incarnation {
    /// A new one.
    pub fn new(random: &Random) -> Self {
        Self(Bytes::copy_from_slice(random.uuid().as_bytes()))
    }

    /// On the wire.
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Refuses a message that was issued to another start.
    pub fn check(&self, issued_to: &[u8]) -> Result<(), Fault> {
        if self.0 == issued_to {
            return Ok(());
        }
        let message = "the message was issued to another start of this worker";
        Err(Fault::new(ErrorReason::StaleIncarnation, message).with_field("incarnation"))
    }
}
