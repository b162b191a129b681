use super::pair::{Fate, Pair, Passing};
use super::state::{LAYOUT, STATE_POS, State, Units};
use crate::error::Error;
use crate::reason::Reason;
use crate::segment::{Projection, SEGMENT_BYTES, Segment, SegmentId};
use crate::verdict::Verdict;

fn segments(chunk: u32) -> Vec<Segment> {
    State::new(LAYOUT, STATE_POS).segments(chunk)
}

/// Over connections alone, and with payloads in the sender's memory.
fn pairs(links: u16) -> [Pair; 2] {
    [Pair::new(SEGMENT_BYTES, links), Pair::new(SEGMENT_BYTES, links).lending()]
}

fn run(segments: Vec<Segment>) -> Pair {
    let mut pair = Pair::new(SEGMENT_BYTES, 1);
    pair.run(segments, &mut |passing| Fate::whole(&passing));
    pair
}

#[test]
fn a_clean_run_commits_every_chunking_over_any_number_of_links_to_the_same_state() {
    let whole = Units::of(&segments(1));
    for (chunk, links) in [(1, 1), (5, 2), (16, 3), (36, 4), (37, 1), (64, 2)] {
        for mut pair in pairs(links) {
            pair.run(segments(chunk), &mut |passing| Fate::whole(&passing));
            assert!(matches!(pair.verdict, Some(Verdict::Held(_))), "{:?}", pair.verdict);
            assert_eq!(pair.sunk, whole);
            assert_eq!(pair.greeted, u32::from(links));
            assert_eq!(pair.faults.len(), 0, "{:?}", pair.faults);
        }
    }
}

#[test]
fn a_dead_link_is_replaced_and_what_the_sink_has_is_not_sent_again() {
    let packets = segments(5).len();
    for links in [1, 2, 4] {
        for (at, mut pair) in
            [1, packets / 2, packets].into_iter().flat_map(|at| pairs(links).map(|pair| (at, pair)))
        {
            let mut payloads = 0;
            let all: usize = segments(5).iter().map(|segment| segment.payload.len()).sum();
            pair.run(segments(5), &mut |passing: Passing| {
                payloads += passing.payload().len();
                if passing.to_receiver && passing.number == at { Fate::Cut } else { Fate::whole(&passing) }
            });
            assert!(matches!(pair.verdict, Some(Verdict::Held(_))), "{links} {at} {:?}", pair.verdict);
            assert_eq!(pair.sunk, Units::of(&segments(1)));
            assert!(pair.faults["link_lost"] > 0);
            assert!(payloads < all + all / 2, "{payloads} bytes for {all}");
        }
    }
}

#[test]
fn a_silent_link_is_replaced_and_a_second_in_a_row_ends_the_transfer() {
    let mut pair = Pair::new(SEGMENT_BYTES, 1);
    pair.run(segments(5), &mut |passing| match (passing.to_receiver, passing.number) {
        (true, 6) => Fate::Silence,
        _ => Fate::whole(&passing),
    });
    assert!(matches!(pair.verdict, Some(Verdict::Held(_))), "{:?} {:?}", pair.verdict, pair.faults);
    assert_eq!(pair.sunk, Units::of(&segments(1)));

    let mut pair = Pair::new(SEGMENT_BYTES, 1);
    pair.run(segments(5), &mut |passing| match (passing.to_receiver, passing.number) {
        (true, 6..) => Fate::Silence,
        _ => Fate::whole(&passing),
    });
    // the commit was asked for on a link that passed nothing: only this side of it knows that
    assert!(
        matches!(pair.verdict, Some(Verdict::Unknown(Error::GaveUp(Reason::Stalled)))),
        "{:?}",
        pair.verdict
    );
    assert!(!pair.committed());
}

#[test]
fn a_lost_answer_to_the_commit_is_learned_on_another_link_or_said_to_be_unknown() {
    let answer =
        |passing: &Passing| !passing.to_receiver && passing.bytes[4] == crate::frame::kind::COMMITTED;
    let mut pair = Pair::new(SEGMENT_BYTES, 1);
    let mut cut = false;
    pair.run(segments(5), &mut |passing: Passing| {
        if answer(&passing) && !std::mem::replace(&mut cut, true) { Fate::Cut } else { Fate::whole(&passing) }
    });
    assert!(matches!(pair.verdict, Some(Verdict::Held(_))), "{:?}", pair.verdict);
    assert_eq!(pair.commits, 1);

    let mut pair = Pair::new(SEGMENT_BYTES, 1);
    let mut gone = false;
    pair.run(segments(5), &mut |passing: Passing| {
        gone |= answer(&passing);
        if gone { Fate::Cut } else { Fate::whole(&passing) }
    });
    assert!(matches!(pair.verdict, Some(Verdict::Unknown(_))), "{:?}", pair.verdict);
    assert_eq!((pair.commits, pair.faults["in_doubt"]), (1, 1));
}

/// Only the digest guards a payload.
fn spoil_payload(mut pair: Pair, segment: usize, times: usize) -> Pair {
    let mut left = times;
    let payload = segments(37)[segment].payload.clone();
    pair.run(segments(37), &mut |passing: Passing| {
        let mut passed = passing.payload();
        if left == 0 || passed != payload {
            return Fate::whole(&passing);
        }
        left -= 1;
        *passed.last_mut().unwrap() ^= 1;
        passing.with_payload(&passed)
    });
    pair
}

#[test]
fn a_corrupt_payload_is_asked_for_again_once() {
    for (at, Segment { id, .. }) in segments(37).into_iter().enumerate() {
        for pair in pairs(1) {
            let repaired = spoil_payload(pair, at, 1);
            assert!(repaired.committed(), "{id}");
            assert_eq!(repaired.sunk, Units::of(&segments(1)));
        }
        for pair in pairs(1) {
            let refused = spoil_payload(pair, at, 2);
            assert!(!refused.committed(), "{id}");
            let segment = id.to_string();
            let end = refused.received.unwrap().unwrap_err();
            assert_eq!(end.reason(), Some(&Reason::Corrupt { segment }));
            let verdict = refused.verdict;
            assert!(matches!(verdict, Some(Verdict::Revoked(Error::PeerGaveUp(Reason::Corrupt { .. })))));
        }
    }
}

#[test]
fn payloads_of_two_segments_swapped_never_reach_the_sink() {
    let parts = segments(37);
    // the tails of one layer: same length, other id
    let tail = |which| {
        parts
            .iter()
            .find(|part| part.id == SegmentId::Tail { layer: 1, which, first_head: 0, heads: 4 })
            .unwrap()
    };
    let (query, key) = (tail(Projection::Query).payload.clone(), tail(Projection::Key).payload.clone());
    assert_eq!(query.len(), key.len());
    for mut pair in pairs(1) {
        pair.run(segments(37), &mut |passing: Passing| match passing.payload() {
            payload if payload == query => passing.with_payload(&key),
            payload if payload == key => passing.with_payload(&query),
            _ => Fate::whole(&passing),
        });
        assert!(!pair.committed());
        assert!(matches!(pair.received, Some(Err(Error::GaveUp(Reason::Corrupt { .. })))));
    }
}

#[test]
fn memory_that_its_owner_uses_again_is_a_wrong_digest() {
    let mut pair = Pair::new(SEGMENT_BYTES, 1).lending();
    pair.run(segments(37), &mut |passing: Passing| {
        if let Some(memory) = &passing.memory {
            memory.lock().unwrap().fill(0xee);
        }
        Fate::whole(&passing)
    });
    assert!(!pair.committed());
    assert!(matches!(pair.received, Some(Err(Error::GaveUp(Reason::Corrupt { .. })))));
}

#[test]
fn a_commit_without_some_part_names_it() {
    for left_out in 0..segments(37).len() {
        let mut some = segments(37);
        let missing = some.remove(left_out).id;
        let pair = run(some);
        assert!(!pair.committed(), "committed without {missing}");
        let Some(Verdict::Revoked(Error::PeerGaveUp(Reason::Incomplete { missing: named }))) = pair.verdict
        else {
            panic!("{missing}: {:?}", pair.verdict)
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
        let pair = run(twice);
        assert!(!pair.committed());
        assert!(matches!(pair.received, Some(Err(Error::GaveUp(Reason::Protocol { .. })))));
    }
}
