//! One end-to-end trial a line: `ENGINE BYTES CUT COUNT` on standard input (`ours|host|raw`, bytes a transfer, `whole|pages`,
//! transfers), one JSON line back. `scripts/bench_kvxfer.py` asks, and asks the peers the same.
//!
//! Sender and receiver are threads of this process with a runtime and a core each. A transfer counts when the other end holds it and
//! has said so. Sources and targets rotate through more memory than the cache holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod digest;
mod ours;
mod raw;
mod trial;

use std::io::BufRead;

use trial::{Arena, Cut, Plan, stay_on};

fn main() {
    stay_on(0);
    let arena = Arena::new();
    let mut raw = raw::Raw::new();
    let (mut ours, mut host) = (ours::Ours::new(false), ours::Ours::new(true));
    ours.warm_up(&arena);
    host.warm_up(&arena);
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [engine, bytes, cut, count] = words[..] else {
            panic!("expected ENGINE BYTES CUT COUNT: {line}")
        };
        let cut = match cut {
            "whole" => Cut::Whole,
            "pages" => Cut::Pages,
            other => panic!("no such cut: {other}"),
        };
        let plan = Plan { bytes: bytes.parse().unwrap(), cut, count: count.parse().unwrap() };
        match engine {
            "ours" => println!("{}", ours.run(&arena, plan).json()),
            "host" => println!("{}", host.run(&arena, plan).json()),
            "raw" => println!("{}", raw.run(&arena, plan).json()),
            "digest" => println!("{{\"cpu_per_gb\":{:.4}}}", digest::seconds_per_gb()),
            other => panic!("no such engine: {other}"),
        }
    }
}
