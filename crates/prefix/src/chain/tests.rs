use proptest::prelude::{prop, proptest};

use super::*;

fn unit(tokens: u32) -> HashUnit {
    HashUnit::new(tokens).unwrap()
}

/// Computed from the definition in the crate's documentation with another implementation of BLAKE3.
#[test]
fn the_hashes_are_those_that_other_processes_compute() {
    let space = Namespace::of(b"tenant", b"fingerprint");
    let chain = Chain::of(&space, unit(4), &[1, 2, 3, 4, 5, 6, 7, 0xffff_ffff, 9]);
    let named: Vec<_> = chain.boundaries().map(|one| (one.hash.to_string(), one.tokens)).collect();
    assert_eq!(
        named,
        [
            ("f576b602cba37cf292135a2e6533f258".to_owned(), Tokens(4)),
            ("b9d64d610575af89681ba1af396d927f".to_owned(), Tokens(8))
        ]
    );
}

#[test]
fn a_token_is_left_to_compute() {
    let space = Namespace::of(b"", b"m");
    for (tokens, usable, units) in [(0, 0, 0), (1, 0, 0), (4, 0, 1), (5, 1, 1), (8, 1, 2), (9, 2, 2)] {
        let chain = Chain::of(&space, unit(4), &vec![7; tokens]);
        assert_eq!((chain.usable(), chain.units()), (Units(usable), Units(units)), "{tokens} tokens");
        assert_eq!(chain.tokens().0 as usize, tokens);
        assert_eq!(chain.hash(Units(units + 1)), None);
        assert_eq!(chain.hash(Units(0)), None);
    }
}

#[test]
fn namespaces_part_and_their_parts_do_not_run_together() {
    let chains: Vec<Chain> = [(&b"a"[..], &b"bc"[..]), (b"ab", b"c"), (b"", b"abc"), (b"abc", b"")]
        .iter()
        .map(|(salt, fingerprint)| Chain::of(&Namespace::of(salt, fingerprint), unit(2), &[1, 2]))
        .collect();
    for (index, chain) in chains.iter().enumerate() {
        assert!(chains[..index].iter().all(|other| other.hash(Units(1)) != chain.hash(Units(1))));
    }
}

proptest! {
    #[test]
    fn equal_hashes_are_equal_beginnings(
        one in prop::collection::vec(0u32..2, 0..24),
        two in prop::collection::vec(0u32..2, 0..24),
        length in 1u32..7,
        cut in 0usize..24,
    ) {
        let space = Namespace::of(b"s", b"f");
        let first = Chain::of(&space, unit(length), &one);
        let second = Chain::of(&space, unit(length), &two);
        for (a, b) in first.boundaries().zip(second.boundaries()) {
            let end = a.tokens.0 as usize;
            assert_eq!(a.hash == b.hash, one[..end] == two[..end]);
        }
        let (head, tail) = one.split_at(cut.min(one.len()));
        let mut grown = Chain::of(&space, unit(length), head);
        grown.extend(tail);
        assert_eq!(grown, first);
    }
}
