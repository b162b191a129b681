use super::state::{LAYOUT, STATE_POS, ticket};
use crate::frame::Hello;
use crate::key::{self, TransferKey};
use crate::layout::Layout;
use crate::reason::Reason;
use crate::recv::check_hello;
use crate::segment::{Projection, SegmentId};
use crate::ticket::{Expected, Incarnation, Secret, TicketId};

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

fn greeting(spoil: impl FnOnce(&mut Hello), secret: &Secret) -> Result<(), Reason> {
    let ticket = ticket();
    let mut hello = Hello {
        ticket: ticket.id,
        incarnation: ticket.incarnation,
        state_pos: STATE_POS,
        layout: ticket.layout,
        proof: [0; 32],
    };
    spoil(&mut hello);
    hello.proof = key::prove(secret, &hello);
    check_hello(&hello, &expected()).map(|_| ())
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
    assert_eq!(greeting(|hello| hello.layout.tail_rows += 1, &secret), field("tail_rows"));
}

#[test]
fn every_layout_field_but_the_page_length_counts() {
    for at in 0..10 {
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
fn digests_are_of_one_ticket_position_process_and_segment() {
    let of = |secret: u8, ticket: u8, state_pos: u32, incarnation: u8| {
        let (ticket, incarnation) = (TicketId([ticket; 16]), Incarnation([incarnation; 16]));
        TransferKey::derive(&Secret([secret; 32]), &ticket, state_pos, &incarnation)
    };
    let id = SegmentId::Tail { layer: 1, which: Projection::Key };
    let digest = of(1, 2, 3, 4).digest(&id, b"bytes");
    for other in [of(9, 2, 3, 4), of(1, 9, 3, 4), of(1, 2, 9, 4), of(1, 2, 3, 9)] {
        assert_ne!(other.digest(&id, b"bytes"), digest);
    }
    let other = SegmentId::Tail { layer: 1, which: Projection::Value };
    assert_ne!(of(1, 2, 3, 4).digest(&other, b"bytes"), digest);
}
