use super::*;

#[test]
fn timeouts_read_in_every_unit() {
    assert_eq!(timeout("2H"), Some(Duration::from_secs(7200)));
    assert_eq!(timeout("1500m"), Some(Duration::from_millis(1500)));
    assert_eq!(timeout("99999999u"), Some(Duration::from_micros(99_999_999)));
    for bad in ["", "m", "12", "-1S", "1x", "\u{e9}"] {
        assert_eq!(timeout(bad), None, "{bad:?}");
    }
}
