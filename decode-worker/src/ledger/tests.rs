use super::*;

const ID: TicketId = TicketId([1; 16]);
const LEASE: Duration = Duration::from_secs(10);
const RECEIPT: Receipt = Receipt { segments: 3, bytes: 99 };

fn secrets() -> Secrets {
    Secrets { ticket: Secret([5; 32]), transfer: Secret([6; 32]) }
}

fn reserved(now: Instant) -> Ledger<&'static str, &'static str> {
    let mut ledger = Ledger::new(LEASE);
    ledger.reserve(ID, secrets(), 7, "room", now);
    ledger
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_ticket_goes_its_way_once() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    assert_eq!(ledger.expected(&ID), Some((secrets().transfer, 7, None)));
    assert!(!ledger.attach(&ID, &secrets().transfer), "its sender does not get its tokens");
    assert!(ledger.attach(&ID, &secrets().ticket));
    assert!(!ledger.attach(&ID, &secrets().ticket), "one stream a ticket");
    assert!(matches!(ledger.take(&ID), Handed::NotYet));
    assert_eq!(ledger.open(&ID, now), Ok(("room", 7)));
    assert_eq!(ledger.open(&ID, now), Err(Reason::TicketUsed));
    assert_eq!(ledger.commit(&ID, "filled", RECEIPT, now), Ok(()));
    assert_eq!(ledger.commit(&ID, "again", RECEIPT, now), Err(("again", Reason::TicketUsed)));
    assert_eq!(ledger.revoked(&ID), None);
    assert!(matches!(ledger.take(&ID), Handed::Here("filled", RECEIPT)));
    assert!(matches!(ledger.take(&ID), Handed::Gone));
    assert!(ledger.release(&ID, now).is_none(), "the room is with the answer");
    assert!(ledger.release(&ID, now).is_none());
    // a sender that lost the answer still finds it
    assert_eq!(ledger.expected(&ID), Some((secrets().transfer, 7, Some(RECEIPT))));
    ledger.expire(now + REMEMBERED);
    assert_eq!(ledger.expected(&ID), None);
    assert_eq!(ledger.deadline(), None);
}

#[test]
fn an_unused_lease_runs_out_and_gives_the_room_back() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    assert_eq!(ledger.deadline(), Some(now + LEASE));
    assert!(ledger.expire(now + seconds(9)).is_empty());
    assert!(matches!(ledger.expire(now + LEASE)[..], [Freed::Empty("room")]));
    assert!(matches!(ledger.take(&ID), Handed::Failed(Failure::LeaseExpired)));
    assert!(matches!(ledger.open(&ID, now + LEASE), Err(Reason::TicketUsed)));
}

#[test]
fn a_sender_that_comes_late_is_told_so_before_anyone_has_looked() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    assert_eq!(ledger.open(&ID, now + LEASE), Err(Reason::LeaseExpired));
    assert!(matches!(ledger.expire(now + LEASE)[..], [Freed::Empty("room")]));
}

#[test]
fn progress_keeps_the_lease_and_its_lack_revokes_the_transfer() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    ledger.open(&ID, now).unwrap();
    ledger.renew(&ID, now + seconds(9));
    assert!(ledger.expire(now + seconds(15)).is_empty());
    assert_eq!(ledger.revoked(&ID), None);
    // too late to commit, whether or not anyone has expired it yet
    let late = now + seconds(19);
    assert_eq!(ledger.commit(&ID, "filled", RECEIPT, late), Err(("filled", Reason::LeaseExpired)));
    assert!(ledger.expire(late).is_empty(), "the transfer holds the room");
    assert_eq!(ledger.revoked(&ID), Some(Reason::LeaseExpired));
    assert_eq!(ledger.commit(&ID, "filled", RECEIPT, late), Err(("filled", Reason::LeaseExpired)));
}

#[test]
fn release_ends_a_ticket_at_every_stage() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    assert!(matches!(ledger.release(&ID, now), Some(Freed::Empty("room"))));
    assert!(ledger.release(&ID, now).is_none(), "idempotent");
    assert!(matches!(ledger.open(&ID, now), Err(Reason::UnknownTicket)));

    let mut ledger = reserved(now);
    ledger.open(&ID, now).unwrap();
    assert!(ledger.release(&ID, now).is_none());
    assert_eq!(ledger.revoked(&ID), Some(Reason::Cancelled));
    assert_eq!(ledger.commit(&ID, "filled", RECEIPT, now), Err(("filled", Reason::Cancelled)));

    let mut ledger = reserved(now);
    ledger.open(&ID, now).unwrap();
    ledger.commit(&ID, "filled", RECEIPT, now).unwrap();
    assert!(matches!(ledger.release(&ID, now), Some(Freed::Filled("filled"))));
}

#[test]
fn a_failed_transfer_is_told_to_whoever_waits() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    ledger.open(&ID, now).unwrap();
    let failure = Failure::Transfer { why: "cut".to_owned(), worth_retrying: true };
    ledger.transfer_failed(&ID, failure.clone(), now);
    assert!(matches!(ledger.take(&ID), Handed::Failed(told) if told == failure));
    assert!(ledger.release(&ID, now).is_none());
    assert_eq!(ledger.expected(&ID), None);
}

#[test]
fn strangers_do_not_attach() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    assert!(!ledger.attach(&ID, &Secret([6; 32])));
    assert!(!ledger.attach(&TicketId([2; 16]), &secrets().ticket));
}

#[test]
fn a_committed_state_that_nobody_fetches_is_given_back() {
    let now = Instant::now();
    let mut ledger = reserved(now);
    ledger.open(&ID, now).unwrap();
    ledger.commit(&ID, "filled", RECEIPT, now + seconds(3)).unwrap();
    assert!(ledger.expire(now + seconds(12)).is_empty());
    assert!(matches!(ledger.expire(now + seconds(13))[..], [Freed::Filled("filled")]));
}
