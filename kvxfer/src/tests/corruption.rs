use proptest::prelude::*;

use super::pair::Pair;
use super::state::{LAYOUT, STATE_POS, State, Units};
use crate::error::Error;
use crate::reason::Reason;
use crate::segment::{Projection, SEGMENT_BYTES, Segment, SegmentId};

/// Enough to name any byte of any packet of these small transfers.
#[derive(Clone, Debug)]
enum Fault {
    Flip { byte: usize, mask: u8 },
    Truncate { keep: usize },
    Lose,
    Double,
    SwapWithNext,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (any::<usize>(), 1u8..).prop_map(|(byte, mask)| Fault::Flip { byte, mask }),
        1 => any::<usize>().prop_map(|keep| Fault::Truncate { keep }),
        1 => Just(Fault::Lose),
        1 => Just(Fault::Double),
        1 => Just(Fault::SwapWithNext),
    ]
}

fn hit(fault: &Fault, mut packet: Vec<u8>, held: &mut Option<Vec<u8>>) -> Vec<Vec<u8>> {
    match *fault {
        Fault::Flip { byte, mask } => {
            let at = byte % packet.len();
            packet[at] ^= mask;
            vec![packet]
        }
        Fault::Truncate { keep } => {
            packet.truncate(keep % packet.len());
            vec![packet]
        }
        Fault::Lose => vec![],
        Fault::Double => vec![packet.clone(), packet],
        Fault::SwapWithNext => {
            *held = Some(packet);
            vec![]
        }
    }
}

fn segments(chunk: u32) -> Vec<Segment> {
    State::new(LAYOUT, STATE_POS).segments(chunk)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever one direction does to its packets, the sink gets right bytes or none, and a commit means everything.
    #[test]
    fn faults_on_the_way_are_repaired_or_refused(
        chunk in 1u32..40,
        faults in proptest::collection::vec((any::<bool>(), 0usize..50, fault()), 1..4),
    ) {
        let whole = Units::of(&segments(1));
        let mut pair = Pair::new(SEGMENT_BYTES);
        let mut held = None;
        pair.run(segments(chunk), &mut |forth, number, packet| {
            if let Some(earlier) = held.take() {
                return vec![packet, earlier];
            }
            match faults.iter().find(|fault| (fault.0, fault.1) == (forth, number)) {
                Some((_, _, fault)) => hit(fault, packet, &mut held),
                None => vec![packet],
            }
        });
        prop_assert!(pair.sunk.within(&whole));
        if pair.committed {
            prop_assert_eq!(&pair.sunk, &whole);
        }
        prop_assert_eq!(pair.committed, matches!(pair.received, Some(Ok(_))));
        // a sender that heard "committed" was told the truth
        if let Some(Ok(_)) = pair.sent {
            prop_assert!(pair.committed);
        }
        prop_assert_eq!(pair.sender.staged() + pair.receiver.staged(), 0);
    }
}

#[test]
fn a_clean_run_commits_every_chunking_to_the_same_state() {
    let whole = Units::of(&segments(1));
    for chunk in [1, 5, 16, 36, 37, 64] {
        let mut pair = Pair::new(SEGMENT_BYTES);
        pair.run(segments(chunk), &mut |_, _, packet| vec![packet]);
        assert!(matches!(pair.sent, Some(Ok(_))), "{:?}", pair.sent);
        assert_eq!(pair.sunk, whole);
    }
}

/// The last byte of a segment's packet is payload, which only the digest guards.
fn spoil_payload(segment: usize, times: usize) -> Pair {
    let mut pair = Pair::new(SEGMENT_BYTES);
    let mut left = times;
    let payload = segments(37)[segment].payload.clone();
    pair.run(segments(37), &mut |forth, _, mut packet| {
        if forth && left > 0 && packet.ends_with(&payload) {
            left -= 1;
            let last = packet.len() - 1;
            packet[last] ^= 1;
        }
        vec![packet]
    });
    pair
}

#[test]
fn a_corrupt_payload_is_asked_for_again_once() {
    for (at, Segment { id, .. }) in segments(37).into_iter().enumerate() {
        let repaired = spoil_payload(at, 1);
        assert!(repaired.committed, "{id}");
        assert_eq!(repaired.sunk, Units::of(&segments(1)));

        let refused = spoil_payload(at, 2);
        assert!(!refused.committed, "{id}");
        let segment = id.to_string();
        let end = refused.received.unwrap().unwrap_err();
        assert_eq!(end.reason(), Some(&Reason::Corrupt { segment }));
        assert!(matches!(refused.sent, Some(Err(Error::PeerGaveUp(Reason::Corrupt { .. })))));
    }
}

#[test]
fn payloads_of_two_segments_swapped_never_reach_the_sink() {
    let parts = segments(37);
    // the tails of one layer: same length, other id
    let tail = |which| parts.iter().find(|part| part.id == SegmentId::Tail { layer: 1, which }).unwrap();
    let (query, key) = (tail(Projection::Query).payload.clone(), tail(Projection::Key).payload.clone());
    assert_eq!(query.len(), key.len());
    let mut pair = Pair::new(SEGMENT_BYTES);
    pair.run(segments(37), &mut |forth, _, mut packet| {
        let at = packet.len().saturating_sub(query.len());
        if forth && packet.ends_with(&query) {
            packet[at..].copy_from_slice(&key);
        } else if forth && packet.ends_with(&key) {
            packet[at..].copy_from_slice(&query);
        }
        vec![packet]
    });
    assert!(!pair.committed);
    assert!(matches!(pair.received, Some(Err(Error::GaveUp(Reason::Corrupt { .. })))));
}

#[test]
fn a_commit_without_some_part_names_it() {
    for left_out in 0..segments(37).len() {
        let mut some = segments(37);
        let missing = some.remove(left_out).id;
        let mut pair = Pair::new(SEGMENT_BYTES);
        pair.run(some, &mut |_, _, packet| vec![packet]);
        assert!(!pair.committed, "committed without {missing}");
        let Some(Err(Error::PeerGaveUp(Reason::Incomplete { missing: named }))) = pair.sent else {
            panic!("{missing}: {:?}", pair.sent)
        };
        let part = |text: &str| text.split(' ').next().unwrap().to_owned();
        assert_eq!(part(&named), part(&missing.to_string()));
    }
}

#[test]
fn a_part_sent_twice_is_refused() {
    for again in 0..segments(37).len() {
        let mut twice = segments(37);
        twice.push(twice[again].clone());
        let mut pair = Pair::new(SEGMENT_BYTES);
        pair.run(twice, &mut |_, _, packet| vec![packet]);
        assert!(!pair.committed);
        assert!(matches!(pair.received, Some(Err(Error::GaveUp(Reason::Protocol { .. })))));
    }
}
