//! A trace of prompts by their 512-token blocks, and its packed form.
//!
//! Mooncake's traces name each block by a number that stands for all tokens up to its end, and numbers new blocks in the
//! order of their first use. So a prompt is the last of its blocks that was used before, how many new ones follow, and
//! its length: three variable-length numbers (LEB128).

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use statepool::prefix::{Chain, HashUnit, Namespace};

pub(crate) struct Trace {
    pub(crate) prompts: Vec<Prompt>,
}

pub(crate) struct Prompt {
    /// One for each unit, the last one perhaps of a unit that is not whole.
    pub(crate) blocks: Vec<u32>,
    pub(crate) chain: Chain,
}

#[derive(Deserialize)]
struct Line {
    input_length: u32,
    hash_ids: Vec<u32>,
}

impl Trace {
    pub(crate) fn read(file: &Path) -> Self {
        if file.extension().is_some_and(|extension| extension == "jsonl") {
            Self::of(lines(file).into_iter().map(|line| (line.input_length, line.hash_ids)))
        } else {
            Self::of(unpacked(&std::fs::read(file).unwrap()))
        }
    }

    fn of(prompts: impl IntoIterator<Item = (u32, Vec<u32>)>) -> Self {
        let (unit, space) = (HashUnit::default(), Namespace::of(b"", b"trace"));
        let prompt = |(length, blocks): (u32, Vec<u32>)| {
            let mut tokens = Vec::with_capacity(length as usize);
            for block in &blocks {
                let left = length as usize - tokens.len();
                let end = tokens.len() + left.min(unit.tokens().0 as usize);
                tokens.resize(end, *block);
            }
            assert_eq!(tokens.len(), length as usize);
            Prompt { blocks, chain: Chain::of(&space, unit, &tokens) }
        };
        Self { prompts: prompts.into_iter().map(prompt).collect() }
    }
}

fn lines(file: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The packed form of a trace as it was published.
pub(crate) fn packed(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut parents: HashMap<u32, Option<u32>> = HashMap::new();
    for line in lines(file) {
        let known = line.hash_ids.iter().take_while(|block| parents.contains_key(block)).count();
        let mut parent = None;
        for (index, block) in line.hash_ids.iter().enumerate() {
            if index < known {
                assert_eq!(parents[block], parent, "a block stands for one beginning");
            } else {
                assert_eq!(*block as usize, parents.len(), "blocks are numbered as they come");
                parents.insert(*block, parent);
            }
            parent = Some(*block);
        }
        let last = known.checked_sub(1).map_or(0, |index| line.hash_ids[index] + 1);
        let new = (line.hash_ids.len() - known) as u32;
        for number in [last, new, line.input_length] {
            push(&mut bytes, number);
        }
    }
    bytes
}

fn unpacked(bytes: &[u8]) -> Vec<(u32, Vec<u32>)> {
    let mut bytes = bytes.iter();
    let mut parents: Vec<Option<u32>> = Vec::new();
    let mut prompts = Vec::new();
    while let Some(last) = pull(&mut bytes) {
        let (new, length) = (pull(&mut bytes).unwrap(), pull(&mut bytes).unwrap());
        let mut parent = last.checked_sub(1);
        let mut blocks: Vec<u32> = std::iter::successors(parent, |block| parents[*block as usize]).collect();
        blocks.reverse();
        for _ in 0..new {
            blocks.push(parents.len() as u32);
            parents.push(parent);
            parent = blocks.last().copied();
        }
        prompts.push((length, blocks));
    }
    prompts
}

fn push(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn pull<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u32> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = *bytes.next()?;
        number |= u32::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}
