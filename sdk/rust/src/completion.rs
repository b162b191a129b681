//! A whole answer.

use crate::v1::{Finish, GenerateResponse, Logprobs, Timing, Usage};

/// What a generation delivered, put together.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    pub request_id: String,
    pub token_ids: Vec<u32>,
    pub text: String,
    /// One entry a token when asked for.
    pub logprobs: Vec<Logprobs>,
    pub finish: Finish,
    pub usage: Usage,
    pub timing: Timing,
}

impl Completion {
    /// Appends a response of the stream.
    pub(crate) fn add(&mut self, response: GenerateResponse) {
        self.request_id = response.request_id;
        self.token_ids.extend(response.token_ids);
        self.text.push_str(&response.text);
        self.logprobs.extend(response.logprobs);
        if let Some(finish) = response.finish {
            self.finish = finish;
            self.usage = response.usage.unwrap_or_default();
            self.timing = response.timing.unwrap_or_default();
        }
    }
}
