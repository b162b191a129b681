//! What is to be compiled, for what, and what must come of it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use model::ModelConfig;
use model::weights::{Float, Formats, Held};
use pjrt::TpuSlice;
use programs::{Mesh, Options, Program, ShapeLadder};
use serde::{Deserialize, Serialize};

use crate::report::{Expect, GIB};

/// One compilation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// Unique, and what `--only` looks at.
    pub(crate) name: String,
    /// A model's `config.json`, relative to the list of jobs.
    pub(crate) config: PathBuf,
    /// Keep only so many of the first layers; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) layers: Option<usize>,
    /// The slice, such as `tpu7x:2x2x4`.
    pub(crate) topology: String,
    /// Devices of the slice that share heads and experts; its first one alone where absent.
    #[serde(default = "one")]
    pub(crate) mesh: usize,
    /// The program.
    pub(crate) program: Phase,
    /// Sizes of the state arrays.
    pub(crate) state: Sizes,
    /// How weights and latents are held.
    #[serde(default)]
    pub(crate) held: Holding,
    /// Flags libtpu reads from its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) init_args: Vec<String>,
    /// What must come of it.
    pub(crate) expect: Expect,
}

fn one() -> usize {
    1
}

/// Which program.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// A chunk of so many tokens.
    Prefill(u32),
    /// A step of so many sequences.
    Decode(u32),
}

/// Sizes of the state arrays.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sizes {
    /// Longest sequence in tokens.
    pub(crate) context: u32,
    /// Tokens of a latent page.
    pub(crate) page_tokens: u32,
    /// Latent pages.
    pub(crate) pages: u32,
    /// Slots.
    pub(crate) slots: u32,
    /// Tokens the draft layer drafts; at 0 it is left out.
    #[serde(default)]
    pub(crate) drafts: u32,
}

/// How weights and latents are held.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Holding {
    /// Activations, latents and plain matrices.
    float: Width,
    /// Matrices of the routed experts.
    experts: Experts,
}

/// Width of floats. A TPU multiplies in bf16: from f32 weights it makes bf16 copies of whole matrices at every call.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Width {
    #[default]
    Bf16,
    F32,
}

/// How routed experts are held.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Experts {
    #[default]
    Float,
    Int8,
    Mxfp4,
}

/// A job's program and the devices it is for.
#[derive(Debug)]
pub(crate) struct Source {
    /// StableHLO text.
    pub(crate) text: String,
    /// Devices of its mesh.
    pub(crate) devices: usize,
}

impl Job {
    /// Reads a list of jobs.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut jobs: Vec<Self> =
            serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        for job in &mut jobs {
            job.slice()?;
            job.config = folder.join(&job.config);
        }
        Ok(jobs)
    }

    /// The slice it compiles for.
    pub(crate) fn slice(&self) -> anyhow::Result<TpuSlice> {
        self.topology.parse().with_context(|| format!("job {}", self.name))
    }

    /// Makes the program.
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        let named = || format!("job {}: {}", self.name, self.config.display());
        let text = std::fs::read_to_string(&self.config).with_context(named)?;
        let mut config = ModelConfig::from_json(&text).with_context(named)?;
        if let Some(layers) = self.layers {
            config.layers.truncate(layers);
        }
        if self.state.drafts == 0 {
            config.mtp = None;
        }
        let program = self.program(&config).with_context(named)?;
        Ok(Source { text: program.text, devices: self.mesh })
    }

    fn program(&self, config: &ModelConfig) -> Result<Program, programs::Error> {
        let Sizes { context, page_tokens, pages, slots, drafts } = self.state;
        let formats = Formats { joined: self.mesh == 1, ..self.held.formats() };
        let (chunks, batches) = match self.program {
            Phase::Prefill(chunk) => (vec![chunk], Vec::new()),
            Phase::Decode(batch) => (vec![1], vec![batch]),
        };
        let ladder = ShapeLadder {
            chunks,
            batches,
            context,
            page_tokens,
            pages,
            slots,
            drafts,
            latents: formats.float,
            lane: 128,
        };
        let (options, mesh) = (Options { formats, ..Options::default() }, Mesh::over(self.mesh));
        match self.program {
            Phase::Prefill(chunk) => programs::prefill(config, &ladder, chunk, &options, &mesh),
            Phase::Decode(batch) => programs::decode(config, &ladder, batch, &options, &mesh),
        }
    }
}

impl Holding {
    fn formats(self) -> Formats {
        Formats {
            float: match self.float {
                Width::Bf16 => Float::Bf16,
                Width::F32 => Float::F32,
            },
            experts: match self.experts {
                Experts::Float => Held::Float,
                Experts::Int8 => Held::Int8,
                Experts::Mxfp4 => Held::Mxfp4,
            },
            ..Formats::default()
        }
    }
}

/// Gibibytes as a person reads them.
pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}
