use futures::StreamExt;

use super::*;

fn stored(hash: u8, position: u32) -> CacheChange {
    CacheChange::Stored(CachedCheckpoint { hash: vec![hash].into(), position, bytes: 1 })
}

/// What a watcher holds after an update.
fn apply(held: &mut BTreeMap<Bytes, u32>, update: CacheUpdate) {
    if update.whole {
        held.clear();
    }
    held.extend(update.stored.into_iter().map(|checkpoint| (checkpoint.hash, checkpoint.position)));
    for hash in update.removed {
        assert!(held.remove(&hash).is_some() || !update.whole);
    }
}

#[tokio::test]
async fn whoever_watches_knows_what_is_held_however_far_behind() {
    let log = CacheLog::default();
    log.record(stored(1, 512));
    let mut early = Box::pin(log.updates());
    let (mut held, mut late_held) = (BTreeMap::new(), BTreeMap::new());
    let first = early.next().await.unwrap();
    assert!(first.whole);
    apply(&mut held, first);
    let mut late = Box::pin(log.updates());
    apply(&mut late_held, late.next().await.unwrap());

    for change in [stored(2, 1024), CacheChange::Removed(vec![1].into()), stored(3, 512), stored(1, 1536)] {
        log.record(change);
    }
    let update = early.next().await.unwrap();
    assert_eq!((update.whole, update.stored.len(), update.removed.len()), (false, 3, 0));
    apply(&mut held, update);
    let expected: BTreeMap<Bytes, u32> =
        [(1, 1536), (2, 1024), (3, 512)].map(|(hash, position)| (vec![hash].into(), position)).into();
    assert_eq!(held, expected);

    for round in 0..KEPT as u32 {
        log.record(stored(9, round));
    }
    log.record(CacheChange::Removed(vec![2].into()));
    let update = late.next().await.unwrap();
    assert!(update.whole, "too much was forgotten to tell what changed");
    apply(&mut late_held, update);
    apply(&mut held, early.next().await.unwrap());
    assert_eq!(held, late_held);
    assert_eq!(held.len(), 3);
}
