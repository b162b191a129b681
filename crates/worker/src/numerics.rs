//! Flags that decide what a model computes, and in which numbers.

use clap::builder::FalseyValueParser;
use programs::MAX_DRAFTS;
use serde::Serialize;

/// Flatten into a program's flags. Given twice, the last one counts.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Numerics {
    /// Tokens that the draft layer drafts a decode step, 0 to 5; with 0 it is not loaded [default: 3 where the model has
    /// one, else 0]
    #[arg(long, env = "TANDEM_DRAFTS", overrides_with = "drafts", value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_DRAFTS)))]
    pub drafts: Option<u32>,
    /// Numbers of activations, caches and matrices
    #[arg(long, env = "TANDEM_FLOAT", overrides_with = "float", value_enum, default_value_t = Float::F32)]
    pub float: Float,
    /// Convert matrices to int8 at load
    #[arg(long, env = "TANDEM_INT8", overrides_with = "int8", value_parser = FalseyValueParser::new())]
    pub int8: bool,
}

/// A number's width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Float {
    /// IEEE binary32.
    F32,
    /// The upper half of binary32.
    Bf16,
}

impl Float {
    /// As flags and fingerprints have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl From<Float> for programs::weights::Float {
    fn from(float: Float) -> Self {
        match float {
            Float::F32 => Self::F32,
            Float::Bf16 => Self::Bf16,
        }
    }
}

impl Numerics {
    /// The flags that say the same to another program.
    pub fn to_flags(&self) -> Vec<String> {
        let drafts = self.drafts.map(|drafts| format!("--drafts={drafts}"));
        let int8 = self.int8.then(|| "--int8".to_owned());
        let float = format!("--float={}", self.float.name());
        drafts.into_iter().chain([float]).chain(int8).collect()
    }
}

#[cfg(test)]
mod tests;
