//! The head of a safetensors file, read with suspicion: its length, then JSON naming each tensor's format, shape and
//! place, then the values. Format: <https://github.com/huggingface/safetensors>.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value};

use crate::Error;

/// Bytes that hold the length of the JSON.
pub(crate) const LENGTH_BYTES: u64 = 8;
/// Longest JSON accepted; the format's own limit.
const LONGEST: u64 = 100_000_000;
/// The one key that is not a tensor.
const METADATA: &str = "__metadata__";

/// One tensor in a file: its format, shape, and where its values are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<usize>,
    /// First byte of the values, counted from the start of the file.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The tensors of a file in the order of their values. They lie end to end and fill the file: no hole, no overlap.
pub(crate) fn read(file: &File, path: &Path) -> Result<Vec<Entry>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let refuse = |why: String| Error::File { path: path.to_owned(), why };
    let file_bytes = file.metadata().map_err(unreadable)?.len();
    if file_bytes < LENGTH_BYTES {
        return Err(refuse(format!("{file_bytes} bytes are too few for a safetensors header")));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, 0).map_err(unreadable)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST || length > file_bytes - LENGTH_BYTES {
        return Err(refuse(format!("a header of {length} bytes is claimed, in a file of {file_bytes}")));
    }
    let mut json = vec![0; length as usize];
    file.read_exact_at(&mut json, LENGTH_BYTES).map_err(unreadable)?;
    parse(&json, file_bytes, path)
}

pub(crate) fn parse(json: &[u8], file_bytes: u64, path: &Path) -> Result<Vec<Entry>, Error> {
    let refuse = |why: String| Error::File { path: path.to_owned(), why };
    let fields: Map<String, Value> = serde_json::from_slice(json)
        .map_err(|error| refuse(format!("header is not a JSON object: {error}")))?;
    let mut infos = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        if name == METADATA {
            continue;
        }
        let info: TensorInfo = serde_json::from_value(value).map_err(|error| Error::Tensor {
            path: path.to_owned(),
            tensor: name.clone(),
            why: format!("header entry: {error}"),
        })?;
        infos.push((name, info));
    }
    infos.sort_by(|(name, a), (other, b)| (a.data_offsets, name).cmp(&(b.data_offsets, other)));
    let values = LENGTH_BYTES + json.len() as u64;
    let mut position = values;
    let mut entries = Vec::with_capacity(infos.len());
    for (name, info) in infos {
        let entry = place(&name, info, position, values).map_err(|why| Error::Tensor {
            path: path.to_owned(),
            tensor: name,
            why,
        })?;
        if entry.offset + entry.bytes > file_bytes {
            let why = format!("ends at byte {} of a file of {file_bytes}", entry.offset + entry.bytes);
            return Err(Error::Tensor { path: path.to_owned(), tensor: entry.name, why });
        }
        position = entry.offset + entry.bytes;
        entries.push(entry);
    }
    if position != file_bytes {
        return Err(refuse(format!("the file has {file_bytes} bytes, its tensors end at {position}")));
    }
    Ok(entries)
}

/// The entry, if its values begin at `position`, where the previous tensor ends, and are as long as its shape says.
fn place(name: &str, info: TensorInfo, position: u64, values: u64) -> Result<Entry, String> {
    let (from, to) = info.data_offsets;
    let start = values.checked_add(from as u64).ok_or("its offset overflows")?;
    if start != position {
        let what = if start < position { "overlaps the previous tensor" } else { "leaves a hole before it" };
        return Err(format!("{what}: starts at byte {start}, not {position}"));
    }
    let bytes =
        to.checked_sub(from).ok_or_else(|| format!("data_offsets [{from}, {to}] run backwards"))? as u64;
    let bits = info
        .shape
        .iter()
        .try_fold(info.dtype.bitsize() as u64, |product, &dim| product.checked_mul(dim as u64));
    if bits.is_none_or(|bits| bits % 8 != 0 || bits / 8 != bytes) {
        return Err(format!("shape {:?} of {} does not take {bytes} bytes", info.shape, info.dtype));
    }
    start.checked_add(bytes).ok_or("its end overflows")?;
    Ok(Entry { name: name.to_owned(), dtype: info.dtype, dims: info.shape, offset: start, bytes })
}

#[cfg(test)]
mod tests;
