use engine::default_ladder;
use model::ModelConfig;
use programs::ShapeLadder;
use worker::Flags;

/// The shapes that flags ask for; where they say nothing, the engine's own. `drafts` are those of a step; `chunks` and
/// `batches` are a role's flags.
///
/// A ladder never has shapes that its context or its slots make useless: each costs a compilation at start.
pub fn ladder(
    model: &ModelConfig,
    flags: &Flags,
    drafts: u32,
    chunks: Option<Vec<u32>>,
    batches: Option<Vec<u32>>,
) -> ShapeLadder {
    let own = default_ladder(model, drafts);
    let context = flags.context.map_or(own.context, |context| context.min(own.context)).max(1);
    let page_tokens = flags.page_tokens.max(1);
    let half_a_context = (context / 2).div_ceil(page_tokens);
    // a sequence's last step drafts beyond its end
    let longest = context.saturating_add(drafts).div_ceil(page_tokens);
    let pages = flags.slots.saturating_mul(half_a_context).max(longest);
    ShapeLadder {
        chunks: chunks.unwrap_or_else(|| up_to(&own.chunks, context)),
        batches: batches.unwrap_or_else(|| up_to(&own.batches, flags.slots)),
        context,
        page_tokens,
        pages: flags.pages.unwrap_or(pages),
        slots: flags.slots,
        drafts,
        latents: flags.numerics.float.into(),
        lane: 1,
    }
}

/// The sizes up to the first that covers `most`.
fn up_to(sizes: &[u32], most: u32) -> Vec<u32> {
    let enough = sizes.iter().position(|&size| size >= most).map_or(sizes.len(), |last| last + 1);
    sizes[..enough].to_vec()
}

#[cfg(test)]
mod tests;
