//! Names of tensors: the same model goes by different prefixes, and a quantised tensor by several suffixes.

use std::borrow::Cow;

/// Packed codes of a tensor of this name less the suffix.
pub(crate) const PACKED: &str = "_packed";
/// Scales of the packed codes.
pub(crate) const SCALE: &str = "_scale";
/// Factors of FP8 blocks.
pub(crate) const SCALE_INV: &str = "_scale_inv";
/// Suffixes of all tensors that may hold one of the model's.
pub(crate) const SUFFIXES: [&str; 4] = ["", PACKED, SCALE, SCALE_INV];

/// Prefixes of text models inside multimodal ones, and what they stand for.
const PREFIXES: [(&str, &str); 3] = [
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// The name that the text model alone would have.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    for (prefix, plain) in PREFIXES {
        if let Some(rest) = name.strip_prefix(prefix) {
            return Cow::Owned(format!("{plain}{rest}"));
        }
    }
    Cow::Borrowed(name)
}
