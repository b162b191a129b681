use super::Source;
use super::part::Part;
use crate::{ModelConfig, Residual};

/// What joins a layer to the layers before it, for each of its halves.
pub(super) fn halves(config: &ModelConfig, at: &str) -> Vec<Part> {
    let hidden = config.hidden;
    match config.residual {
        Residual::Sum => Vec::new(),
        Residual::Blocks { .. } => {
            let mut parts = mixture(
                ["attention_mix.norm", "attention_mix.query"],
                &format!("{at}.self_attention_res"),
                hidden,
            );
            parts.extend(mixture(["ffn_mix.norm", "ffn_mix.query"], &format!("{at}.mlp_res"), hidden));
            parts
        }
        Residual::Streams { count, .. } => {
            let mut parts = streams(
                ["attention_mix.project", "attention_mix.base", "attention_mix.scale"],
                at,
                "attn",
                count,
                hidden,
            );
            parts.extend(streams(
                ["ffn_mix.project", "ffn_mix.base", "ffn_mix.scale"],
                at,
                "ffn",
                count,
                hidden,
            ));
            parts
        }
    }
}

/// What makes one vector of the streams or sums after the last layer.
pub(super) fn output(config: &ModelConfig) -> Vec<Part> {
    match config.residual {
        Residual::Blocks { .. } => {
            mixture(["output_mix.norm", "output_mix.query"], "model.output_attn_res", config.hidden)
        }
        Residual::Sum | Residual::Streams { .. } => Vec::new(),
    }
}

/// Block attention residuals: the norm of what is mixed and the vector that scores it.
fn mixture(roles: [&'static str; 2], at: &str, hidden: usize) -> Vec<Part> {
    let named = |kind: &str, dims: &[usize]| {
        Source::tensor([format!("{at}_{kind}.weight"), format!("{at}.{kind}_weight")], dims)
    };
    vec![
        Part::vector(roles[0], &[hidden], named("norm", &[hidden])),
        Part::vector(roles[1], &[hidden], named("proj", &[1, hidden])),
    ]
}

/// Hyper-connections: `count` weights that collapse the streams, `count` that expand, `count^2` that mix.
fn streams(roles: [&'static str; 3], at: &str, half: &str, count: usize, hidden: usize) -> Vec<Part> {
    let rows = (2 + count) * count;
    let named = |kind: &str, dims: &[usize]| {
        Source::tensor([format!("{at}.hc_{half}_{kind}"), format!("{at}.{half}_hc.{kind}")], dims)
    };
    vec![
        Part::table(roles[0], &[rows, count * hidden], named("fn", &[rows, count * hidden])),
        Part::vector(roles[1], &[rows], named("base", &[rows])),
        Part::vector(roles[2], &[3], named("scale", &[3])),
    ]
}
