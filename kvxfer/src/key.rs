use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer};
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::frame::{Hello, MOST_HEAD, SEGMENT_ID};
use crate::local::MARK;
use crate::segment::SegmentId;
use crate::ticket::{Incarnation, LinkId, Secret, TicketId};

/// Bytes that say which frame a tag is of: number, link, direction.
const WHERE: usize = 11;
/// Bytes of the secret XXH3 is keyed with.
const XXH3_SECRET: usize = 192;

/// Which way a frame travels; a frame reflected to its writer does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToReceiver,
    ToSender,
}

/// Keys one transfer's digests and tags. Derived from the ticket's secret, id, position and both incarnations, so bytes of
/// another ticket, position, process or attempt never match. XXH3 guards against faults; TLS is what keeps attackers out.
#[derive(Clone)]
pub(crate) struct TransferKey(Box<[u8; XXH3_SECRET]>);

impl fmt::Debug for TransferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferKey(..)")
    }
}

pub(crate) fn hmac(secret: &Secret) -> Hmac<Sha256> {
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
        receiver: &Incarnation,
        sender: &Incarnation,
    ) -> TransferKey {
        let mut key = Box::new([0; XXH3_SECRET]);
        for (number, block) in (0u8..).zip(key.chunks_exact_mut(32)) {
            let mut hmac = hmac(secret);
            hmac.update(b"tandem transfer key");
            hmac.update(&ticket.0);
            hmac.update(&state_pos.to_le_bytes());
            hmac.update(&receiver.0);
            hmac.update(&sender.0);
            hmac.update(&[number]);
            block.copy_from_slice(&hmac.finalize().into_bytes());
        }
        TransferKey(key)
    }

    /// For the frames before both ends know that they share a secret.
    pub(crate) fn unkeyed() -> TransferKey {
        TransferKey::derive(
            &Secret([0; 32]),
            &TicketId([0; 16]),
            0,
            &Incarnation([0; 16]),
            &Incarnation([0; 16]),
        )
    }

    /// The digest of a segment's payload, taken as its bytes come: right after the socket has moved them.
    pub(crate) fn digest(&self) -> Digest {
        let secret = SecretBuffer::new(0, *self.0).unwrap_or_else(|_| unreachable!("too short a key"));
        Digest { hasher: RawHasher::new(secret), key: self.clone(), bytes: 0 }
    }

    /// Over a frame's head, its link, its direction and its number there: a frame lost, doubled, moved or reflected does
    /// not pass.
    pub(crate) fn tag(&self, link: LinkId, direction: Direction, number: u64, head: &[u8]) -> u64 {
        let mut all = [0; MOST_HEAD + WHERE];
        all[..8].copy_from_slice(&number.to_le_bytes());
        all[8..10].copy_from_slice(&link.0.to_le_bytes());
        all[10] = match direction {
            Direction::ToReceiver => b'r',
            Direction::ToSender => b's',
        };
        let end = WHERE + head.len();
        all[WHERE..end].copy_from_slice(head);
        let tag = XxHash3_64::oneshot_with_secret(self.0.as_slice(), &all[..end]);
        tag.unwrap_or_else(|_| unreachable!("too short a key"))
    }
}

/// A segment's digest, half taken.
pub(crate) struct Digest {
    hasher: RawHasher<[u8; XXH3_SECRET]>,
    key: TransferKey,
    bytes: usize,
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Digest {
    /// Takes in what the payload has beyond the bytes taken in so far.
    pub(crate) fn up_to(&mut self, payload: &[u8]) {
        if let Some(more) = payload.get(self.bytes..) {
            self.hasher.write(more);
            self.bytes = payload.len();
        }
    }

    /// Of the id and the payload's own digest.
    pub(crate) fn of(&self, id: &SegmentId) -> u128 {
        let mut both = [0; SEGMENT_ID + 16];
        both[..SEGMENT_ID].copy_from_slice(&id.encoded());
        both[SEGMENT_ID..].copy_from_slice(&self.hasher.finish_128().to_le_bytes());
        let digest = XxHash3_128::oneshot_with_secret(self.key.0.as_slice(), &both);
        digest.unwrap_or_else(|_| unreachable!("too short a key"))
    }
}

/// What lies in the memory that a sender lends to a link.
pub(crate) fn mark(secret: &Secret, ticket: &TicketId, attempt: &Incarnation, link: LinkId) -> [u8; MARK] {
    let mut hmac = hmac(secret);
    hmac.update(b"tandem lent memory");
    hmac.update(&ticket.0);
    hmac.update(&attempt.0);
    hmac.update(&link.0.to_le_bytes());
    let mut mark = [0; MARK];
    mark.copy_from_slice(&hmac.finalize().into_bytes()[..MARK]);
    mark
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
