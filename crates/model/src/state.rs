/// Shape of what one sequence keeps between steps, per token and per slot.
///
/// Latents: `[latent_layers, token, latent_width]`. Recurrent state: `[recurrent_layers, heads, key_dim, value_dim]`.
/// Pooled index keys, where attention is sparse: `[latent_layers, token / pool, dim]`, and of the open pool the raw rows:
/// `[latent_layers, pool, 2, dim]`, key and pooling score. Last hidden vector, where there is a draft layer: `[hidden]`.
/// Conv tails, the last inputs of the short convolution: `[recurrent_layers, 3, tail_rows, tail_width]`, the axis of 3
/// being query, key, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Layers that cache one latent a token (MLA).
    pub latent_layers: usize,
    /// Channels of one cached latent: compressed key-value and the shared key part.
    pub latent_width: usize,
    /// Layers that keep a recurrent matrix per head (KDA).
    pub recurrent_layers: usize,
    /// Heads of a recurrent layer.
    pub heads: usize,
    /// Rows of a recurrent matrix.
    pub key_dim: usize,
    /// Columns of a recurrent matrix.
    pub value_dim: usize,
    /// Tokens of history the short convolution needs: its kernel less one.
    pub tail_rows: usize,
    /// Channels of one of query, key, value.
    pub tail_width: usize,
    /// Keys of the sparse attention's indexer, one set for each of the latent layers.
    pub index: Option<IndexShape>,
    /// Channels of the hidden vector that the draft layer continues from.
    pub hidden: Option<usize>,
    /// Token ids of the model, which bounds per-slot sampling state.
    pub vocabulary: usize,
}

/// Shape of what the sparse attention's indexer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexShape {
    /// Channels of a key.
    pub dim: usize,
    /// Tokens that share a pooled key.
    pub pool: usize,
}

const F32: usize = size_of::<f32>();

impl StateShape {
    /// Bytes of latents and pooled keys one token holds, over all layers.
    #[must_use]
    pub fn bytes_per_token(&self) -> usize {
        let pooled = self.index.map_or(0, |index| index.dim.div_ceil(index.pool));
        self.latent_layers * (self.latent_width + pooled) * F32
    }

    /// Elements of the recurrent matrices of one slot.
    #[must_use]
    pub fn recurrent_elements(&self) -> usize {
        self.recurrent_layers * self.heads * self.key_dim * self.value_dim
    }

    /// Elements of the conv tails of one slot.
    #[must_use]
    pub fn tail_elements(&self) -> usize {
        self.recurrent_layers * 3 * self.tail_rows * self.tail_width
    }

    /// Elements of the open pools' rows of one slot.
    #[must_use]
    pub fn index_tail_elements(&self) -> usize {
        self.index.map_or(0, |index| self.latent_layers * index.pool * 2 * index.dim)
    }

    /// Bytes of everything one slot holds but its sampling state.
    #[must_use]
    pub fn bytes_per_slot(&self) -> usize {
        let index = self.index_tail_elements() + self.hidden.unwrap_or(0);
        (self.recurrent_elements() + self.tail_elements() + index) * F32
    }
}
