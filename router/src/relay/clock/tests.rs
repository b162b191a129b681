use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;

use super::{Clock, LONG, STALL, Silence};
use crate::admission::Arrival;
use crate::clients::Client;

#[test]
fn silence_is_judged_by_its_length_and_the_commit() {
    let began = Instant::now();
    let deadline = began + Duration::from_secs(100);
    let mut clock =
        Clock::new(&Arrival { at: began, deadline, span: Span::none(), client: Client::Anyone }, began);
    assert_eq!(clock.alarm_after(began), began + LONG);
    assert_eq!(clock.silence(began + LONG - Duration::from_millis(1)), Silence::Short);
    assert_eq!(clock.silence(began + LONG), Silence::Long);
    assert_eq!(clock.silence(began + STALL), Silence::Long, "a prompt may wait that long for its turn");
    assert_eq!(clock.alarm_after(began + LONG), began + LONG * 2, "asked again");
    clock.committed(began);
    assert_eq!(clock.silence(began + STALL), Silence::Stall);
    clock.heard(began + STALL);
    assert_eq!(clock.silence(began + STALL), Silence::Short);
    assert_eq!(clock.alarm_after(deadline), deadline);
}

#[test]
fn what_the_first_token_took_is_told_once_and_a_pause_by_itself() {
    let at = Instant::now();
    let after = |seconds| at + Duration::from_secs(seconds);
    let mut clock = Clock::new(
        &Arrival { at, deadline: after(100), span: Span::none(), client: Client::Anyone },
        after(1),
    );
    // lost before any token: the second start's times count
    clock.interrupted(after(2));
    clock.restarted(after(3));
    assert!(clock.first_token(after(5), 0.5, 1.5));
    clock.committed(after(6));
    assert_eq!(clock.pause(after(5)), Some(Duration::from_secs(3)));
    assert_eq!(clock.pause(after(6)), None);
    clock.interrupted(after(7));
    clock.restarted(after(8));
    assert!(!clock.first_token(after(9), 4.0, 4.0));
    clock.committed(after(20));
    let timing = clock.timing(after(30));
    let told = [timing.queue, timing.prefill, timing.transfer, timing.first_token, timing.total];
    assert_eq!(told, [3.5, 1.5, 1.0, 5.0, 30.0]);
}
