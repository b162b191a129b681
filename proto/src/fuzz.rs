//! Bodies of the fuzz targets; tests drive them over changed sound messages too.

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};

use crate::sampling::{asked, message};
use crate::status::Fault;
use crate::v1;

#[cfg(test)]
mod tests;

const VOCABULARY: u32 = 2048;

/// Any bytes as every message that a process reads from another: refused, or read as what its own encoding is read as.
/// How many of them took the bytes.
pub fn messages(bytes: &[u8]) -> usize {
    let readers = [
        reads::<v1::GenerateRequest>,
        reads::<v1::GenerateResponse>,
        reads::<v1::PrefillRequest>,
        reads::<v1::PrefillResponse>,
        reads::<v1::ReserveRequest>,
        reads::<v1::ReserveResponse>,
        reads::<v1::RunRequest>,
        reads::<v1::RunResponse>,
        reads::<v1::ReleaseRequest>,
        reads::<v1::JoinRequest>,
        reads::<v1::JoinResponse>,
        reads::<v1::WatchRequest>,
        reads::<v1::WatchResponse>,
        reads::<v1::DrainRequest>,
    ];
    readers.into_iter().filter(|reads| reads(bytes)).count()
}

fn reads<M: Message + Default>(bytes: &[u8]) -> bool {
    let Ok(message) = M::decode(bytes) else { return false };
    let encoded = message.encode_to_vec();
    let again = M::decode(&encoded[..]).map(|again| again.encoded_len());
    assert_eq!(again.ok(), Some(encoded.len()), "a message is not what it says");
    true
}

/// Any bytes as what a client asks of sampling: refused, or with a meaning that its own message means, too.
pub fn sampling(bytes: &[u8]) -> bool {
    let Ok(raw) = v1::Sampling::decode(bytes) else { return false };
    let Ok(checked) = asked(raw).checked(VOCABULARY, 7) else { return false };
    let again = asked(message(&checked)).checked(VOCABULARY, 8);
    assert_eq!(again.ok().as_ref(), Some(&checked), "two workers draw differently");
    true
}

/// Any bytes as a status: its code, then its details. It becomes a fault that its own status is read as.
pub fn status(bytes: &[u8]) -> bool {
    let Some((&code, details)) = bytes.split_first() else { return false };
    let status = Status::with_details(Code::from_i32(code.into()), "", Bytes::copy_from_slice(details));
    let fault = Fault::from_status(&status);
    assert_eq!(Fault::from_status(&fault.to_status()), fault, "a fault is told otherwise than it was heard");
    fault.field.is_some()
}

/// What tests try besides the sound bytes: each of them changed in a few ways, each one taken out, and each beginning.
pub fn changed(sound: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..sound.len()).flat_map(move |at| {
        let (before, byte, after) = (&sound[..at], sound[at], &sound[at + 1..]);
        let others = [byte ^ 1, byte ^ 0x80, 0, 0xff].map(|other| [before, &[other], after].concat());
        others.into_iter().chain([[before, after].concat(), before.to_vec()])
    })
}
