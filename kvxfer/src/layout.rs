use std::fmt;

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

impl Layout {
    /// Every field with its name, in wire order.
    pub(crate) fn fields(&self) -> [(&'static str, u32); 10] {
        [
            ("latent_layers", self.latent_layers),
            ("latent_width", self.latent_width),
            ("recurrent_layers", self.recurrent_layers),
            ("heads", self.heads),
            ("key_dim", self.key_dim),
            ("value_dim", self.value_dim),
            ("tail_rows", self.tail_rows),
            ("tail_width", self.tail_width),
            ("vocabulary_size", self.vocabulary),
            ("page_tokens", self.page_tokens),
        ]
    }

    pub(crate) fn from_fields(fields: [u32; 10]) -> Layout {
        let [latent_layers, latent_width, recurrent_layers, heads, key_dim, value_dim, ..] = fields;
        let [.., tail_rows, tail_width, vocabulary, page_tokens] = fields;
        Layout {
            latent_layers,
            latent_width,
            recurrent_layers,
            heads,
            key_dim,
            value_dim,
            tail_rows,
            tail_width,
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

    /// Bytes of everything a state after `state_pos` tokens consists of, the sampling part apart.
    pub fn state_bytes(&self, state_pos: u32) -> u64 {
        let latents = u64::from(self.latent_layers) * u64::from(state_pos) * self.token_bytes();
        let recurrent = u64::from(self.recurrent_layers) * u64::from(self.heads) * self.head_bytes();
        let tails = u64::from(self.recurrent_layers) * 3 * self.tail_bytes();
        latents + recurrent + tails
    }
}
