//! The tensors of a model folder, over one file or several.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;
use crate::header::{self, Entry};
use crate::names::canonical;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: File,
}

/// A tensor and the shard that has it.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) entry: Entry,
    shard: usize,
}

/// Every tensor of a folder, by the name that it has in a text model alone.
#[derive(Debug)]
pub(crate) struct Folder {
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Tensor>,
}

/// The part of the index file that counts.
#[derive(Deserialize)]
struct Index {
    /// Tensor to file name.
    weight_map: BTreeMap<String, String>,
}

impl Folder {
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let mut folder = Self { shards: Vec::new(), tensors: BTreeMap::new() };
        if dir.join(SINGLE).exists() {
            folder.add_shard(dir.join(SINGLE))?;
            return Ok(folder);
        }
        let index_path = dir.join(INDEX);
        let index = read_index(&index_path)?;
        let files: BTreeSet<&String> = index.weight_map.values().collect();
        for file in files {
            // A name with a directory in it could point anywhere on the machine.
            if Path::new(file).file_name() != Some(file.as_ref()) {
                return Err(Error::File {
                    path: index_path,
                    why: format!("shard {file:?} is not a file name"),
                });
            }
            folder.add_shard(dir.join(file))?;
        }
        folder.agree(&index, &index_path)?;
        Ok(folder)
    }

    fn add_shard(&mut self, path: PathBuf) -> Result<(), Error> {
        let file = File::open(&path).map_err(|source| Error::Unreadable { path: path.clone(), source })?;
        for entry in header::read(&file, &path)? {
            let name = entry.name.clone();
            let key = canonical(&name).into_owned();
            let tensor = Tensor { entry, shard: self.shards.len() };
            if let Some(earlier) = self.tensors.insert(key, tensor) {
                let other = self.shards.get(earlier.shard).map_or(path.as_path(), |shard| &shard.path);
                let why = format!("is also in {}, as {}", other.display(), earlier.entry.name);
                return Err(Error::Tensor { path, tensor: name, why });
            }
        }
        self.shards.push(Shard { path, file });
        Ok(())
    }

    /// The shards hold what the index says, and nothing else.
    fn agree(&self, index: &Index, index_path: &Path) -> Result<(), Error> {
        for (name, file) in &index.weight_map {
            let holds = self
                .get(&canonical(name))
                .is_some_and(|tensor| tensor.entry.name == *name && self.path(tensor).ends_with(file));
            if !holds {
                let why = format!("is not in {file}, where the index has it");
                return Err(Error::Tensor { path: index_path.to_owned(), tensor: name.clone(), why });
            }
        }
        match self.tensors.values().find(|tensor| !index.weight_map.contains_key(&tensor.entry.name)) {
            None => Ok(()),
            Some(tensor) => Err(self.wrong(tensor, format!("is not in the index {}", index_path.display()))),
        }
    }

    fn path(&self, tensor: &Tensor) -> &Path {
        self.shards.get(tensor.shard).map_or_else(|| Path::new(""), |shard| &shard.path)
    }

    /// The error that a tensor of this folder is wrong.
    pub(crate) fn wrong(&self, tensor: &Tensor, why: String) -> Error {
        Error::Tensor { path: self.path(tensor).to_owned(), tensor: tensor.entry.name.clone(), why }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Bytes that a name begins with like the name of some tensor.
    pub(crate) fn likeness(&self, name: &str) -> usize {
        let before = self.tensors.range::<str, _>((Unbounded, Excluded(name))).next_back();
        let after = self.tensors.range::<str, _>((Included(name), Unbounded)).next();
        let shared =
            |(other, _): (&String, _)| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        before.into_iter().chain(after).map(shared).max().unwrap_or(0)
    }

    /// All tensors and their names, in the order of the names.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Forgets all other tensors.
    pub(crate) fn keep(&mut self, used: &BTreeSet<String>) {
        self.tensors.retain(|name, _| used.contains(name));
    }

    /// Fills `out` with the tensor's bytes from `start` on.
    pub(crate) fn read(&self, tensor: &Tensor, start: u64, out: &mut [u8]) -> Result<(), Error> {
        let Some(shard) = self.shards.get(tensor.shard) else {
            return Err(self.wrong(tensor, "its file is not open".to_owned()));
        };
        let offset = tensor.entry.offset + start;
        shard.file.read_exact_at(out, offset).map_err(|source| Error::Read {
            path: shard.path.clone(),
            tensor: tensor.entry.name.clone(),
            offset,
            source,
        })
    }
}

fn read_index(path: &Path) -> Result<Index, Error> {
    let text = std::fs::read(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::File { path: path.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests;
