use programs::sampling::Asked;

use super::{asked, message};

#[test]
fn a_checked_value_survives_the_wire() {
    let wanted = Asked {
        max_tokens: Some(7),
        temperature: Some(0.7),
        top_p: Some(0.9),
        top_k: Some(40),
        min_p: Some(0.05),
        seed: Some(u64::MAX),
        repetition_penalty: Some(1.1),
        presence_penalty: Some(-0.5),
        frequency_penalty: Some(0.25),
        stop: vec!["\n\n".into()],
        stop_token_ids: vec![3, 9],
        ignore_eos: true,
        logprobs: Some(5),
        logit_bias: vec![(4, -100.0), (90, 2.5)],
    };
    let checked = wanted.checked(100, 1).unwrap();
    assert_eq!(asked(message(&checked)).checked(100, 2).unwrap(), checked);
    let default = Asked::default().checked(100, 3).unwrap();
    assert_eq!(asked(message(&default)).checked(100, 4).unwrap(), default);
}
