use std::collections::HashMap;
use std::fmt;

use super::{HloModule, Instruction};
use crate::dtype::Shape;

/// How devices talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum CollectiveKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    CollectivePermute,
}

/// One collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// How devices talk.
    pub kind: CollectiveKind,
    /// What each device has afterwards; the largest array, where several travel together.
    pub shape: Shape,
    /// How often it runs in one execution. Loops that turn as often as data says count once.
    pub runs: u64,
    /// Where it comes from in the source program.
    pub source: String,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What is copied.
    pub shape: Shape,
    /// Whether it stands in the program itself, outside loops and calls.
    pub entry: bool,
    /// How often it runs in one execution, as [`Collective::runs`].
    pub runs: u64,
    /// Where it comes from in the source program.
    pub source: String,
}

impl CollectiveKind {
    /// From an opcode. A collective in two halves counts where it starts.
    fn of(opcode: &str) -> Option<Self> {
        match opcode.strip_suffix("-start").unwrap_or(opcode) {
            "all-reduce" => Some(Self::AllReduce),
            "all-gather" => Some(Self::AllGather),
            "reduce-scatter" => Some(Self::ReduceScatter),
            "all-to-all" | "ragged-all-to-all" => Some(Self::AllToAll),
            "collective-permute" => Some(Self::CollectivePermute),
            _ => None,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::CollectivePermute => "collective-permute",
        })
    }
}

impl HloModule {
    /// Every collective, each once however it is wrapped.
    pub fn collectives(&self) -> Vec<Collective> {
        self.every(|instruction| CollectiveKind::of(&instruction.opcode))
            .map(|(kind, instruction, at)| Collective {
                kind,
                shape: largest(instruction),
                runs: at.runs,
                source: instruction.source.clone(),
            })
            .collect()
    }

    /// Every copy of at least so many bytes within the main memory: what the compiler moves only to have it in another layout
    /// or place. What it fetches into a faster memory is no such copy.
    pub fn copies(&self, at_least: u64) -> Vec<Copied> {
        let large = |instruction: &Instruction| {
            let ends = match instruction.opcode.as_str() {
                "copy" => 1,
                // The copy, its original, and a handle.
                "copy-start" => 2,
                _ => return None,
            };
            let stays = instruction.layouts.iter().take(ends).all(|layout| layout.space == 0);
            (stays && instruction.largest_result() >= at_least).then_some(())
        };
        self.every(large)
            .map(|((), instruction, at)| Copied {
                shape: largest(instruction),
                entry: at.entry,
                runs: at.runs,
                source: instruction.source.clone(),
            })
            .collect()
    }

    /// The instructions `pick` wants, with where they stand.
    fn every<'a, T>(
        &'a self,
        pick: impl Fn(&Instruction) -> Option<T> + 'a,
    ) -> impl Iterator<Item = (T, &'a Instruction, Standing)> {
        let standings = self.standings();
        self.computations.iter().flat_map(move |computation| {
            let standing = standings.get(&computation.id).copied();
            let picked = computation.instructions.iter().filter_map(|each| Some((pick(each)?, each)));
            // What nothing calls does not run.
            standing
                .map(|at| picked.map(move |(what, each)| (what, each, at)).collect::<Vec<_>>())
                .into_iter()
                .flatten()
        })
    }

    /// Where each computation stands that the program reaches, by id.
    fn standings(&self) -> HashMap<u64, Standing> {
        let by_id: HashMap<u64, _> = self.computations.iter().map(|each| (each.id, each)).collect();
        let mut known = HashMap::new();
        let mut next = vec![(self.entry().id, Standing { entry: true, runs: 1 })];
        while let Some((id, at)) = next.pop() {
            if known.insert(id, at).is_some() {
                continue;
            }
            let instructions = by_id.get(&id).map_or(&[][..], |computation| &computation.instructions);
            for instruction in instructions {
                let inner = at.within(instruction, self.turns(instruction));
                next.extend(instruction.calls.iter().map(|call| (*call, inner)));
            }
        }
        known
    }
}

/// Where a computation stands.
#[derive(Clone, Copy)]
struct Standing {
    entry: bool,
    runs: u64,
}

impl Standing {
    /// Where that stands which `instruction` calls.
    fn within(self, instruction: &Instruction, turns: Option<u64>) -> Self {
        match instruction.opcode.as_str() {
            "while" => Self { entry: false, runs: self.runs * turns.unwrap_or(1) },
            "conditional" => Self { entry: false, ..self },
            // Fused or asynchronous, it still runs where it is called.
            _ => self,
        }
    }
}

fn largest(instruction: &Instruction) -> Shape {
    let largest = instruction.results.iter().max_by_key(|shape| shape.size_bytes());
    largest.cloned().unwrap_or_else(|| Shape::new(crate::DType::Pred, &[]))
}
