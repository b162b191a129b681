//! Body of the fuzz target; a test drives it over changed headers too.

use std::path::Path;

use crate::header;

/// Any bytes as a file's header, after the number of bytes that its values take: refused, or entries that lie end to end and
/// fill the file.
pub fn safetensors(bytes: &[u8]) -> bool {
    let Some((&values, json)) = bytes.split_first() else { return false };
    let begin = header::LENGTH_BYTES + json.len() as u64;
    let end = begin + u64::from(values);
    let Ok(entries) = header::parse(json, end, Path::new("m")) else { return false };
    let filled = entries.iter().try_fold(begin, |at, entry| (entry.offset == at).then_some(at + entry.bytes));
    assert_eq!(filled, Some(end), "{entries:?}");
    true
}
