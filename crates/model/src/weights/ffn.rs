use super::Source;
use super::part::{Part, Rows};
use crate::Moe;

/// A gated network: `dense.in` holds the gate rows, then the up rows.
pub(super) fn dense(at: &str, inner: usize, hidden: usize, parts: &mut Vec<Part>) {
    // `transformers` renames the feed-forward of every layer when it saves, dense ones included.
    let matrix = |name: &str, dims: &[usize]| {
        Source::tensor(["mlp", "block_sparse_moe"].map(|room| format!("{at}.{room}.{name}.weight")), dims)
    };
    gated(["dense.in", "dense.out"], inner, hidden, matrix, parts);
}

fn gated(
    roles: [&'static str; 2],
    inner: usize,
    hidden: usize,
    matrix: impl Fn(&str, &[usize]) -> Source,
    parts: &mut Vec<Part>,
) {
    let rows = vec![
        Rows::cut("gate", inner, matrix("gate_proj", &[inner, hidden])),
        Rows::cut("up", inner, matrix("up_proj", &[inner, hidden])),
    ];
    parts.push(Part::rows(roles[0], hidden, rows));
    parts.push(Part::matrix(roles[1], &[hidden, inner], matrix("down_proj", &[hidden, inner])).cut(1));
}

/// Routed experts, and the shared ones as one gated network of `shared * inner` channels.
pub(super) fn experts(moe: &Moe, hidden: usize, at: &str, parts: &mut Vec<Part>) {
    let named = |name: &str, dims: &[usize]| {
        Source::tensor([format!("{at}.mlp.{name}"), format!("{at}.block_sparse_moe.{name}")], dims)
    };
    let bias = Source::tensor(
        ["mlp.gate.", "block_sparse_moe.gate.", "block_sparse_moe."]
            .map(|room| format!("{at}.{room}e_score_correction_bias")),
        &[moe.experts],
    );
    let router = named("gate.weight", &[moe.experts, hidden]);
    parts.push(Part::vector("moe.router", &[moe.experts, hidden], router).cut(0));
    parts.push(Part::vector("moe.bias", &[moe.experts], bias));
    routed(moe, moe.width(hidden), at, &named, parts);
    if let Some(latent) = &moe.latent {
        let width = latent.width;
        let matrix = |name: &str, dims: &[usize]| named(&format!("{name}.weight"), dims);
        let down = matrix("routed_expert_down_proj", &[width, hidden]);
        parts.push(Part::matrix("moe.enter", &[width, hidden], down).cut(0));
        if latent.normed {
            parts.push(Part::vector("moe.norm", &[width], matrix("routed_expert_norm", &[width])));
        }
        let up = matrix("routed_expert_up_proj", &[hidden, width]);
        parts.push(Part::matrix("moe.leave", &[hidden, width], up).cut(1));
    }
    if moe.shared > 0 {
        let matrix = |name: &str, dims: &[usize]| named(&format!("shared_experts.{name}.weight"), dims);
        gated(["shared.in", "shared.out"], moe.shared * moe.inner, hidden, matrix, parts);
    }
}

/// The routed experts' matrices. Where every expert runs for every token their output matrices stand side by side,
/// `[width, experts, inner]`, so that all together are one product; else expert by expert, `[experts, width, inner]`.
fn routed(
    moe: &Moe,
    width: usize,
    at: &str,
    named: &dyn Fn(&str, &[usize]) -> Source,
    parts: &mut Vec<Part>,
) {
    let (experts, inner) = (moe.experts, moe.inner);
    let expert = |e: usize, names: [&str; 2], dims: &[usize]| {
        let name = |room: &str, name: &str| format!("{at}.{room}.experts.{e}.{name}.weight");
        Source::tensor(
            [name("block_sparse_moe", names[0]), name("mlp", names[0]), name("mlp", names[1])],
            dims,
        )
    };
    let split_in = |e| {
        let gate = expert(e, ["w1", "gate_proj"], &[inner, width]);
        Source::Join(vec![gate, expert(e, ["w3", "up_proj"], &[inner, width])])
    };
    let enter = Source::Either(vec![
        named("experts.gate_up_proj", &[experts, 2 * inner, width]),
        Source::Join((0..experts).map(split_in).collect()),
    ]);
    let fused = named("experts.down_proj", &[experts, width, inner]);
    let leave = (0..experts).map(|e| {
        Source::Either(vec![fused.clone().rows(e, 1), expert(e, ["w2", "down_proj"], &[width, inner])])
    });
    parts.push(Part::experts("moe.in", &[experts, 2 * inner, width], enter).cut(0));
    parts.push(if moe.is_grouped() {
        Part::experts("moe.out", &[experts, width, inner], Source::Join(leave.collect())).cut(0)
    } else {
        let beside = Source::Columns { parts: leave.collect(), rows: width };
        Part::experts("moe.out", &[width, experts, inner], beside).cut(1)
    });
}
