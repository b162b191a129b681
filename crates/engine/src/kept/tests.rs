use super::*;

fn state() -> SlotState {
    let recurrent =
        (0..6 * 8).map(|at| ((at * 37 % 101) as f32 - 50.0) * [1.0, 1e-3, 0.0][at / 8 % 3]).collect();
    SlotState { recurrent, tails: vec![1.5; 5], index_tail: vec![-2.0; 3], hidden: vec![0.25; 4] }
}

#[test]
fn floats_come_back_as_they_were() {
    let kept = Kept::new(state(), 512, CheckpointFormat::F32, 8);
    assert_eq!(kept.state(), state());
    assert_eq!((kept.tokens(), kept.bytes()), (Tokens(512), Bytes((48 + 12) * 4)));
}

#[test]
fn bytes_are_a_half_step_of_their_own_key_channel_away() {
    let kept = Kept::new(state(), 64, CheckpointFormat::Int8, 8);
    assert_eq!(kept.bytes(), Bytes(48 + 6 * 4 + 12 * 4));
    let (got, wanted) = (kept.state(), state());
    for (got, wanted) in got.recurrent.chunks(8).zip(wanted.recurrent.chunks(8)) {
        let step = wanted.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() <= step * 0.501, "{got} for {wanted}, steps of {step}");
        }
    }
    assert_eq!(got.tails, wanted.tails);
    assert_eq!((got.index_tail, got.hidden), (wanted.index_tail, wanted.hidden));
}
