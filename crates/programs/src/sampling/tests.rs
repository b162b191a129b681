use super::row::asks;
use super::{Asked, MAX_STOPS, SampleRow, Sampling, row};

#[test]
fn nothing_asked_is_the_default_with_the_fresh_seed() {
    let sampling = Asked::default().checked(10, 7).unwrap();
    assert_eq!(sampling, Sampling { seed: 7, ..Sampling::default() });
    assert!(!sampling.needs_slot_rows());
}

#[test]
fn every_field_out_of_range_is_refused_by_its_name() {
    let nan = Some(f64::NAN);
    let cases = [
        ("max_tokens", Asked { max_tokens: Some(-1), ..Asked::default() }),
        ("max_tokens", Asked { max_tokens: Some(0), ..Asked::default() }),
        ("max_tokens", Asked { max_tokens: Some(1 << 40), ..Asked::default() }),
        ("temperature", Asked { temperature: nan, ..Asked::default() }),
        ("temperature", Asked { temperature: Some(-0.1), ..Asked::default() }),
        ("temperature", Asked { temperature: Some(f64::INFINITY), ..Asked::default() }),
        ("temperature", Asked { temperature: Some(1e300), ..Asked::default() }),
        ("top_p", Asked { top_p: Some(0.0), ..Asked::default() }),
        ("top_p", Asked { top_p: Some(1.01), ..Asked::default() }),
        ("top_p", Asked { top_p: Some(1e-60), ..Asked::default() }),
        ("top_p", Asked { top_p: nan, ..Asked::default() }),
        ("top_k", Asked { top_k: Some(-2), ..Asked::default() }),
        ("min_p", Asked { min_p: Some(-0.5), ..Asked::default() }),
        ("min_p", Asked { min_p: Some(1.5), ..Asked::default() }),
        ("repetition_penalty", Asked { repetition_penalty: Some(0.0), ..Asked::default() }),
        ("repetition_penalty", Asked { repetition_penalty: Some(f64::INFINITY), ..Asked::default() }),
        ("presence_penalty", Asked { presence_penalty: Some(2.5), ..Asked::default() }),
        ("frequency_penalty", Asked { frequency_penalty: Some(-2.5), ..Asked::default() }),
        ("stop", Asked { stop: vec!["x".to_owned(); 1000], ..Asked::default() }),
        ("stop", Asked { stop: vec![String::new()], ..Asked::default() }),
        ("stop_token_ids", Asked { stop_token_ids: vec![10], ..Asked::default() }),
        ("stop_token_ids", Asked { stop_token_ids: vec![-1], ..Asked::default() }),
        ("logprobs", Asked { logprobs: Some(21), ..Asked::default() }),
        ("logprobs", Asked { logprobs: Some(-1), ..Asked::default() }),
        ("logit_bias", Asked { logit_bias: vec![(10, 1.0)], ..Asked::default() }),
        ("logit_bias", Asked { logit_bias: vec![(1, 100.5)], ..Asked::default() }),
        ("logit_bias", Asked { logit_bias: vec![(1, f64::NAN)], ..Asked::default() }),
        ("logit_bias", Asked { logit_bias: vec![(1, 1.0), (1, 2.0)], ..Asked::default() }),
    ];
    for (field, asked) in cases {
        let refused = asked.clone().checked(10, 0).expect_err(&format!("{asked:?}"));
        assert_eq!(refused.field, field, "{refused}");
    }
}

#[test]
fn the_edges_of_every_range_are_accepted() {
    let asked = Asked {
        max_tokens: Some(1),
        temperature: Some(1e-9),
        top_p: Some(1.0),
        top_k: Some(-1),
        min_p: Some(1.0),
        presence_penalty: Some(-2.0),
        frequency_penalty: Some(2.0),
        stop: vec!["x".to_owned(); MAX_STOPS],
        stop_token_ids: vec![9],
        logprobs: Some(0),
        logit_bias: vec![(9, -100.0), (0, 100.0)],
        ..Asked::default()
    };
    let sampling = asked.checked(10, 0).unwrap();
    assert_eq!(sampling.temperature, 0.0, "too small to divide by is greedy");
    assert_eq!(sampling.top_k, 0);
    assert_eq!(sampling.logit_bias, vec![(0, 100.0), (9, -100.0)]);
}

#[test]
fn a_row_asks_only_for_what_the_request_uses() {
    let greedy = Sampling { temperature: 0.0, top_k: 5, seed: 0x1_0000_0002, ..Sampling::default() };
    let packed = SampleRow::pack(&greedy);
    assert_eq!(packed.words[row::word::SEED_LOW], 2);
    assert_eq!(packed.words[row::word::SEED_HIGH], 1);
    assert_eq!(packed.words[row::word::ASKS], 0, "a limit means nothing to a greedy row");
    let all = Sampling {
        top_p: 0.5,
        logprobs: Some(0),
        frequency_penalty: 0.1,
        logit_bias: vec![(1, 1.0)],
        ..Sampling::default()
    };
    let every = asks::BIAS | asks::PENALTIES | asks::LOGPROBS | asks::LIMIT;
    assert_eq!(SampleRow::pack(&all).words[row::word::ASKS], every);
    assert_eq!(SampleRow::padding().words[row::word::ASKS], 0);
}
