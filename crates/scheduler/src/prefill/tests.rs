use std::time::Duration;

use statepool::PoolShape;

use super::*;

fn pool(pages: u32, slots: u32) -> Pool {
    Pool::new(PoolShape { pages, slots, page_tokens: 16 })
}

fn planner(lengths: &[u32]) -> Prefill {
    Prefill::new(Grid::new(lengths.to_vec()))
}

fn ask(tokens: u32) -> Ask {
    Ask { tokens, priority: Priority(0), deadline: None }
}

fn admit_all(plan: &mut Prefill, pool: &Pool) -> Vec<u64> {
    std::iter::from_fn(|| plan.admit(pool).and_then(Result::ok)).map(|id| id.0).collect()
}

#[test]
fn chunks_lie_on_the_absolute_grid() {
    let grid = Grid::new(vec![64, 16, 0]);
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
        assert_eq!(grid.chunk(start, total), Some(expected), "start {start} of {total}");
    }
    assert_eq!(Grid::new(vec![0]).chunk(0, 1), None);
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
        plan.queue(SequenceId(id), Ask { tokens: 1, priority: Priority(priority), deadline });
    }
    assert_eq!(admit_all(&mut plan, &pool(10, 10)), [4, 3, 2, 1, 5]);
}

#[test]
fn who_waits_for_room_is_not_overtaken() {
    let pool = pool(4, 4);
    let mut plan = planner(&[16]);
    for (id, tokens) in [(1, 48), (2, 32), (3, 1)] {
        plan.queue(SequenceId(id), ask(tokens));
    }
    assert_eq!(admit_all(&mut plan, &pool), [1]);
    let Some(Err((first, no_room))) = plan.admit(&pool) else { panic!("2 should wait") };
    assert_eq!((first.0, no_room.need_pages, no_room.free_pages), (2, 2, 1));
    plan.remove(SequenceId(1));
    assert_eq!(admit_all(&mut plan, &pool), [2, 3]);
}

#[test]
fn deadlines_pass_for_waiting_and_running_alike() {
    let now = Instant::now();
    let at = |seconds| Some(now + Duration::from_secs(seconds));
    let pool = pool(1, 1);
    let mut plan = planner(&[16]);
    for (id, deadline) in [(1, at(1)), (2, at(2)), (3, None), (4, at(4))] {
        plan.queue(SequenceId(id), Ask { tokens: 1, priority: Priority(0), deadline });
    }
    assert_eq!(admit_all(&mut plan, &pool), [1]);
    let expired = |plan: &Prefill, seconds| -> Vec<u64> {
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
