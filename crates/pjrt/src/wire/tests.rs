use super::{Field, Reader, Writer};

#[test]
fn what_is_written_is_read_back() {
    let inner = Writer::default().varint(4, 300);
    let bytes = Writer::default()
        .varint(1, u64::MAX)
        .double(7, 0.5)
        .message(2, inner)
        .packed(3, [1, 1 << 40])
        .finish();
    let fields: Vec<_> = Reader(&bytes).collect();
    let [
        Some(Field::Varint(1, u64::MAX)),
        Some(Field::Fixed),
        Some(Field::Bytes(2, inner)),
        Some(Field::Bytes(3, list)),
    ] = fields[..]
    else {
        panic!("{} fields", fields.len());
    };
    assert!(matches!(Reader(inner).next(), Some(Some(Field::Varint(4, 300)))));
    let mut list = Reader(list);
    assert_eq!((list.take_varint(), list.take_varint(), list.take_varint()), (Some(1), Some(1 << 40), None));
}

#[test]
fn a_cut_message_ends_in_none_and_never_loops() {
    let whole = Writer::default().bytes(1, &[7; 200]).varint(2, 1 << 50).finish();
    for cut in 1..whole.len() {
        let fields: Vec<_> = Reader(&whole[..cut]).collect();
        let complete = cut == 203;
        assert_eq!(fields.last().is_some_and(Option::is_none), !complete, "cut at {cut}");
    }
}
