use engine::{HashUnit, PrefixCache};
use serde::Serialize;

/// Turn a prompt into state and hand it over
#[derive(Clone, Debug, clap::Parser, Serialize)]
#[command(name = "tandem-prefill-worker", version)]
#[serde(rename_all = "kebab-case")]
// the flattened flags have a group of this name
#[group(skip)]
pub struct Flags {
    /// What both worker roles have
    #[command(flatten)]
    #[serde(flatten)]
    pub worker: worker::Flags,
    /// Prefill chunk lengths in tokens, ascending; the last one is the step of the grid [default: the engine's, up to the
    /// context]
    #[arg(long, env = "TANDEM_CHUNKS", value_delimiter = ',')]
    pub chunks: Option<Vec<u32>>,
    /// Tokens of a hash unit of the prefix cache: prompts that begin alike are resumed at multiples of it; 0 keeps nothing
    #[arg(long, env = "TANDEM_HASH_UNIT", default_value_t = 512)]
    pub hash_unit: u32,
    /// Host memory for recurrent checkpoints of the prefix cache, in MiB
    #[arg(long, env = "TANDEM_CHECKPOINT_MEMORY", default_value_t = 1024)]
    pub checkpoint_memory: u64,
    /// How checkpoints are held: int8 takes a quarter of the memory, and answers may differ
    #[arg(long, env = "TANDEM_CHECKPOINT_FORMAT", default_value = "f32")]
    pub checkpoint_format: CheckpointFormat,
    /// Hand state over within memory between workers of one host, where the system lets one read the other's
    #[arg(long, env = "TANDEM_TRANSFER_MEMORY", default_value_t = true, action = clap::ArgAction::Set)]
    pub transfer_memory: bool,
}

/// How the recurrent state of a checkpoint is held on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointFormat {
    F32,
    Int8,
}

impl Flags {
    /// What is kept of prompts, if anything is.
    pub fn prefix_cache(&self) -> Option<PrefixCache> {
        let unit = HashUnit::new(self.hash_unit)?;
        let format = match self.checkpoint_format {
            CheckpointFormat::F32 => engine::CheckpointFormat::F32,
            CheckpointFormat::Int8 => engine::CheckpointFormat::Int8,
        };
        Some(PrefixCache { format, ..PrefixCache::new(unit, self.checkpoint_memory << 20) })
    }
}
