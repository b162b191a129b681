use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::*;

const SHAPE: PoolShape = PoolShape { pages: 12, slots: 4, page_tokens: 16 };

#[derive(Clone, Debug)]
enum Act {
    Reserve(u32),
    Grow(prop::sample::Index, u32),
    Drop(prop::sample::Index),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0u32..120).prop_map(Act::Reserve),
        (any::<prop::sample::Index>(), 0u32..200).prop_map(|(at, tokens)| Act::Grow(at, tokens)),
        any::<prop::sample::Index>().prop_map(Act::Drop),
    ]
}

/// Everything under the leases is distinct and inside the pool, and together with the free rest makes up the pool.
fn check(pool: &Pool, leases: &[Lease]) {
    let pages: Vec<u32> = leases.iter().flat_map(|lease| lease.pages()).map(|page| page.0).collect();
    let slots: Vec<u32> = leases.iter().map(|lease| lease.slot().0).collect();
    assert!(pages.iter().all(|page| *page < SHAPE.trash_page().0), "trash page leased: {pages:?}");
    assert!(slots.iter().all(|slot| *slot < SHAPE.trash_slot().0), "trash slot leased: {slots:?}");
    assert_eq!(pages.iter().collect::<HashSet<_>>().len(), pages.len(), "page held twice: {pages:?}");
    assert_eq!(slots.iter().collect::<HashSet<_>>().len(), slots.len(), "slot held twice: {slots:?}");
    assert_eq!(pool.held_pages() as usize, pages.len());
    assert_eq!(pool.held_slots() as usize, slots.len());
}

proptest! {
    #[test]
    fn nothing_is_held_twice_and_everything_comes_back(acts in prop::collection::vec(act(), 1..80)) {
        let pool = Pool::new(SHAPE);
        let mut leases: Vec<Lease> = Vec::new();
        for act in acts {
            match act {
                Act::Reserve(tokens) => {
                    let fits = SHAPE.pages_for(tokens) <= pool.free_pages() && pool.free_slots() > 0;
                    let granted = pool.reserve(tokens);
                    assert_eq!(granted.is_ok(), fits);
                    if let Ok(lease) = granted {
                        assert!(lease.capacity() >= tokens);
                        leases.push(lease);
                    }
                }
                Act::Grow(at, tokens) if !leases.is_empty() => {
                    let lease = at.get_mut(&mut leases);
                    let before = lease.pages().to_vec();
                    match lease.grow(tokens) {
                        Ok(()) => assert!(lease.capacity() >= tokens && lease.pages().starts_with(&before)),
                        Err(_) => assert_eq!(lease.pages(), before),
                    }
                }
                Act::Drop(at) if !leases.is_empty() => {
                    leases.swap_remove(at.index(leases.len()));
                }
                Act::Grow(..) | Act::Drop(_) => {}
            }
            check(&pool, &leases);
        }
        leases.clear();
        check(&pool, &leases);
        assert_eq!((pool.free_pages(), pool.free_slots()), (SHAPE.pages, SHAPE.slots));
    }
}

#[test]
fn a_refusal_counts_what_is_missing() {
    let pool = Pool::new(SHAPE);
    let held = pool.reserve(16 * 10).unwrap();
    let refused = pool.reserve(16 * 2 + 1).unwrap_err();
    assert_eq!(
        refused,
        NoRoom { need_pages: 3, need_slots: 1, free_pages: 2, free_slots: 3, pages: 12, slots: 4 }
    );
    assert!(refused.may_pass());
    drop(held);
    assert!(!pool.reserve(16 * 12 + 1).unwrap_err().may_pass());
}

#[test]
fn a_row_ends_in_the_trash_page() {
    let pool = Pool::new(SHAPE);
    let lease = pool.reserve(17).unwrap();
    let mut row = [-1; 4];
    lease.write_row(&mut row);
    assert_eq!(row, [0, 1, 12, 12]);
}

#[test]
fn waiters_are_told_after_the_room_is_free() {
    let seen = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&seen);
    let pool = Pool::with_release_hook(SHAPE, move || {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let lease = pool.reserve(16).unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    assert_eq!(pool.held_pages(), 0);
}
