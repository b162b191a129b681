use super::Source;
use super::part::{Part, Rows, tensor};
use crate::ModelConfig;

/// Kimi delta attention. `kda.project` gives query, key, value, decay and gate inputs, and beta.
pub(super) fn parts(config: &ModelConfig, at: &str, parts: &mut Vec<Part>) {
    let (hidden, heads, dim) = (config.hidden, config.kda.heads, config.kda.dim);
    let (width, taps) = (config.kda.width(), config.kda.conv_kernel);
    let forget = |name: &str, dims: &[usize]| {
        Source::tensor([format!("{at}.forget_gate.{name}"), format!("{at}.{name}")], dims)
    };
    let matrix = |name: &str, dims: &[usize]| tensor(&format!("{at}.{name}.weight"), dims);
    let gate = if config.kda.full_gate {
        Rows::cut("gate", width, matrix("g_proj", &[width, hidden]))
    } else {
        Rows::whole("gate", dim, matrix("g_a_proj", &[dim, hidden]))
    };
    let project = vec![
        Rows::cut("query", width, matrix("q_proj", &[width, hidden])),
        Rows::cut("key", width, matrix("k_proj", &[width, hidden])),
        Rows::cut("value", width, matrix("v_proj", &[width, hidden])),
        Rows::whole("decay", dim, forget("f_a_proj.weight", &[dim, hidden])),
        gate,
        Rows::cut("beta", heads, matrix("b_proj", &[heads, hidden])),
    ];
    let split = ["q_conv1d", "k_conv1d", "v_conv1d"].map(|name| matrix(name, &[width, 1, taps]));
    let conv = Source::Either(vec![matrix("conv1d", &[3 * width, 1, taps]), Source::Join(split.into())]);
    parts.push(Part::rows("kda.project", hidden, project));
    parts.push(Part::vector("kda.conv", &[3, width, taps], conv).cut(1));
    let decay = forget("f_b_proj.weight", &[width, dim]);
    if config.kda.full_gate {
        parts.push(Part::matrix("kda.expand", &[1, width, dim], decay).cut(1));
    } else {
        let both = Source::Join(vec![decay, matrix("g_b_proj", &[width, dim])]);
        parts.push(Part::matrix("kda.expand", &[2, width, dim], both).cut(1));
    }
    // Published K3 files pad this vector to a multiple of 128.
    let a_log = Source::padded([format!("{at}.forget_gate.A_log"), format!("{at}.A_log")], &[heads]);
    parts.extend([
        Part::vector("kda.dt_bias", &[width], forget("dt_bias", &[width])).cut(0),
        Part::vector("kda.a_log", &[heads], a_log).cut(0),
        Part::vector("kda.norm", &[dim], matrix("o_norm", &[dim])),
        Part::matrix("kda.out", &[hidden, width], matrix("o_proj", &[hidden, width])).cut(1),
    ]);
}
