//! What came of a compilation.

use pjrt::hlo::{Collective, Copied, HloModule};
use pjrt::{Compiled, CompiledMemory, Topology};
use serde::{Deserialize, Serialize};

use crate::job::{Job, gib};

/// Bytes of a gibibyte.
pub(crate) const GIB: f64 = (1u64 << 30) as f64;
/// Copies below this are not worth a line.
const LARGE_COPY: u64 = 50_000_000;

/// A job and what came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    /// The job.
    pub(crate) job: Job,
    /// What came of it.
    pub(crate) outcome: Outcome,
    /// What compiling took.
    pub(crate) cost: Cost,
    /// What it should have been and is not.
    pub(crate) missed: Vec<String>,
}

/// What a child took of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// Seconds of all its threads.
    pub(crate) cpu_seconds: f64,
    /// Seconds on the wall.
    pub(crate) wall_seconds: f64,
    /// Most bytes it had in memory, as far as it was watched.
    pub(crate) peak_resident: u64,
}

/// How a compilation ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It compiled.
    Compiled(Box<Report>),
    /// It does not fit a memory of the device.
    TooLarge(String),
    /// The compiler refused it.
    Refused(String),
    /// The compiler took the process down.
    Died(String),
    /// It took longer than allowed.
    TimedOut,
}

/// A compiled program, per device; sizes in bytes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Version text of the compiler.
    pub(crate) compiler: String,
    /// The kind of chip.
    pub(crate) device_kind: String,
    /// Devices the program is split over.
    pub(crate) devices: usize,
    /// What a device has for programs.
    pub(crate) limit: u64,
    /// Most in use at once, arguments and outputs included.
    pub(crate) peak: u64,
    /// Arguments.
    pub(crate) arguments: u64,
    /// Outputs.
    pub(crate) outputs: u64,
    /// Outputs that took an argument's place.
    pub(crate) aliased: u64,
    /// Scratch.
    pub(crate) temporaries: u64,
    /// Machine code.
    pub(crate) generated_code: u64,
    /// The serialized executable.
    pub(crate) serialized: u64,
    /// Collectives of the optimised module.
    pub(crate) collectives: Vec<Talk>,
    /// Large copies, the largest first.
    pub(crate) copies: Vec<Move>,
}

/// Collectives of one kind and shape.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Talk {
    /// Such as `all-reduce`.
    pub(crate) kind: String,
    /// What each device has afterwards.
    pub(crate) shape: String,
    /// Bytes of that.
    pub(crate) bytes: u64,
    /// Instructions of this kind and shape.
    pub(crate) count: usize,
    /// How often they run in one execution; loops that turn as often as data says count once.
    pub(crate) runs: u64,
    /// Where one of them comes from.
    pub(crate) source: String,
}

/// A large copy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Move {
    /// What is copied.
    pub(crate) shape: String,
    /// Bytes of it.
    pub(crate) bytes: u64,
    /// Whether it stands outside all loops.
    pub(crate) entry: bool,
    /// How often it runs in one execution, as [`Talk::runs`].
    pub(crate) runs: u64,
    /// Where it comes from.
    pub(crate) source: String,
}

/// What must come of a job.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// It must not fit, as a check of the checker.
    #[serde(default)]
    pub(crate) too_large: bool,
    /// Most gibibytes of peak memory on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak_gib: Option<f64>,
    /// Most gibibytes of large copies outside loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry_copies_gib: Option<f64>,
}

impl Report {
    /// Asks a compiled program everything.
    pub(crate) fn of(topology: &Topology, devices: usize, compiled: &Compiled) -> anyhow::Result<Self> {
        let memory: CompiledMemory =
            compiled.memory().ok_or_else(|| anyhow::anyhow!("the plugin tells no memory plan"))?;
        let hlo = compiled.hlo()?;
        let fallback = memory.arguments + memory.outputs + memory.temporaries - memory.aliased;
        Ok(Self {
            compiler: topology.platform_version().to_owned(),
            device_kind: topology.device_kind().to_owned(),
            devices,
            limit: topology.memory_limit().unwrap_or(0),
            peak: memory.peak.unwrap_or(fallback),
            arguments: memory.arguments,
            outputs: memory.outputs,
            aliased: memory.aliased,
            temporaries: memory.temporaries,
            generated_code: memory.generated_code,
            serialized: compiled.serialize()?.len() as u64,
            collectives: hlo.as_ref().map(talks).unwrap_or_default(),
            copies: hlo.as_ref().map(moves).unwrap_or_default(),
        })
    }

    /// Bytes of large copies outside loops.
    pub(crate) fn entry_copies(&self) -> u64 {
        self.copies.iter().filter(|copy| copy.entry).map(|copy| copy.bytes).sum()
    }
}

fn talks(hlo: &HloModule) -> Vec<Talk> {
    let mut talks: Vec<Talk> = Vec::new();
    for Collective { kind, shape, runs, source } in hlo.collectives() {
        let (kind, bytes, shape) = (kind.to_string(), shape.size_bytes() as u64, shape.to_string());
        match talks.iter_mut().find(|talk| talk.kind == kind && talk.shape == shape) {
            Some(talk) => {
                talk.count += 1;
                talk.runs += runs;
            }
            None => talks.push(Talk { kind, shape, bytes, count: 1, runs, source }),
        }
    }
    talks.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.bytes.cmp(&a.bytes)));
    talks
}

fn moves(hlo: &HloModule) -> Vec<Move> {
    let copy = |Copied { shape, entry, runs, source }| {
        let bytes = shape.size_bytes() as u64;
        Move { shape: shape.to_string(), bytes, entry, runs, source }
    };
    let mut moves: Vec<Move> = hlo.copies(LARGE_COPY).into_iter().map(copy).collect();
    moves.sort_by_key(|copy| std::cmp::Reverse(copy.bytes));
    moves
}

impl Expect {
    /// What is not as it should be.
    pub(crate) fn missed(&self, outcome: &Outcome) -> Vec<String> {
        match (outcome, self.too_large) {
            (Outcome::TooLarge(_), true) => Vec::new(),
            (_, true) => vec!["it should not fit".to_owned()],
            (Outcome::Compiled(report), false) => self.exceeded(report),
            (_, false) => vec!["it should compile".to_owned()],
        }
    }

    fn exceeded(&self, report: &Report) -> Vec<String> {
        let over = |what: &str, bytes: u64, most: Option<f64>| {
            let most = most.filter(|most| gib(bytes) > *most)?;
            Some(format!("{what} is {:.2} GiB, at most {most} are allowed", gib(bytes)))
        };
        let checks = [
            over("peak memory", report.peak, self.peak_gib),
            over("copying outside loops", report.entry_copies(), self.entry_copies_gib),
        ];
        checks.into_iter().flatten().collect()
    }
}
