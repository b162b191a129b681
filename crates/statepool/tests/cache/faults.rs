//! One named case for each promise that a random run seldom meets.

use super::*;

const SHAPE: PoolShape = PoolShape { pages: 8, slots: 2, page_tokens: 4 };

fn pool(checkpoints: u64) -> Pool<State> {
    let config = CacheConfig::new(HashUnit::new(2).unwrap(), Bytes(checkpoints * BYTES));
    Pool::with_cache(SHAPE, Some(config), || {})
}

fn chain(salt: u8, tokens: &[u32]) -> Chain {
    Chain::of(&Namespace::of(&[salt], b"model"), HashUnit::new(2).unwrap(), tokens)
}

fn publish(lease: &mut Lease<State>, tokens: u32) -> Result<statepool::Published, PoolError> {
    lease.publish(Finished { tokens: Tokens(tokens) }, State { tokens, of: 0 })
}

#[test]
fn another_namespace_never_hits() {
    let pool = pool(9);
    let tokens = [1, 2, 3, 4, 5];
    let mut first = pool.admit(&chain(0, &tokens), Tokens(5)).unwrap();
    publish(&mut first.lease, 4).unwrap();
    assert!(pool.admit(&chain(1, &tokens), Tokens(5)).unwrap().hit.is_none());
    assert_eq!(pool.admit(&chain(0, &tokens), Tokens(5)).unwrap().hit.unwrap().resume_at, Tokens(4));
}

#[test]
fn units_that_are_mixed_up_end_the_request() {
    let pool = pool(9);
    let other = Chain::of(&Namespace::of(&[0], b"model"), HashUnit::new(3).unwrap(), &[1; 8]);
    let refused = pool.admit(&other, Tokens(8)).unwrap_err();
    assert_eq!(refused.to_string(), "the chain's unit is 3 tokens, the cache's 2 tokens");
    let refused = pool.admit(&chain(0, &[1; 8]), Tokens(7)).unwrap_err();
    assert_eq!(refused, PoolError::ShortLease { lease: Tokens(7), prompt: Tokens(8) });
    let mut admitted = pool.admit(&chain(0, &[1; 8]), Tokens(12)).unwrap();
    for tokens in [0, 3, 10] {
        assert!(
            matches!(publish(&mut admitted.lease, tokens), Err(PoolError::NotABoundary { .. })),
            "{tokens}"
        );
    }
    let mut plain = pool.reserve(8).unwrap();
    assert_eq!(publish(&mut plain, 4), Err(PoolError::NoCache));
    assert_eq!(pool.usage().cached_checkpoints, 0);
}

/// A state whose count is right when it is published and wrong when it is loaded.
#[test]
fn a_checkpoint_that_went_bad_is_found_once() {
    struct Rotten(std::sync::atomic::AtomicU32);
    impl Checkpoint for Rotten {
        fn tokens(&self) -> Tokens {
            Tokens(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        }
        fn bytes(&self) -> Bytes {
            Bytes(BYTES)
        }
    }
    let config = CacheConfig::new(HashUnit::new(2).unwrap(), Bytes(BYTES));
    let pool = Pool::with_cache(SHAPE, Some(config), || {});
    let prompt = chain(0, &[1, 2, 3]);
    let mut first = pool.admit(&prompt, Tokens(3)).unwrap();
    first.lease.publish(Finished { tokens: Tokens(2) }, Rotten(2.into())).unwrap();
    drop(first);
    let mut second = pool.admit(&prompt, Tokens(3)).unwrap().hit.unwrap();
    let refused = second.checkpoint.load().err();
    assert_eq!(refused, Some(PoolError::WrongPosition { state: Tokens(3), boundary: Tokens(2) }));
    drop(second);
    assert!(pool.admit(&prompt, Tokens(3)).unwrap().hit.is_none());
    assert_eq!(pool.usage().free_pages, SHAPE.pages);
}

#[test]
fn a_prompt_as_large_as_the_pool_is_not_kept_out_by_its_own_hit() {
    let pool = pool(9);
    let prompt = chain(0, &[7; 32]);
    let mut first = pool.admit(&prompt, Tokens(32)).unwrap();
    publish(&mut first.lease, 30).unwrap();
    drop(first);
    // Warm, it would need a page for the copy in addition to all there are.
    assert!(pool.admit(&prompt, Tokens(32)).unwrap().hit.is_none());
}

#[test]
fn what_is_loaded_or_copied_is_not_evicted() {
    let pool = pool(1);
    let prompt = chain(0, &[7, 8, 9]);
    let mut first = pool.admit(&prompt, Tokens(3)).unwrap();
    publish(&mut first.lease, 2).unwrap();
    drop(first);
    let second = pool.admit(&prompt, Tokens(3)).unwrap();
    let hit = second.hit.unwrap();
    drop(second.lease);
    let copy = hit.copy.as_ref().unwrap();
    let mut other = pool.admit(&chain(0, &[1; 24]), Tokens(24)).unwrap();
    assert!(!other.lease.pages().contains(&copy.from()) && !other.lease.pages().contains(&copy.to()));
    assert_eq!(publish(&mut other.lease, 24), Ok(statepool::Published::NoBudget));
    assert_eq!(pool.usage().held_checkpoints, 1);
    drop(hit);
    assert_eq!(publish(&mut other.lease, 24), Ok(statepool::Published::Stored));
    assert_eq!(pool.usage().cached_checkpoints, 1, "the other went for its bytes");
}

#[test]
fn the_second_to_leave_at_a_boundary_marks_it_also_when_nothing_there_is_cached() {
    let pool = pool(0);
    let prompt = |own: u32| chain(0, &[&[5; 6][..], &[own; 5]].concat());
    let marks: Vec<_> = (0..2).map(|own| pool.admit(&prompt(own), Tokens(11)).unwrap().marks).collect();
    assert_eq!(marks, [vec![Tokens(10)], vec![Tokens(6), Tokens(10)]]);
}

#[test]
fn events_that_nobody_drains_become_a_snapshot() {
    let pool = pool(1);
    for token in 0..40_000 {
        let mut one = pool.admit(&chain(0, &[token; 3]), Tokens(3)).unwrap();
        publish(&mut one.lease, 2).unwrap();
    }
    assert!(pool.drain_events().is_err());
    let last = chain(0, &[39_999; 3]).boundaries().next().unwrap();
    let stored = Event::Stored { position: last.tokens, hash: last.hash, bytes: Bytes(BYTES) };
    assert_eq!(pool.snapshot(), [stored]);
    assert_eq!(pool.drain_events(), Ok(vec![]));
}
