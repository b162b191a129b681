use super::*;

enum Act {
    Join(u64),
    Leave(u64),
    /// Expected rows and batch size.
    Step(&'static [u64], u32),
    Idle,
}
use Act::{Idle, Join, Leave, Step};

fn play(buckets: &[u32], acts: &[Act]) {
    let mut plan = Decode::new(buckets.to_vec());
    for (at, act) in acts.iter().enumerate() {
        match act {
            Join(id) => plan.join(SequenceId(*id)),
            Leave(id) => plan.leave(SequenceId(*id)),
            Idle => assert!(plan.next_step().is_none(), "act {at}"),
            Step(rows, bucket) => {
                let (got, size) = plan.next_step().unwrap();
                let got: Vec<u64> = got.iter().map(|id| id.0).collect();
                assert_eq!((got.as_slice(), size), (*rows, *bucket), "act {at}");
            }
        }
    }
}

#[test]
fn the_smallest_batch_that_fits() {
    play(
        &[8, 2, 4],
        &[
            Idle,
            Join(1),
            Step(&[1], 2),
            Join(2),
            Join(2),
            Step(&[1, 2], 2),
            Join(3),
            Step(&[1, 2, 3], 4),
            Leave(1),
            Leave(9),
            Step(&[2, 3], 2),
            Leave(2),
            Leave(3),
            Idle,
        ],
    );
}

#[test]
fn everyone_gets_a_turn_when_there_are_too_many() {
    let join = [Join(1), Join(2), Join(3), Join(4), Join(5)];
    let steps = [Step(&[1, 2], 2), Step(&[3, 4], 2), Step(&[5, 1], 2), Step(&[2, 3], 2), Step(&[4, 5], 2)];
    let acts: Vec<Act> = join.into_iter().chain(steps).collect();
    play(&[2], &acts);
}

#[test]
fn leaving_does_not_cost_another_its_turn() {
    play(
        &[2],
        &[
            Join(1),
            Join(2),
            Join(3),
            Join(4),
            Join(5),
            Step(&[1, 2], 2),
            Leave(1),
            Step(&[3, 4], 2),
            Leave(5),
            Step(&[2, 3], 2),
            Leave(2),
            Leave(3),
            Step(&[4], 2),
        ],
    );
}

#[test]
fn no_batch_size_no_step() {
    play(&[], &[Join(1), Idle]);
}
