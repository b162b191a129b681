/// Shape of what one sequence keeps between steps, per token and per slot.
///
/// Latents: `[latent_layers, token, latent_width]`. Recurrent state: `[recurrent_layers, heads, key_dim, value_dim]`.
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
    /// Token ids of the model, which bounds per-slot sampling state.
    pub vocabulary: usize,
}

const F32: usize = size_of::<f32>();

impl StateShape {
    /// Bytes of latents one token holds, over all layers.
    #[must_use]
    pub fn bytes_per_token(&self) -> usize {
        self.latent_layers * self.latent_width * F32
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

    /// Bytes of recurrent matrices and conv tails one slot holds; sampling state is not counted.
    #[must_use]
    pub fn bytes_per_slot(&self) -> usize {
        (self.recurrent_elements() + self.tail_elements()) * F32
    }
}
