use std::time::Duration;

use super::Times;

#[test]
fn times_are_told_as_they_were() {
    let mut times = Times::new().unwrap();
    (1..=100).for_each(|millis| times.add(Duration::from_millis(millis)));
    times.add(Duration::from_secs(3600));
    let told = times.quantiles();
    let near = |told: f64, right: f64| (told - right).abs() <= right * 1e-3;
    assert!(near(told.p50, 51.0) && near(told.p90, 91.0) && near(told.max, 3.6e6), "{told:?}");
}
