/// The family of a model: which published architecture its layers and residual follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Moonshot Kimi-Linear.
    KimiLinear,
    /// Moonshot Kimi K3.
    KimiK3,
    /// Zhipu GLM-5.3-Flash.
    Glm5Next,
}

impl Family {
    /// As `model_type` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KimiLinear => "kimi_linear",
            Self::KimiK3 => "kimi_k3",
            Self::Glm5Next => "glm5_next",
        }
    }
}

/// One layer: how tokens attend, then what each does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layer {
    /// First half.
    pub attention: Attention,
    /// Second half.
    pub ffn: Ffn,
}

/// How tokens attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// Kimi delta attention: a recurrent matrix per head.
    Kda,
    /// Multi-head latent attention: one cached latent a token.
    Mla,
}

/// What each token does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ffn {
    /// One gated network.
    Dense,
    /// Routed experts beside shared ones.
    Moe,
}

/// Shape of Kimi delta attention; query, key and value have the same heads and channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kda {
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub dim: usize,
    /// Tokens the short convolution sees, the current one included.
    pub conv_kernel: usize,
    /// Lower bound of the log decay (`gate_lower_bound`), where the family bounds it: `bound * sigmoid(exp(a_log) x)`.
    /// Without one it is `-exp(a_log) softplus(x)`.
    pub decay_bound: Option<f64>,
    /// Whether the output gate is one full matrix rather than two of rank `dim`.
    pub full_gate: bool,
}

impl Kda {
    /// Channels of all heads together.
    #[must_use]
    pub fn width(&self) -> usize {
        self.heads * self.dim
    }
}

/// Shape of multi-head latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mla {
    /// Heads.
    pub heads: usize,
    /// Channels of the compressed key-value.
    pub kv_lora: usize,
    /// Channels of the key part that all heads share; no family here rotates them.
    pub rope: usize,
    /// Channels of the key part each head expands for itself.
    pub nope: usize,
    /// Channels of a head's value.
    pub value: usize,
    /// Channels of the compressed query, where queries are compressed.
    pub q_lora: Option<usize>,
    /// Whether the values are gated before the output matrix.
    pub gated: bool,
    /// Epsilon of the norms on compressed queries and latents.
    pub norm_eps: f64,
    /// How the tokens to attend to are chosen, where not all of them are.
    pub indexer: Option<Indexer>,
}

impl Mla {
    /// Channels of a cached latent.
    #[must_use]
    pub fn latent_width(&self) -> usize {
        self.kv_lora + self.rope
    }

    /// Channels of a head's query and key.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.nope + self.rope
    }
}

/// Shape of the sparse attention's indexer: it scores pools of consecutive tokens, and the best ones are attended to
/// beside the open pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexer {
    /// Heads of the score.
    pub heads: usize,
    /// Channels of a head and of a pooled key.
    pub dim: usize,
    /// Tokens of a pool (`index_kpool`).
    pub pool: usize,
    /// Pools chosen for a token: `index_topk / index_kpool`.
    pub chosen: usize,
}

/// Shape of a mixture-of-experts layer. Experts are chosen by sigmoid score plus a learnt bias and weighed by score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moe {
    /// Routed experts.
    pub experts: usize,
    /// Experts a token goes to.
    pub top_k: usize,
    /// Shared experts, run as one network of `shared * inner` channels; 0 when there is none.
    pub shared: usize,
    /// Inner channels of one expert.
    pub inner: usize,
    /// Factor on the routed weights.
    pub scale: f64,
    /// Whether the chosen scores are divided by their sum.
    pub renormalise: bool,
    /// Where the routed experts work in a space of fewer channels than the residual stream.
    pub latent: Option<LatentExperts>,
}

/// From this many experts for each one that a token goes to, running all of them for every token is wasteful.
const GROUP_FROM: usize = 8;

impl Moe {
    /// Whether tokens are grouped by expert; where they are not, every expert runs for every token.
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        self.experts >= GROUP_FROM * self.top_k
    }

    /// Channels the routed experts read and write, given those of the residual stream.
    #[must_use]
    pub fn width(&self, hidden: usize) -> usize {
        self.latent.map_or(hidden, |latent| latent.width)
    }
}

/// The space of routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentExperts {
    /// Its channels (`routed_expert_hidden_size`).
    pub width: usize,
    /// Whether their sum is normed before it goes back to the residual stream (`latent_moe_use_norm`).
    pub normed: bool,
}

/// What stands between the two products of a gated network, of its gate half `g` and up half `u`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `silu(g) u`.
    Swiglu,
    /// `silu(min(g, limit)) clamp(u, -limit, limit)`.
    ClampedSwiglu {
        /// `swiglu_limit`.
        limit: f64,
    },
    /// `beta tanh(g / beta) sigmoid(g) * linear tanh(u / linear)`, in f32; `u` itself without `linear`.
    Situ {
        /// `activation_situ_beta`.
        beta: f64,
        /// `activation_situ_linear_beta`.
        linear: Option<f64>,
    },
}

/// How a layer's output reaches the layers after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    /// One running sum.
    Sum,
    /// Block attention residuals: sums over `block` layers are kept, and every half of a layer reads a softmax mixture of
    /// them and of the running sum.
    Blocks {
        /// Layers a sum covers (`attn_res_block_size`).
        block: usize,
    },
    /// Manifold-constrained hyper-connections: `count` streams that every half of a layer mixes anew.
    Streams {
        /// Streams (`hc_mult`).
        count: usize,
        /// Sinkhorn iterations (`hc_sinkhorn_iters`).
        iterations: usize,
        /// Floor of the iteration (`hc_eps`).
        eps: f64,
    },
}

/// The multi-token-prediction layer, which drafts the tokens that the next step verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtp {
    /// Which hidden vector of the model it continues from.
    pub reads: MtpReads,
    /// Whether the first draft's chosen pools serve the further drafts of a step (`index_share_for_mtp_iteration`).
    pub share_index: bool,
}

/// Hidden vector that the draft layer takes from the model, and, by the same rule, from itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpReads {
    /// Before the final norm; of itself, the block's output before its own norm.
    BeforeNorm,
    /// After the final norm; of itself, its own norm's output.
    AfterNorm,
}
