use std::time::Duration;

use programs::sampling::{MAX_LOGPROBS, Sampling};
use prost::Message;

use super::{changed, messages, sampling, status};
use crate::status::Fault;
use crate::v1::{self, ErrorReason, generate_request::Prompt, run_response::Event};

fn asked() -> v1::Sampling {
    let mut sampling = Sampling::default();
    sampling.temperature = 0.5;
    sampling.stop = vec!["stop".to_owned()];
    sampling.stop_token_ids = vec![3, 2000];
    sampling.logprobs = Some(MAX_LOGPROBS);
    sampling.logit_bias = vec![(5, -1.0), (300, 2.0)];
    crate::sampling::message(&sampling)
}

#[test]
fn changed_messages_are_refused_or_mean_what_they_say() {
    let prompt = Some(Prompt::Tokens(v1::Tokens { ids: vec![1, 300, 70_000] }));
    let request = v1::GenerateRequest {
        model: "m".to_owned(),
        prompt,
        sampling: Some(asked()),
        ..v1::GenerateRequest::default()
    };
    let delta = v1::TokenDelta { position: 9, token_ids: vec![4, 5], ..v1::TokenDelta::default() };
    let told = v1::RunResponse { event: Some(Event::Delta(delta)) };
    for sound in [request.encode_to_vec(), told.encode_to_vec()] {
        assert!(messages(&sound) > 0);
        assert!(changed(&sound).filter(|bytes| messages(bytes) > 0).count() > 10);
    }
}

#[test]
fn changed_samplings_are_refused_or_mean_what_they_say() {
    let sound = asked().encode_to_vec();
    assert!(sampling(&sound));
    let taken = changed(&sound).filter(|bytes| sampling(bytes)).count();
    assert!(taken > 10 && taken < sound.len() * 6, "{taken}");
}

#[test]
fn changed_statuses_are_told_as_they_were_heard() {
    let fault = Fault::invalid("sampling.seed", "is missing");
    let fault = Fault { retry_after: Some(Duration::from_millis(1500)), ..fault };
    for reason in [ErrorReason::InvalidField, ErrorReason::NoRoom, ErrorReason::Internal] {
        let told = Fault { reason, ..fault.clone() }.to_status();
        let mut sound = vec![told.code() as u8];
        sound.extend_from_slice(told.details());
        assert!(status(&sound));
        assert!(changed(&sound).filter(|bytes| status(bytes)).count() > 10);
    }
}
