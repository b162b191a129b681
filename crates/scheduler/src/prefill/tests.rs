use std::time::Duration;

use statepool::{Lease, Pool, PoolShape};

use super::*;

const PATIENCE: Duration = Duration::from_secs(1);

fn pool(pages: u32, slots: u32) -> Pool {
    Pool::new(PoolShape { pages, slots, page_tokens: 16 })
}

fn planner(lengths: &[u32]) -> Prefill<Lease> {
    Prefill::new(Grid::new(lengths.to_vec()), PATIENCE)
}

fn ask(tokens: u32) -> Ask {
    Ask { tokens, priority: Priority(0), asked: Instant::now(), deadline: None }
}

/// From the beginning, without marks.
fn admit(
    plan: &mut Prefill<Lease>,
    pool: &Pool,
    now: Instant,
) -> Option<Result<SequenceId, (SequenceId, PoolError)>> {
    let begin = |lease| Start { lease, resume_at: 0, marks: Vec::new() };
    plan.admit(now, |_, ask| Ok(begin(pool.reserve(ask.tokens)?)))
}

fn admit_all(plan: &mut Prefill<Lease>, pool: &Pool) -> Vec<u64> {
    let now = Instant::now();
    std::iter::from_fn(|| admit(plan, pool, now).and_then(Result::ok)).map(|id| id.0).collect()
}

#[test]
fn chunks_lie_on_the_absolute_grid() {
    let grid = Grid::new(vec![64, 16, 0]);
    let none = BTreeSet::new();
    for (start, total, expected) in [
        (0, 1, (1, 16)),
        (0, 16, (16, 16)),
        (0, 17, (17, 64)),
        (0, 64, (64, 64)),
        (0, 65, (64, 64)),
        (64, 65, (1, 16)),
        (64, 127, (63, 64)),
        (128, 500, (64, 64)),
    ] {
        assert_eq!(grid.chunk(start, total, &none), Some(expected), "start {start} of {total}");
    }
    assert_eq!(Grid::new(vec![0]).chunk(0, 1, &none), None);
}

#[test]
fn chunks_end_at_marks_and_come_back_to_the_grid() {
    let pool = pool(100, 4);
    let mut plan = planner(&[16, 64]);
    plan.queue(SequenceId(1), ask(200));
    let begin = |lease| Start { lease, resume_at: 40, marks: vec![40, 104, 128, 300] };
    plan.admit(Instant::now(), |_, ask| Ok(begin(pool.reserve(ask.tokens)?))).unwrap().unwrap();
    assert_eq!(plan.queued_tokens(), 160);
    let mut chunks = Vec::new();
    while let Some(step) = plan.next_step(|_| true).filter(|step| step.valid > 0) {
        chunks.push((step.start, step.valid, step.length));
        plan.complete(&step);
        if step.is_last() {
            plan.remove(step.sequence);
        }
    }
    assert_eq!(chunks, [(40, 24, 64), (64, 40, 64), (104, 24, 64), (128, 64, 64), (192, 8, 16)]);
}

#[test]
fn who_has_less_priority_gives_way_and_is_first_again_among_its_own() {
    let pool = pool(8, 4);
    let mut plan = planner(&[16]);
    for (id, priority, tokens) in [(1, 0, 64), (2, 0, 64), (3, 0, 16), (4, 7, 48)] {
        plan.queue(SequenceId(id), Ask { priority: Priority(priority), ..ask(tokens) });
    }
    let four = SequenceId(4);
    let order = admit_all(&mut plan, &pool);
    assert_eq!(order, [4, 1, 3], "2 is passed by 3, which fits");
    plan.remove(four);
    plan.remove(SequenceId(3));
    assert_eq!(admit_all(&mut plan, &pool), [2]);
    plan.queue(SequenceId(5), Ask { priority: Priority(7), ..ask(48) });
    let five = SequenceId(5);
    assert_eq!(plan.victim(five), Some(SequenceId(2)), "the younger one");
    plan.yield_at(SequenceId(2), 8);
    assert_eq!(plan.victim(five), None, "one is enough");
    let step = plan.next_step(|sequence| sequence.0 == 2).unwrap();
    assert_eq!((step.end(), plan.is_to_give_way(SequenceId(2))), (8, false));
    plan.complete(&step);
    assert!(plan.is_to_give_way(SequenceId(2)));
    plan.give_way(SequenceId(2));
    assert_eq!(admit_all(&mut plan, &pool), [5]);
    plan.queue(SequenceId(6), ask(64));
    plan.remove(five);
    assert_eq!(admit_all(&mut plan, &pool), [2]);
}

#[test]
fn sequences_take_turns_and_a_slow_consumer_is_passed_over() {
    let pool = pool(100, 4);
    let mut plan = planner(&[16, 64]);
    for (id, tokens) in [(1, 130), (2, 65), (3, 10)] {
        plan.queue(SequenceId(id), ask(tokens));
    }
    assert_eq!(admit_all(&mut plan, &pool), [1, 2, 3]);
    assert_eq!(plan.queued_tokens(), 205);
    // (who may not run, whose chunk, start, valid, length)
    for (slow, id, start, valid, length) in [
        (0, 1, 0, 64, 64),
        (2, 3, 0, 10, 16),
        (0, 2, 0, 64, 64),
        (0, 1, 64, 64, 64),
        (0, 2, 64, 1, 16),
        (0, 1, 128, 2, 16),
    ] {
        let step = plan.next_step(|sequence| sequence.0 != slow).unwrap();
        let got = (step.sequence.0, step.start, step.valid, step.length);
        assert_eq!(got, (id, start, valid, length));
        plan.complete(&step);
        if step.is_last() {
            plan.remove(step.sequence);
        }
    }
    assert_eq!((plan.next_step(|_| true), pool.held_pages(), pool.held_slots()), (None, 0, 0));
}

#[test]
fn a_chunk_that_did_not_run_is_planned_again() {
    let pool = pool(100, 4);
    let mut plan = planner(&[16]);
    plan.queue(SequenceId(1), ask(20));
    admit_all(&mut plan, &pool);
    assert_eq!(plan.next_step(|_| true), plan.next_step(|_| true));
}

#[test]
fn admission_goes_by_priority_then_deadline_then_age() {
    let now = Instant::now();
    let soon = Some(now + Duration::from_secs(1));
    let late = Some(now + Duration::from_secs(9));
    let mut plan = planner(&[16]);
    for (id, priority, deadline) in [(1, 0, None), (2, 0, late), (3, 0, soon), (4, 5, None), (5, 0, None)] {
        plan.queue(SequenceId(id), Ask { priority: Priority(priority), deadline, ..ask(1) });
    }
    assert_eq!(admit_all(&mut plan, &pool(10, 10)), [4, 3, 2, 1, 5]);
}

#[test]
fn who_waits_for_room_is_overtaken_while_it_is_young() {
    let pool = pool(4, 4);
    let mut plan = planner(&[16]);
    for (id, tokens) in [(1, 48), (2, 32), (3, 1), (4, 1)] {
        plan.queue(SequenceId(id), ask(tokens));
    }
    assert_eq!(admit_all(&mut plan, &pool), [1, 3]);
    plan.remove(SequenceId(3));
    let later = Instant::now() + PATIENCE;
    let Some(Err((first, no_room))) = admit(&mut plan, &pool, later) else { panic!("2 should wait") };
    let PoolError::NoRoom(no_room) = no_room else { panic!("{no_room}") };
    assert_eq!((first.0, no_room.need_pages, no_room.free_pages), (2, 2, 1));
    plan.remove(SequenceId(1));
    assert_eq!(admit_all(&mut plan, &pool), [2, 4]);
}

#[test]
fn deadlines_pass_for_waiting_and_running_alike() {
    let now = Instant::now();
    let at = |seconds| Some(now + Duration::from_secs(seconds));
    let pool = pool(1, 1);
    let mut plan = planner(&[16]);
    for (id, deadline) in [(1, at(1)), (2, at(2)), (3, None), (4, at(4))] {
        plan.queue(SequenceId(id), Ask { deadline, ..ask(1) });
    }
    assert_eq!(admit_all(&mut plan, &pool), [1]);
    let expired = |plan: &Prefill<Lease>, seconds| -> Vec<u64> {
        plan.expired(now + Duration::from_secs(seconds)).map(|id| id.0).collect()
    };
    assert_eq!(expired(&plan, 0), [0; 0]);
    assert_eq!(expired(&plan, 2), [2, 1]);
    assert_eq!(plan.next_deadline(), at(1));
    plan.remove(SequenceId(1));
    plan.remove(SequenceId(2));
    assert_eq!(plan.next_deadline(), at(4));
    assert_eq!(pool.held_slots(), 0);
}
