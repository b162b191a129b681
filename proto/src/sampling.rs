//! Sampling between its message and its meaning.

use programs::sampling::{Asked, Sampling};

use crate::v1;

/// What the message asks for, unchecked.
pub fn asked(message: v1::Sampling) -> Asked {
    Asked {
        max_tokens: message.max_tokens.map(i64::from),
        temperature: message.temperature.map(f64::from),
        top_p: message.top_p.map(f64::from),
        top_k: message.top_k.map(i64::from),
        min_p: message.min_p.map(f64::from),
        seed: message.seed,
        repetition_penalty: message.repetition_penalty.map(f64::from),
        presence_penalty: message.presence_penalty.map(f64::from),
        frequency_penalty: message.frequency_penalty.map(f64::from),
        stop: message.stop,
        stop_token_ids: message.stop_token_ids.into_iter().map(i64::from).collect(),
        ignore_eos: message.ignore_eos,
        logprobs: message.logprobs.map(i64::from),
        logit_bias: message.logit_bias.into_iter().map(|(id, bias)| (id.into(), bias.into())).collect(),
    }
}

/// The message that means exactly `sampling`: [`asked`] and its check give the same value back.
pub fn message(sampling: &Sampling) -> v1::Sampling {
    v1::Sampling {
        max_tokens: sampling.max_tokens,
        temperature: Some(sampling.temperature),
        top_p: Some(sampling.top_p),
        top_k: Some(sampling.top_k),
        min_p: Some(sampling.min_p),
        seed: Some(sampling.seed),
        repetition_penalty: Some(sampling.repetition_penalty),
        presence_penalty: Some(sampling.presence_penalty),
        frequency_penalty: Some(sampling.frequency_penalty),
        stop: sampling.stop.clone(),
        stop_token_ids: sampling.stop_token_ids.clone(),
        ignore_eos: sampling.ignore_eos,
        logprobs: sampling.logprobs,
        logit_bias: sampling.logit_bias.iter().copied().collect(),
    }
}

#[cfg(test)]
mod tests;
