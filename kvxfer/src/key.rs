use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use xxhash_rust::xxh3::Xxh3;

use crate::frame::Hello;
use crate::segment::SegmentId;
use crate::ticket::{Incarnation, Secret, TicketId};

/// Bytes of the secret XXH3 is keyed with.
const XXH3_SECRET: usize = 192;

/// Which way a frame travels; a frame reflected to its writer does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToReceiver,
    ToSender,
}

/// Keys one transfer's digests and tags. Derived from the ticket's secret, id, position and incarnation, so bytes of
/// another ticket, position or process never match. XXH3 guards against faults; TLS is what keeps attackers out.
#[derive(Clone)]
pub(crate) struct TransferKey(Box<[u8; XXH3_SECRET]>);

impl std::fmt::Debug for TransferKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransferKey(..)")
    }
}

fn hmac(secret: &Secret) -> Hmac<Sha256> {
    // HMAC pads a short key with zeros to its block
    let mut block = [0; 64];
    block[..32].copy_from_slice(&secret.0);
    Hmac::<Sha256>::new(&block.into())
}

impl TransferKey {
    pub(crate) fn derive(
        secret: &Secret,
        ticket: &TicketId,
        state_pos: u32,
        incarnation: &Incarnation,
    ) -> TransferKey {
        let mut key = Box::new([0; XXH3_SECRET]);
        for (number, block) in (0u8..).zip(key.chunks_exact_mut(32)) {
            let mut hmac = hmac(secret);
            hmac.update(b"tandem transfer key");
            hmac.update(&ticket.0);
            hmac.update(&state_pos.to_le_bytes());
            hmac.update(&incarnation.0);
            hmac.update(&[number]);
            block.copy_from_slice(&hmac.finalize().into_bytes());
        }
        TransferKey(key)
    }

    /// For the frames before both ends know that they share a secret.
    pub(crate) fn unkeyed() -> TransferKey {
        TransferKey::derive(&Secret([0; 32]), &TicketId([0; 16]), 0, &Incarnation([0; 16]))
    }

    /// The digest of one segment: of its id and its payload.
    pub(crate) fn digest(&self, id: &SegmentId, payload: &[u8]) -> u128 {
        let mut hash = Xxh3::with_secret(*self.0);
        hash.update(&id.encoded());
        hash.update(payload);
        hash.digest128()
    }

    /// Over a frame's head, its direction and its number: a frame lost, doubled, moved or reflected does not pass.
    pub(crate) fn tag(&self, direction: Direction, number: u64, head: &[u8]) -> u64 {
        let mut hash = Xxh3::with_secret(*self.0);
        hash.update(&number.to_le_bytes());
        hash.update(match direction {
            Direction::ToReceiver => b"r",
            Direction::ToSender => b"s",
        });
        hash.update(head);
        hash.digest()
    }
}

/// Proves that the greeting's writer knows the ticket's secret.
pub(crate) fn prove(secret: &Secret, hello: &Hello) -> [u8; 32] {
    let mut hmac = hmac(secret);
    hmac.update(&hello.unproven());
    hmac.finalize().into_bytes().into()
}

pub(crate) fn proven(secret: &Secret, hello: &Hello) -> bool {
    let mut hmac = hmac(secret);
    hmac.update(&hello.unproven());
    hmac.verify_slice(&hello.proof).is_ok()
}
