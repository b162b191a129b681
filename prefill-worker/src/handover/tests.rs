use engine::{Namespace, PrefillJob, SampledToken};
use programs::sampling::Sampling;

use super::Drawn;

#[test]
fn what_was_drawn_before_counts_as_output_and_not_as_prompt() {
    let mut sampling = Sampling::default();
    sampling.seed = 5;
    let job = PrefillJob {
        namespace: Namespace::of(b"", b""),
        request_id: "r".to_owned(),
        prompt: vec![9, 4, 9, 7, 4, 7],
        output_tokens: 3,
        sampling,
        priority: 0,
        deadline: None,
    };
    let first = SampledToken { id: 4, ..SampledToken::default() };
    let state = Drawn::of(&job).state(first.clone(), 6);
    assert_eq!((state.seed, state.position, state.first.id), (5, 6, 4));
    assert_eq!((state.prompt_ids, state.output_counts), (vec![4, 9], vec![(4, 2), (7, 2)]));

    let fresh = Drawn::of(&PrefillJob { output_tokens: 0, ..job }).state(first, 6);
    assert_eq!((fresh.prompt_ids, fresh.output_counts), (vec![4, 7, 9], vec![(4, 1)]));
}
