//! One engine prefills, another with other pages, chunks and slots decodes.

use engine::{
    DecodeEvent, DecodeJob, DraftCounts, EndReason, EngineHandle, Error, PrefillEvent, PrefillJob, Role,
    SampledToken, output_counts,
};
use programs::ShapeLadder;
use programs::sampling::Sampling;

use crate::requests::samplings;
use crate::rig::{Rig, config, fixture, greedy, ids, ladder, prefill_job, prompts, start_error};

const FIXTURE: &str = "five-saved";

/// Prefills with one engine and imports to the other, chunks while later ones are computed.
pub(crate) async fn across(
    prefill: &EngineHandle,
    decode: &EngineHandle,
    prompt: &[u32],
    sampling: &Sampling,
) -> (Vec<u32>, DraftCounts) {
    let (tokens, counts) = across_after(prefill, decode, [prompt, &[][..]], sampling).await;
    (ids(&tokens), counts)
}

/// As [`across`], after an output that has begun.
async fn across_after(
    prefill: &EngineHandle,
    decode: &EngineHandle,
    [given, output]: [&[u32]; 2],
    sampling: &Sampling,
) -> (Vec<SampledToken>, DraftCounts) {
    let prompt = [given, output].concat();
    let job = PrefillJob { output_tokens: output.len() as u32, ..prefill_job(&prompt, sampling) };
    let prompt_len = prompt.len() as u32;
    let reservation = decode.reserve(prompt_len + sampling.max_tokens.unwrap()).unwrap();
    let mut stream = prefill.prefill(job).unwrap();
    let first: SampledToken = loop {
        match stream.next().await.unwrap().unwrap() {
            PrefillEvent::Started => {}
            PrefillEvent::Chunk { first_position, tokens, latents, keys, first_pool, pools, .. } => {
                assert_eq!(first_pool..first_pool + pools, prefill.facts().pools(first_position, tokens));
                reservation.import_latents(first_position, tokens, latents, keys).await.unwrap();
            }
            PrefillEvent::Done { first, state, .. } => {
                reservation.import_state(prompt_len, state).await.unwrap();
                break first;
            }
        }
    };
    let job = DecodeJob {
        request_id: "test".to_owned(),
        prompt_len,
        prompt_seen: given.to_vec(),
        output_counts: output_counts(&[output, &[first.id][..]].concat()),
        first_token: first.id,
        sampling: sampling.clone(),
        end_tokens: Vec::new(),
        deadline: None,
    };
    let mut stream = reservation.start(job).unwrap();
    let (mut tokens, mut counts) = (vec![first], DraftCounts::default());
    loop {
        match stream.next().await.unwrap().unwrap() {
            DecodeEvent::Tokens { tokens: more, drafts, .. } => {
                tokens.extend(more);
                counts += drafts;
            }
            DecodeEvent::Ended { reason } => {
                assert_eq!(reason, EndReason::Length);
                return (tokens, counts);
            }
        }
    }
}

#[tokio::test]
async fn a_sequence_goes_on_where_the_other_engine_left_it() {
    let sender = Rig::start(config(FIXTURE, Role::Prefill, ladder()));
    let other = ShapeLadder { chunks: vec![24], batches: vec![4], page_tokens: 7, slots: 4, ..ladder() };
    let receiver = Rig::start(config(FIXTURE, Role::Decode, other));
    let (prefill, decode) = (sender.handle(), receiver.handle());
    assert!(matches!(prefill.reserve(8), Err(Error::WrongRole { phase: "decode" })));
    let job = prefill_job(&[1], &greedy(1));
    assert!(matches!(decode.prefill(job), Err(Error::WrongRole { phase: "prefill" })));
    for prompt in prompts(FIXTURE) {
        let sampling = greedy(prompt.greedy.len());
        let (tokens, _) = across(&prefill, &decode, &prompt.ids, &sampling).await;
        assert_eq!(tokens, prompt.greedy, "{} tokens", prompt.ids.len());
    }
    go_on_after_any_cut(&prefill, &decode).await;
    sender.settle().await;
    receiver.settle().await;
}

/// What is drawn after an output that was cut is what is drawn without the cut, however it is drawn.
async fn go_on_after_any_cut(prefill: &EngineHandle, decode: &EngineHandle) {
    let prompt = &prompts(FIXTURE)[1].ids;
    for sampling in samplings(prefill.facts().state.vocabulary as u32) {
        let (whole, _) = across_after(prefill, decode, [prompt, &[][..]], &sampling).await;
        let tokens = ids(&whole);
        for cut in [1, 13, 23] {
            let mut left = sampling.clone();
            left.max_tokens = Some((tokens.len() - cut) as u32);
            let (rest, _) = across_after(prefill, decode, [prompt, &tokens[..cut]], &left).await;
            assert_eq!(ids(&rest), tokens[cut..], "cut after {cut}, {sampling:?}");
            let close = |a: &SampledToken, b: &SampledToken| (a.logprob - b.logprob).abs() < 1e-3;
            assert!(
                rest.iter().zip(&whole[cut..]).all(|(a, b)| close(a, b)),
                "cut after {cut}, {sampling:?}"
            );
        }
    }
}

#[test]
fn what_can_not_be_served_is_named_at_the_start() {
    let mut folder = config(FIXTURE, Role::Both, ladder());
    folder.model_dir = fixture("nothing-here");
    let error = start_error(folder);
    assert!(matches!(error, Error::Checkpoint(_) | Error::Model(_)), "{error}");
    let long = config(FIXTURE, Role::Both, ShapeLadder { context: 1 << 30, ..ladder() });
    assert!(start_error(long).to_string().starts_with("shape ladder: context: the model was trained for"));
    let few = config(FIXTURE, Role::Both, ShapeLadder { pages: 3, ..ladder() });
    assert_eq!(
        start_error(few).to_string(),
        "shape ladder: pages: one sequence of the whole context needs 20"
    );
}
