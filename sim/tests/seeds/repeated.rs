//! A seed is a run.
#![allow(clippy::print_stdout)]

use std::process::Command;

use crate::traced;

const SEED: &str = "TANDEM_SIM_RUN";
const FAULTS: usize = 10;
/// Before each line of a trace, among what a test prints.
const LINE: &str = "trace: ";

/// Faults, how every request ended and when, and every number that every process counted. Each run has a process for itself: when a
/// host crashes, tokio drops its tasks, and so closes their connections, in an order that rests on how many tasks the process
/// has ever had.
#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 4] {
        let (once, again) = (run(seed), run(seed));
        assert!(once.len() > 100, "seed {seed}: {} lines", once.len());
        let differ = once.iter().zip(&again).find(|(once, again)| once != again);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(once.len(), again.len(), "seed {seed}");
    }
}

fn run(seed: u64) -> Vec<String> {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.args(["--exact", "repeated::one_run", "--ignored", "--nocapture"]).env(SEED, seed.to_string());
    let done = command.output().unwrap();
    assert!(done.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8(done.stdout).unwrap();
    said.lines().filter_map(|line| line.strip_prefix(LINE)).map(str::to_owned).collect()
}

#[test]
#[ignore = "the test above starts it, with a seed"]
fn one_run() {
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    println!();
    for line in traced(seed, FAULTS).1 {
        println!("{LINE}{line}");
    }
}
