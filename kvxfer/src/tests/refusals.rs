use bytes::BufMut;

use super::state::{LAYOUT, STATE_POS, State, ticket};
use crate::frame::{F32_DENSE, FrameReader, Hello, Tagger};
use crate::key::{self, Direction, TransferKey};
use crate::landing::Landing;
use crate::layout::{FIELDS, Layout};
use crate::manifest::{Coverage, Manifest, NotInManifest};
use crate::reason::Reason;
use crate::recv::check_hello;
use crate::segment::{Projection, Segment, SegmentId};
use crate::ticket::{Expected, Incarnation, LinkId, Secret, TicketId};

fn expected() -> Expected {
    let ticket = ticket();
    Expected {
        secret: ticket.secret,
        incarnation: ticket.incarnation,
        layout: LAYOUT,
        state_pos: STATE_POS,
        committed: None,
    }
}

pub(super) fn greeting(spoil: impl FnOnce(&mut Hello), secret: &Secret) -> Result<(), Reason> {
    let ticket = ticket();
    let mut hello = Hello {
        ticket: ticket.id,
        incarnation: ticket.incarnation,
        sender: Incarnation([6; 16]),
        link: LinkId(0),
        links: 1,
        state_pos: STATE_POS,
        layout: ticket.layout,
        format: F32_DENSE,
        lent: None,
        proof: [0; 32],
    };
    spoil(&mut hello);
    hello.proof = key::prove(secret, &hello);
    check_hello(&hello, &expected()).map(|_| ())
}

/// A greeting that is wrong: how, what is changed in it, and the secret that proves it.
pub(super) type Misgreeting = (&'static str, fn(&mut Hello), fn() -> Secret);

pub(super) fn misgreetings() -> [Misgreeting; 8] {
    let right: fn() -> Secret = || ticket().secret;
    [
        ("WrongTicket", |_| {}, || Secret([8; 32])),
        ("StaleIncarnation", |hello| hello.incarnation = Incarnation([0; 16]), right),
        ("WrongPosition", |hello| hello.state_pos -= 1, right),
        ("WrongFormat", |hello| hello.format += 1, right),
        ("WrongLayers", |hello| hello.layout.recurrent_layers += 1, right),
        ("WrongHeads", |hello| hello.layout.heads /= 2, right),
        ("WrongTail", |hello| hello.layout.tail_width += 1, right),
        ("WrongVocabulary", |hello| hello.layout.vocabulary += 1, right),
    ]
}

#[test]
fn greetings_are_refused_for_what_differs() {
    let secret = ticket().secret;
    let field = |name: &str| Err(Reason::Mismatch { field: name.to_owned() });
    assert_eq!(greeting(|_| {}, &secret), Ok(()), "other page lengths are no difference");
    assert_eq!(greeting(|_| {}, &Secret([8; 32])), Err(Reason::UnknownTicket));
    let stale = |hello: &mut Hello| hello.incarnation = Incarnation([0; 16]);
    assert_eq!(greeting(stale, &secret), Err(Reason::StaleIncarnation));
    assert_eq!(greeting(|hello| hello.state_pos += 1, &secret), field("state_pos"));
    assert_eq!(greeting(|hello| hello.format += 1, &secret), field("number_format"));
    assert_eq!(greeting(|hello| hello.layout.tail_rows += 1, &secret), field("tail_rows"));
}

#[test]
fn every_layout_field_but_the_page_length_counts() {
    for at in 0..FIELDS {
        let mut fields = LAYOUT.fields().map(|(_, value)| value);
        fields[at] += 1;
        let (name, _) = LAYOUT.fields()[at];
        let difference = LAYOUT.first_difference(&Layout::from_fields(fields));
        match name {
            "page_tokens" => assert_eq!(difference, None),
            _ => assert_eq!(difference.map(|d| d.field), Some(name)),
        }
    }
}

#[test]
fn a_state_has_the_parts_of_its_model_and_no_others() {
    let all = [
        SegmentId::IndexKeys { layer: 0, first_pool: 0, pools: 1 },
        SegmentId::IndexTail { layer: 1 },
        SegmentId::Hidden,
    ];
    let bare = Layout { index_dim: 0, index_pool: 0, hidden: 0, ..LAYOUT };
    for (layout, has) in [(LAYOUT, true), (bare, false)] {
        let manifest = Manifest::new(layout, STATE_POS);
        let segments = State::new(layout, STATE_POS).segments(STATE_POS);
        let bytes: u64 = segments.iter().map(|segment| segment.payload.len() as u64).sum();
        let sampling = segments.last().unwrap().payload.len() as u64;
        assert_eq!(bytes - sampling, layout.state_bytes(STATE_POS));
        let mut coverage = Coverage::new(manifest);
        for Segment { id, payload } in segments {
            manifest.check(&id, payload.len() as u64).unwrap();
            coverage.claim(&id).unwrap();
        }
        assert_eq!(coverage.first_missing(), None);
        for id in all {
            let refused = manifest.check(&id, 0);
            assert_eq!(refused == Err(NotInManifest::Outside(id)), !has, "{refused:?}");
        }
    }
    let manifest = Manifest::new(LAYOUT, STATE_POS);
    let open = SegmentId::IndexKeys { layer: 0, first_pool: 8, pools: 2 };
    assert_eq!(manifest.check(&open, 16), Err(NotInManifest::Outside(open)), "37 tokens close nine pools");
}

#[test]
fn a_part_that_the_reader_does_not_know_is_refused_by_its_number() {
    let (key, mut tagger) = (TransferKey::unkeyed(), Tagger::new(Direction::ToReceiver));
    let mut reader = FrameReader::new(Direction::ToReceiver, Landing::new(0));
    reader.trust(key, LinkId(0), Manifest::new(LAYOUT, STATE_POS));
    // kind and sequence; the id; length
    let body = [&[2, 0, 0, 0, 0][..], &[9; 13], &[0; 8]].concat();
    reader.space().put_slice(&tagger.around(&body));
    assert_eq!(reader.next().unwrap_err().to_string(), "unknown part 9");
}

#[test]
fn digests_are_of_one_ticket_position_process_attempt_and_segment() {
    let of = |secret: u8, ticket: u8, state_pos: u32, receiver: u8, sender: u8| {
        let (receiver, sender) = (Incarnation([receiver; 16]), Incarnation([sender; 16]));
        TransferKey::derive(&Secret([secret; 32]), &TicketId([ticket; 16]), state_pos, &receiver, &sender)
    };
    let tail = |which| SegmentId::Tail { layer: 1, which, first_head: 0, heads: 4 };
    let id = tail(Projection::Key);
    let of_bytes = |key: TransferKey, id: &SegmentId| {
        let mut digest = key.digest();
        digest.up_to(b"bytes");
        digest.of(id)
    };
    let digest = of_bytes(of(1, 2, 3, 4, 5), &id);
    let others =
        [of(9, 2, 3, 4, 5), of(1, 9, 3, 4, 5), of(1, 2, 9, 4, 5), of(1, 2, 3, 9, 5), of(1, 2, 3, 4, 9)];
    for other in others {
        assert_ne!(of_bytes(other, &id), digest);
    }
    let other = tail(Projection::Value);
    assert_ne!(of_bytes(of(1, 2, 3, 4, 5), &other), digest);
}
