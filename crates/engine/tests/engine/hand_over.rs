//! One engine prefills, another with other pages, chunks and slots decodes.

use engine::{DecodeEvent, DecodeJob, EndReason, Engine, Error, Metrics, PrefillEvent, PrefillJob, Role};
use programs::ShapeLadder;
use prometheus_client::registry::Registry;

use crate::rig::{Rig, config, fixture, greedy, ladder, prompts};

const FIXTURE: &str = "five-saved";

#[tokio::test]
async fn a_sequence_goes_on_where_the_other_engine_left_it() {
    let sender = Rig::start(config(FIXTURE, Role::Prefill, ladder()));
    let other = ShapeLadder { chunks: vec![24], batches: vec![4], page_tokens: 7, slots: 4, ..ladder() };
    let receiver = Rig::start(config(FIXTURE, Role::Decode, other));
    let (prefill, decode) = (sender.handle(), receiver.handle());
    assert!(matches!(prefill.reserve(8), Err(Error::WrongRole { phase: "decode" })));
    for prompt in prompts(FIXTURE) {
        let sampling = greedy(prompt.greedy.len());
        let job = PrefillJob {
            request_id: "test".to_owned(),
            prompt: prompt.ids.clone(),
            sampling: sampling.clone(),
            priority: 0,
            deadline: None,
        };
        assert!(matches!(decode.prefill(job.clone()), Err(Error::WrongRole { phase: "prefill" })));
        let prompt_len = prompt.ids.len() as u32;
        let reservation = decode.reserve(prompt_len + prompt.greedy.len() as u32).unwrap();
        let mut stream = prefill.prefill(job).unwrap();
        let first = loop {
            match stream.next().await.unwrap().unwrap() {
                PrefillEvent::Started => {}
                // Chunks are imported while later ones are computed.
                PrefillEvent::Chunk { first_position, tokens, latents, .. } => {
                    reservation.import_latents(first_position, tokens, latents).await.unwrap();
                }
                PrefillEvent::Done { first, state, .. } => {
                    reservation.import_state(state).await.unwrap();
                    break first;
                }
            }
        };
        let job = DecodeJob {
            request_id: "test".to_owned(),
            prompt_len,
            prompt_seen: prompt.ids.clone(),
            output_counts: vec![(first.id, 1)],
            first_token: first.id,
            sampling,
            end_tokens: Vec::new(),
            deadline: None,
        };
        let mut stream = reservation.start(job).unwrap();
        let mut tokens = vec![first.id];
        while let Some(event) = stream.next().await {
            match event.unwrap() {
                DecodeEvent::Tokens { tokens: more, .. } => tokens.extend(more.iter().map(|token| token.id)),
                DecodeEvent::Ended { reason } => assert_eq!(reason, EndReason::Length),
            }
        }
        assert_eq!(tokens, prompt.greedy, "{prompt_len} tokens");
    }
    sender.settle().await;
    receiver.settle().await;
}

#[test]
fn what_can_not_be_served_is_named_at_the_start() {
    let start =
        |config| Engine::start(config, Metrics::register(&mut Registry::default()), |_| {}).unwrap_err();
    let mut folder = config(FIXTURE, Role::Both, ladder());
    folder.model_dir = fixture("nothing-here");
    let error = start(folder);
    assert!(matches!(error, Error::Checkpoint(_) | Error::Model(_)), "{error}");
    let long = config(FIXTURE, Role::Both, ShapeLadder { context: 1 << 30, ..ladder() });
    assert!(start(long).to_string().starts_with("shape ladder: context: the model was trained for"));
    let few = config(FIXTURE, Role::Both, ShapeLadder { pages: 3, ..ladder() });
    assert_eq!(start(few).to_string(), "shape ladder: pages: one sequence of the whole context needs 20");
}
