use super::*;

#[test]
fn ranges_merge_in_any_order() {
    // (ranges in the order they come, first missing below 10)
    type Case = (&'static [(u32, u32)], Option<u32>);
    let cases: &[Case] = &[
        (&[], Some(0)),
        (&[(0, 10)], None),
        (&[(1, 10)], Some(0)),
        (&[(5, 10), (0, 5)], None),
        (&[(6, 10), (0, 5)], Some(5)),
        (&[(6, 10), (0, 5), (5, 6)], None),
        (&[(0, 3), (2, 7), (4, 12)], None),
        (&[(8, 10), (4, 6), (0, 2), (3, 9)], Some(2)),
        (&[(8, 10), (4, 6), (0, 2), (1, 9)], None),
        (&[(0, 4), (0, 4), (4, 4)], Some(4)),
    ];
    for (ranges, missing) in cases {
        let mut coverage = Coverage::default();
        for (begin, end) in *ranges {
            coverage.add(*begin, *end);
        }
        assert_eq!(coverage.missing(10), *missing, "{ranges:?}");
        assert_eq!(coverage.missing(0), None);
    }
}
