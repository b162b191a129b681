use proptest::prelude::*;

use crate::fuzz;

proptest! {
    #[test]
    fn any_bytes_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        fuzz::frames(&bytes);
        fuzz::tagged_bodies(&bytes);
        fuzz::sampling(&bytes);
    }

    /// Bodies that begin like real ones get past the first byte.
    #[test]
    fn bodies_of_every_kind_read_without_panic(
        bodies in proptest::collection::vec((0u8..12, proptest::collection::vec(0u8..7, 0..140)), 1..8),
    ) {
        let mut bytes = Vec::new();
        for (kind, fields) in bodies {
            bytes.push(fields.len() as u8 + 1);
            bytes.push(kind);
            bytes.extend(fields);
        }
        fuzz::tagged_bodies(&bytes);
    }
}

#[test]
fn a_heartbeat_with_a_true_tag_reads() {
    // so that the targets above are known to reach the parser
    assert_eq!(fuzz::tagged_bodies(&[1, 8, 1, 8, 1, 8]), 3);
    assert_eq!(fuzz::tagged_bodies(&[1, 8, 2, 8, 8, 1, 8]), 1);
}
