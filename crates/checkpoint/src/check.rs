//! What a folder's tensors are, before any value is read: how the weights are held, and everything that is wrong.

use std::collections::BTreeSet;

use model::ModelConfig;
use model::weights::{Encoding, Formats, Held, OwnTables, Source, WeightSpec, is_unused, weights};

use crate::folder::Folder;
use crate::names::{PACKED, SUFFIXES};
use crate::stored::{self, Stored};
use crate::{Error, Wanted};

/// How the weights are held: experts stay packed where all of them are.
pub(crate) fn formats(folder: &Folder, config: &ModelConfig, wanted: &Wanted) -> Formats {
    let held = if wanted.int8 { Held::Int8 } else { Held::Float };
    let draft = OwnTables::of(config, &|name| stored::exists(folder, name));
    let plain = Formats { float: wanted.float, matrices: held, experts: held, joined: wanted.joined, draft };
    if wanted.int8 || config.moe.is_none() {
        return plain;
    }
    let packed = Formats { experts: Held::Mxfp4, ..plain };
    let exists = |name: &str| folder.has(name);
    let all = weights(config, &packed)
        .iter()
        .filter(|weight| weight.encoding.is_packed())
        .all(|weight| weight.pieces(&exists, &mut |_| {}).is_ok());
    if all { packed } else { plain }
}

/// Every tensor that the weights are cut from is there, in shape and in a known format, and there is no other.
/// Tells which tensors those are.
pub(crate) fn check(
    folder: &Folder,
    config: &ModelConfig,
    weights: &[WeightSpec],
) -> Result<BTreeSet<String>, Error> {
    let mut faults = Vec::new();
    let mut used = twice(folder, &mut faults);
    // What is there twice has been told.
    let told = used.clone();
    let exists = |name: &str| stored::exists(folder, name);
    // The scales are made from the tensors that the weight before them is made from.
    for weight in weights.iter().filter(|weight| weight.encoding != Encoding::Int8Scales) {
        let mut seen = BTreeSet::new();
        let visited = weight.pieces(&exists, &mut |piece| {
            if told.contains(piece.tensor) || !seen.insert(piece.tensor.to_owned()) {
                return;
            }
            match Stored::find(folder, &piece, weight.encoding) {
                Ok(stored) => used.extend(stored.suffixes().iter().map(|part| named(piece.tensor, part))),
                Err(fault) => {
                    faults.push(fault);
                    used.extend(SUFFIXES.map(|part| named(piece.tensor, part)));
                }
            }
        });
        if visited.is_err() {
            let tensor = missing(folder, &weight.source).unwrap_or_default();
            faults.push(model::Error::TensorMissing { weight: weight.name.clone(), tensor }.into());
            mention(&weight.source, &mut used);
        }
    }
    let unused = folder.tensors().filter(|(name, _)| !used.contains(*name) && !is_unused(config, name));
    faults.extend(unused.map(|(_, tensor)| folder.wrong(tensor, "the model has no use for it".to_owned())));
    match Error::of_all(faults) {
        None => Ok(used),
        Some(fault) => Err(fault),
    }
}

/// Tensors that are there both packed and not, with all their parts.
fn twice(folder: &Folder, faults: &mut Vec<Error>) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for (name, packed) in folder.tensors() {
        let Some(plain) = name.strip_suffix(PACKED).filter(|plain| folder.has(plain)) else {
            continue;
        };
        faults.push(folder.wrong(packed, format!("{plain} is there as well, not packed")));
        parts.extend(SUFFIXES.map(|part| named(plain, part)));
    }
    parts
}

/// Every tensor that an incomplete weight could be cut from: one that lacks a tensor has use for the others.
fn mention(source: &Source, used: &mut BTreeSet<String>) {
    match source {
        Source::Tensor { names, .. } => {
            for name in names {
                used.extend(SUFFIXES.map(|part| named(name, part)));
            }
        }
        Source::Rows { of, .. } => mention(of, used),
        Source::Join(parts)
        | Source::Stack(parts)
        | Source::Columns { parts, .. }
        | Source::Either(parts) => {
            parts.iter().for_each(|part| mention(part, used));
        }
    }
}

/// The first tensor that a source lacks, under the name that is most like those of the folder.
fn missing(folder: &Folder, source: &Source) -> Option<String> {
    let likest = |names: Vec<String>| names.into_iter().max_by_key(|name| folder.likeness(name));
    match source {
        Source::Tensor { names, .. } if names.iter().any(|name| stored::exists(folder, name)) => None,
        Source::Tensor { names, .. } => likest(names.clone()),
        Source::Rows { of, .. } => missing(folder, of),
        Source::Join(parts) | Source::Stack(parts) | Source::Columns { parts, .. } => {
            parts.iter().find_map(|part| missing(folder, part))
        }
        Source::Either(options) => {
            likest(options.iter().map(|option| missing(folder, option)).collect::<Option<_>>()?)
        }
    }
}

fn named(name: &str, suffix: &str) -> String {
    format!("{name}{suffix}")
}
