use super::*;
use proptest::prelude::*;

fn layout() -> Layout {
    Layout::from_fields([2, 8, 3, 2, 4, 4, 3, 8, 2, 4, 6, 100, 16])
}

fn state() -> SamplingState {
    SamplingState {
        seed: u64::MAX - 1,
        position: 40,
        first: FirstToken { id: 99, logprob: -0.5, top: vec![(99, -0.5), (3, f32::NEG_INFINITY)] },
        prompt_ids: vec![0, 7, 99],
        output_counts: vec![(4, 2), (99, 1)],
    }
}

#[test]
fn an_encoding_reads_back() {
    let read = SamplingState::decode(&state().encode(), &layout(), 40);
    assert_eq!(read, Ok(state()));
}

#[test]
fn what_the_model_cannot_have_is_refused_by_field() {
    type Spoil = fn(&mut SamplingState);
    let faults: [(&str, Spoil); 7] = [
        ("position", |s| s.position = 41),
        ("first token", |s| s.first.id = 100),
        ("first token's logprob", |s| s.first.logprob = f32::NAN),
        ("top", |s| s.first.top = vec![(1, 0.0); 65]),
        ("prompt ids", |s| s.prompt_ids = vec![7, 7]),
        ("prompt ids", |s| s.prompt_ids = (0..41).collect()),
        ("output counts", |s| s.output_counts = vec![(5, 0)]),
    ];
    for (field, spoil) in faults {
        let mut bad = state();
        spoil(&mut bad);
        let refused = SamplingState::decode(&bad.encode(), &layout(), 40).unwrap_err();
        assert_eq!(refused.field, field, "{refused}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let whole = state().encode();
    for length in 0..whole.len() {
        SamplingState::decode(&whole[..length], &layout(), 40).unwrap_err();
    }
}

proptest! {
    #[test]
    fn what_reads_at_all_writes_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(state) = SamplingState::decode(&bytes, &layout(), 40) {
            prop_assert_eq!(state.encode(), bytes);
        }
    }
}
