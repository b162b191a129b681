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
}
