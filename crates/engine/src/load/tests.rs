use super::*;

#[test]
fn a_rate_follows_what_is_recent() {
    let mut rate = Rate::default();
    assert_eq!((rate.tokens_per_second(), rate.step_seconds()), (0.0, 0.0));
    rate.observe(10, Duration::from_secs(2));
    assert_eq!((rate.tokens_per_second(), rate.step_seconds()), (5.0, 2.0));
    for _ in 0..200 {
        rate.observe(100, Duration::from_secs(1));
    }
    assert!((rate.tokens_per_second() - 100.0).abs() < 0.1, "{}", rate.tokens_per_second());
    assert!((rate.step_seconds() - 1.0).abs() < 0.01, "{}", rate.step_seconds());
}
