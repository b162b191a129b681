use std::fmt;
use std::ops::Range;

/// The shapes of one sequence's state, by name. Both ends of a transfer state theirs; segments are addressed by
/// layer, token and head, so only `page_tokens` may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub latent_layers: u32,
    /// Numbers a token a latent layer: kv_lora + rope channel.
    pub latent_width: u32,
    pub recurrent_layers: u32,
    pub heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
    /// Rows of a convolution tail: kernel - 1.
    pub tail_rows: u32,
    /// Channels of one of q, k, v in a tail.
    pub tail_width: u32,
    /// Channels of a key of the sparse attention's indexer; 0 without one.
    pub index_dim: u32,
    /// Tokens that share one pooled index key; 0 without an indexer.
    pub index_pool: u32,
    /// Channels of the hidden vector that the draft layer continues from; 0 without one.
    pub hidden: u32,
    pub vocabulary: u32,
    /// Tokens a page on this side.
    pub page_tokens: u32,
}

/// The first field in which two layouts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub field: &'static str,
    pub ours: u32,
    pub theirs: u32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layout field {}: {} here, {} there", self.field, self.ours, self.theirs)
    }
}

/// Bytes of an f32, the one numeric format on the wire.
const NUMBER: u64 = 4;

/// Fields of a layout.
pub(crate) const FIELDS: usize = 13;

impl Layout {
    /// Every field with its name, in wire order.
    pub(crate) fn fields(&self) -> [(&'static str, u32); FIELDS] {
        [
            ("latent_layers", self.latent_layers),
            ("latent_width", self.latent_width),
            ("recurrent_layers", self.recurrent_layers),
            ("heads", self.heads),
            ("key_dim", self.key_dim),
            ("value_dim", self.value_dim),
            ("tail_rows", self.tail_rows),
            ("tail_width", self.tail_width),
            ("index_dim", self.index_dim),
            ("index_pool", self.index_pool),
            ("hidden", self.hidden),
            ("vocabulary_size", self.vocabulary),
            ("page_tokens", self.page_tokens),
        ]
    }

    pub(crate) fn from_fields(fields: [u32; FIELDS]) -> Layout {
        let [latent_layers, latent_width, recurrent_layers, heads, key_dim, value_dim, ..] = fields;
        let [.., tail_rows, tail_width, index_dim, index_pool, hidden, vocabulary, page_tokens] = fields;
        Layout {
            latent_layers,
            latent_width,
            recurrent_layers,
            heads,
            key_dim,
            value_dim,
            tail_rows,
            tail_width,
            index_dim,
            index_pool,
            hidden,
            vocabulary,
            page_tokens,
        }
    }

    /// What keeps a state of layout `theirs` out of a worker of this layout; page lengths may differ.
    pub fn first_difference(&self, theirs: &Layout) -> Option<Difference> {
        let pairs = self.fields().into_iter().zip(theirs.fields());
        for ((field, ours), (_, theirs)) in pairs {
            if ours != theirs && field != "page_tokens" {
                return Some(Difference { field, ours, theirs });
            }
        }
        None
    }

    /// Index pools that close within the tokens from `first_token` on: those whose last token is one of them.
    pub fn closed_pools(&self, first_token: u32, tokens: u32) -> Range<u32> {
        self.pools(first_token)..self.pools(first_token.saturating_add(tokens))
    }

    /// Whole index pools of `tokens` tokens; none without an indexer.
    pub(crate) fn pools(&self, tokens: u32) -> u32 {
        tokens.checked_div(self.index_pool).unwrap_or(0)
    }

    /// Layers that keep index keys.
    pub(crate) fn index_layers(&self) -> u32 {
        if self.index_pool == 0 { 0 } else { self.latent_layers }
    }

    /// Bytes of one token's latents in one layer.
    pub(crate) fn token_bytes(&self) -> u64 {
        u64::from(self.latent_width) * NUMBER
    }

    /// Bytes of one head's recurrent state in one layer.
    pub(crate) fn head_bytes(&self) -> u64 {
        (u64::from(self.key_dim) * u64::from(self.value_dim)).saturating_mul(NUMBER)
    }

    /// Bytes of one of the q, k, v tails in one layer.
    pub(crate) fn tail_bytes(&self) -> u64 {
        (u64::from(self.tail_rows) * u64::from(self.tail_width)).saturating_mul(NUMBER)
    }

    /// Bytes of some heads' columns of one of the q, k, v tails; nothing if channels are not cut evenly by heads.
    pub(crate) fn tail_bytes_of(&self, heads: u32) -> Option<u64> {
        if heads == self.heads {
            return Some(self.tail_bytes());
        }
        let width =
            self.tail_width.checked_div(self.heads).filter(|width| width * self.heads == self.tail_width)?;
        Some((u64::from(self.tail_rows) * u64::from(width) * u64::from(heads)).saturating_mul(NUMBER))
    }

    /// Bytes of one pooled index key in one layer.
    pub(crate) fn pool_bytes(&self) -> u64 {
        u64::from(self.index_dim) * NUMBER
    }

    /// Bytes of the open pool's raw keys and scores in one layer.
    pub(crate) fn index_tail_bytes(&self) -> u64 {
        (u64::from(self.index_pool) * 2).saturating_mul(self.pool_bytes())
    }

    /// Bytes of the last hidden vector.
    pub(crate) fn hidden_bytes(&self) -> u64 {
        u64::from(self.hidden) * NUMBER
    }

    /// Bytes of everything a state after `state_pos` tokens consists of, the sampling part apart.
    pub fn state_bytes(&self, state_pos: u32) -> u64 {
        let latents = u64::from(self.latent_layers) * u64::from(state_pos) * self.token_bytes();
        let recurrent = u64::from(self.recurrent_layers) * u64::from(self.heads) * self.head_bytes();
        let tails = u64::from(self.recurrent_layers) * 3 * self.tail_bytes();
        let keys = u64::from(self.pools(state_pos)) * self.pool_bytes();
        let index = u64::from(self.index_layers()) * (keys + self.index_tail_bytes());
        latents + recurrent + tails + index + self.hidden_bytes()
    }
}
