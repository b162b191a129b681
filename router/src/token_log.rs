//! The tokens that a request has drawn: what another start goes on from.

use proto::v1::Fingerprint;

use crate::request::Request;

/// The output so far, in order, and what computed it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenLog {
    output: Vec<u32>,
    /// Only equals may continue an output that has begun: others would draw another text.
    drawn_by: Option<Fingerprint>,
}

impl TokenLog {
    pub(crate) fn new(output: &[u32], drawn_by: Option<&Fingerprint>) -> Self {
        let drawn_by = drawn_by.filter(|_| !output.is_empty()).cloned();
        Self { output: output.to_vec(), drawn_by }
    }

    /// What the next start must compute like.
    pub(crate) fn drawn_by(&self) -> Option<&Fingerprint> {
        self.drawn_by.as_ref()
    }

    /// Tokens drawn.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.output.len()).unwrap_or(u32::MAX)
    }

    /// The tokens drawn, in order.
    pub(crate) fn output(&self) -> &[u32] {
        &self.output
    }

    /// What prefill computes: the prompt, and the output after it.
    pub(crate) fn prompt(&self, request: &Request) -> Vec<u32> {
        [&request.prompt[..], &self.output].concat()
    }

    /// Tokens of [`Self::prompt`].
    pub(crate) fn prompt_tokens(&self, request: &Request) -> u32 {
        request.prompt_tokens().saturating_add(self.len())
    }

    /// Tokens that may still be drawn.
    pub(crate) fn left(&self, request: &Request) -> u32 {
        request.max_tokens.saturating_sub(self.len())
    }

    /// How the next token is drawn. The seed is the request's own, and noise is keyed by it and the position.
    pub(crate) fn sampling(&self, request: &Request) -> proto::v1::Sampling {
        let max_tokens = Some(self.left(request));
        proto::v1::Sampling { max_tokens, ..proto::sampling::message(&request.sampling) }
    }
}
