use std::collections::HashSet;

use super::*;

#[test]
fn a_seed_is_a_plan_and_every_fault_is_undone() {
    let fleet = Fleet { prefill: 2, decode: 2 };
    assert_eq!(Plan::new(7, fleet, 12), Plan::new(7, fleet, 12));
    let mut kinds = HashSet::new();
    for seed in 0..200 {
        let plan = Plan::new(seed, fleet, 12);
        let (mut down, mut noisy) = (HashSet::new(), 0);
        for Timed { fault, .. } in &plan.faults {
            kinds.insert(std::mem::discriminant(fault));
            match fault {
                Fault::Crash(host) => assert!(down.insert(host.clone()), "{seed}: {host} is down already"),
                Fault::Start(host) => assert!(down.remove(host), "{seed}: {host} is up"),
                Fault::Noise(rate) => noisy = *rate,
                _ => {}
            }
        }
        assert!(down.is_empty() && noisy == 0, "{seed}: {down:?} {noisy}");
    }
    assert_eq!(kinds.len(), 9, "every kind of fault happens");
}
