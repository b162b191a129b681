use proto::v1::CachedCheckpoint;

use super::*;

#[test]
fn a_prompt_is_as_long_cached_as_the_worker_last_said() {
    let unit = HashUnit::new(4).unwrap();
    let chain = |salt: &[u8], tokens: &[u32]| Chain::of(&Namespace::of(salt, b"model"), unit, tokens);
    let prompt: Vec<u32> = (0..13).collect();
    let stored = |chain: &Chain, at: usize| {
        let boundary = chain.boundaries().nth(at).unwrap();
        let hash = boundary.hash.0.to_vec().into();
        CachedCheckpoint { hash, position: boundary.tokens.0, bytes: 1 }
    };
    let own = chain(b"a", &prompt);
    let held = Held::default();
    assert_eq!(held.longest(&own), 0);
    held.apply(CacheUpdate { stored: vec![stored(&own, 0), stored(&own, 2)], ..CacheUpdate::default() });
    assert_eq!(held.longest(&own), 12);
    assert_eq!(held.longest(&chain(b"a", &prompt[..12])), 4, "a token must be left to compute");
    assert_eq!(held.longest(&chain(b"b", &prompt)), 0, "another tenant's");
    let removed = vec![own.boundaries().nth(2).unwrap().hash.0.to_vec().into()];
    held.apply(CacheUpdate { removed, ..CacheUpdate::default() });
    assert_eq!(held.longest(&own), 4);
    let mistaken = CachedCheckpoint { position: 4, ..stored(&own, 1) };
    held.apply(CacheUpdate { whole: true, stored: vec![mistaken], removed: Vec::new() });
    assert_eq!(held.longest(&own), 0, "what is said of another position does not count");
}
