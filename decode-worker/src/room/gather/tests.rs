use bytes::Bytes;
use kvxfer::segment::{latents, recurrent, tails, wire_bytes};
use kvxfer::{Segment, SegmentId};

use super::*;

const LAYOUT: Layout = Layout {
    latent_layers: 3,
    latent_width: 2,
    recurrent_layers: 2,
    heads: 3,
    key_dim: 2,
    value_dim: 5,
    tail_rows: 3,
    tail_width: 4,
    vocabulary: 9,
    page_tokens: 4,
};

fn meters() -> Meters {
    telemetry::Meters::new().register(Meters::register)
}

fn counting(numbers: usize) -> (Vec<f32>, Bytes) {
    let numbers: Vec<f32> = (0..numbers).map(|number| number as f32).collect();
    let bytes = wire_bytes(numbers.clone());
    (numbers, bytes)
}

#[test]
fn what_a_sender_cuts_comes_together_again_in_any_order() {
    let meters = meters();
    let (expected, chunk) = counting(3 * 7 * 2);
    let mut runs = LatentRuns::new(LAYOUT, meters.clone());
    let mut whole = None;
    for Segment { id, payload } in latents(&LAYOUT, 5, 7, &chunk).unwrap().into_iter().rev() {
        let SegmentId::Latents { layer, first_token, tokens } = id else { panic!("{id}") };
        assert!(whole.is_none());
        whole = runs.take(layer, first_token, tokens, &payload).unwrap();
    }
    assert_eq!(whole, Some(expected));

    let (expected_recurrent, state) = counting(2 * 3 * 10);
    let (expected_tails, rows) = counting(2 * 3 * 12);
    let mut parts = StateParts::new(LAYOUT, meters.clone());
    let cut = [recurrent(&LAYOUT, &state).unwrap(), tails(&LAYOUT, &rows).unwrap()].concat();
    for Segment { id, payload } in cut.into_iter().rev() {
        match id {
            SegmentId::Recurrent { layer, first_head, .. } => parts.recurrent(layer, first_head, &payload),
            SegmentId::Tail { layer, which } => parts.tail(layer, which, &payload),
            SegmentId::Latents { .. } | SegmentId::Sampling => panic!("{id}"),
        }
    }
    assert!(meters.staging_bytes() > 0);
    let whole = parts.whole();
    assert_eq!((whole.recurrent, whole.tails), (expected_recurrent, expected_tails));
    drop((runs, parts));
    assert_eq!(meters.staging_bytes(), 0);
}

#[test]
fn a_sender_that_never_finishes_a_run_is_stopped() {
    let meters = meters();
    let mut runs = LatentRuns::new(LAYOUT, meters.clone());
    let tokens = 1 << 16;
    let layer = vec![0; tokens as usize * 8];
    let refused = (0..).find_map(|run| runs.take(0, run * tokens, tokens, &layer).err());
    assert!(matches!(refused, Some(Reason::Sink { .. })));
    assert!(meters.staging_bytes() <= MOST_HELD as i64);
    drop(runs);
    assert_eq!(meters.staging_bytes(), 0);
}
