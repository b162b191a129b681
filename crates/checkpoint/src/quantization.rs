//! `quantization_config` of `config.json`: what it says of the tensors must be what is served. How each tensor is stored is
//! told by its name and format, not from here.

use model::Error;
use serde_json::{Map, Value};

const SECTION: &str = "quantization_config";
/// Where the section may stand: beside the text model's config, or in it.
const TEXT: &str = "text_config";
/// Rows and columns of an FP8 block.
const FP8_BLOCK: [u64; 2] = [128, 128];

/// Refuses, by field, what is not served. Absent sections ask for nothing.
pub(crate) fn check(config: &str) -> Result<(), Error> {
    let config: Map<String, Value> = serde_json::from_str(config)?;
    let inner = config.get(TEXT).and_then(Value::as_object);
    for fields in [Some(&config), inner].into_iter().flatten() {
        match fields.get(SECTION) {
            None | Some(Value::Null) => {}
            Some(Value::Object(section)) => check_section(section)?,
            Some(other) => return Err(unsupported(SECTION, other, "must be an object")),
        }
    }
    Ok(())
}

fn check_section(section: &Map<String, Value>) -> Result<(), Error> {
    let method = section.get("quant_method").unwrap_or(&Value::Null);
    match method.as_str() {
        Some("compressed-tensors") => check_mxfp4(section),
        Some("fp8") => check_fp8(section),
        _ => Err(unsupported("quant_method", method, "only compressed-tensors and fp8 are served")),
    }
}

/// compressed-tensors `mxfp4-pack-quantized`, weights only.
fn check_mxfp4(section: &Map<String, Value>) -> Result<(), Error> {
    const FORMAT: &str = "mxfp4-pack-quantized";
    let format = section.get("format").unwrap_or(&Value::Null);
    if format != FORMAT {
        return Err(unsupported("format", format, "only mxfp4-pack-quantized is served"));
    }
    never("kv_cache_scheme", section)?;
    let groups = section.get("config_groups").and_then(Value::as_object);
    for group in groups.into_iter().flat_map(Map::values).filter_map(Value::as_object) {
        only("format", group, &[FORMAT.into()], "only mxfp4-pack-quantized is served")?;
        never("input_activations", group)?;
        never("output_activations", group)?;
        if let Some(weights) = group.get("weights").and_then(Value::as_object) {
            only("num_bits", weights, &[4.into()], "mxfp4 has 4")?;
            only("group_size", weights, &[32.into()], "mxfp4 has 32")?;
        }
    }
    Ok(())
}

/// e4m3 in blocks. Activations stay in the programs' width, so a scheme that computes their scales at run time asks for
/// nothing that is in the file.
fn check_fp8(section: &Map<String, Value>) -> Result<(), Error> {
    let block = section.get("weight_block_size").unwrap_or(&Value::Null);
    if *block != Value::from(FP8_BLOCK.to_vec()) {
        return Err(unsupported("weight_block_size", block, "only [128, 128] is served"));
    }
    only("fmt", section, &["e4m3".into()], "only e4m3 is served")?;
    only("activation_scheme", section, &["dynamic".into()], "only dynamic is served")
}

fn never(field: &'static str, section: &Map<String, Value>) -> Result<(), Error> {
    only(field, section, &[], "is not served")
}

/// Absent and null count as served.
fn only(
    field: &'static str,
    section: &Map<String, Value>,
    served: &[Value],
    reason: &str,
) -> Result<(), Error> {
    match section.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if served.contains(value) => Ok(()),
        Some(value) => Err(unsupported(field, value, reason)),
    }
}

fn unsupported(field: &'static str, value: &Value, reason: &str) -> Error {
    Error::Unsupported { field, value: value.to_string(), reason: reason.to_owned() }
}
