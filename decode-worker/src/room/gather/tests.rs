use bytes::Bytes;
use kvxfer::segment::{chunk, hidden, index_tails, recurrent, tails, wire_bytes};
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
    index_dim: 2,
    index_pool: 4,
    hidden: 5,
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
    // tokens 5 to 13 close the pools of 4 to 7 and of 8 to 11
    let ((expected, latents), (expected_keys, keys)) = (counting(3 * 9 * 2), counting(3 * 2 * 2));
    let segments = chunk(&LAYOUT, 5, 9, &latents, &keys).unwrap();
    let run = Run { first_token: 5, tokens: 9, latents: expected, keys: expected_keys };
    for order in [segments.clone(), segments.into_iter().rev().collect()] {
        let mut runs = Runs::new(LAYOUT, meters.clone());
        let mut whole = None;
        for Segment { id, payload } in order {
            assert!(whole.is_none());
            whole = match id {
                SegmentId::Latents { layer, first_token, tokens } => {
                    runs.latents(layer, first_token, tokens, &payload).unwrap()
                }
                SegmentId::IndexKeys { layer, first_pool, pools } => {
                    runs.keys(layer, first_pool, pools, &payload).unwrap()
                }
                _ => panic!("{id}"),
            };
        }
        assert_eq!(whole.as_ref(), Some(&run));
        assert!(runs.is_empty());
    }

    let (expected_recurrent, state) = counting(2 * 3 * 10);
    let (expected_tails, rows) = counting(2 * 3 * 12);
    let mut parts = StateParts::new(LAYOUT, meters.clone());
    let (expected_open, open) = counting(3 * 4 * 2 * 2);
    let (expected_hidden, vector) = counting(5);
    let mut cut = [
        recurrent(&LAYOUT, 0..LAYOUT.heads, &state).unwrap(),
        tails(&LAYOUT, 0..LAYOUT.heads, &rows).unwrap(),
    ]
    .concat();
    cut.extend(index_tails(&LAYOUT, &open).unwrap());
    cut.extend(hidden(&LAYOUT, &vector).unwrap());
    for Segment { id, payload } in cut.into_iter().rev() {
        match id {
            SegmentId::Recurrent { layer, first_head, .. } => parts.recurrent(layer, first_head, &payload),
            SegmentId::Tail { layer, which, first_head, heads } => {
                parts.tail(layer, which, first_head..first_head + heads, &payload);
            }
            SegmentId::IndexTail { layer } => parts.index_tail(layer, &payload),
            SegmentId::Hidden => parts.hidden(&payload),
            SegmentId::Latents { .. } | SegmentId::IndexKeys { .. } | SegmentId::Sampling => panic!("{id}"),
        }
    }
    assert!(meters.staging_bytes() > 0);
    let whole = parts.whole();
    assert_eq!((whole.recurrent, whole.tails), (expected_recurrent, expected_tails));
    assert_eq!((whole.index_tail, whole.hidden), (expected_open, expected_hidden));
    drop(parts);
    assert_eq!(meters.staging_bytes(), 0);
}

#[test]
fn a_sender_that_never_finishes_a_run_is_stopped() {
    let meters = meters();
    let mut runs = Runs::new(LAYOUT, meters.clone());
    let tokens = 1 << 16;
    let layer = vec![0; tokens as usize * 8];
    let refused = (0..).find_map(|run| runs.latents(0, run * tokens, tokens, &layer).err());
    assert!(matches!(refused, Some(Reason::Sink { .. })));
    assert!(meters.staging_bytes() <= MOST_HELD as i64);
    drop(runs);
    assert_eq!(meters.staging_bytes(), 0);
}
