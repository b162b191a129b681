//! The families whose vocabulary, chat format and stop rules are built in.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, read};

/// A family of models, by `model_type` in a checkpoint's `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Moonshot Kimi K3: XTML.
    KimiK3,
    /// Zhipu GLM-5.3-Flash.
    Glm5Next,
}

impl Family {
    /// The vocabulary's name in the crate `tiktoken`.
    pub(crate) fn encoding(self) -> &'static str {
        match self {
            Self::KimiK3 => "kimi_k3",
            Self::Glm5Next => "glm5",
        }
    }

    /// Markers that chat text of the family has between its parts; special tokens that are part of the text.
    pub(crate) fn markers(self) -> &'static [&'static str] {
        match self {
            Self::KimiK3 => &["<|open|>", "<|close|>", "<|sep|>"],
            Self::Glm5Next => &[
                "<think>",
                "</think>",
                "<tool_call>",
                "</tool_call>",
                "<tool_response>",
                "</tool_response>",
                "<arg_key>",
                "</arg_key>",
                "<arg_value>",
                "</arg_value>",
            ],
        }
    }

    /// Special tokens that only prompts have; they are never part of the text.
    pub(crate) fn turns(self) -> &'static [&'static str] {
        match self {
            Self::KimiK3 => &["<|end_of_msg|>"],
            Self::Glm5Next => {
                &["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
            }
        }
    }

    /// Tokens that end an answer, whatever the checkpoint's config says.
    pub(crate) fn ends(self) -> &'static [&'static str] {
        match self {
            Self::KimiK3 => &["[EOS]", "<|end_of_msg|>"],
            Self::Glm5Next => &["<|endoftext|>", "<|user|>", "<|observation|>"],
        }
    }
}

/// What `config.json` says about text; all of it may be missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) family: Option<Family>,
    /// Token ids of the model.
    pub(crate) vocabulary: Option<u32>,
}

impl Facts {
    /// Reads `config.json` in `folder`, if there is one.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("config.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        let config: Value =
            serde_json::from_str(&read(&path)?).map_err(|error| Error::malformed(&path, error))?;
        // The text model of a multimodal checkpoint names an architecture; the family is the outer name.
        let family = match config["model_type"].as_str() {
            Some("kimi_k3") => Some(Family::KimiK3),
            Some("glm5_next" | "glm5_next_text") => Some(Family::Glm5Next),
            _ => None,
        };
        let vocabulary = [&config, &config["text_config"]]
            .iter()
            .find_map(|section| section["vocab_size"].as_u64())
            .and_then(|size| u32::try_from(size).ok());
        Ok(Self { family, vocabulary })
    }
}
