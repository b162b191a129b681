//! How much of public traces' shared prefixes a hybrid model can use, by where checkpoints are left and what is evicted.
//!
//! `cargo bench -p tandem-statepool --bench replay [-- FILE...]` prints the tables of `docs/prefix-cache.md`; without files
//! those in `traces/` are replayed. `-- pack FILE.jsonl OUT` packs one as it was published.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use replay::{Capacity, Outcome, replay};
use statepool::{Keep, Marks};
use trace::Trace;

#[path = "replay/run.rs"]
mod replay;
#[path = "replay/trace.rs"]
mod trace;

const NONE: Marks = Marks { end: false, branches: false, before_end: None, grid: None };
/// Tokens that fit in the pages. Checkpoints fit 0.3 a thousand of them.
const CAPACITIES: [u32; 3] = [1 << 20, 4 << 20, 16 << 20];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["pack", file, out] => std::fs::write(out, trace::packed(Path::new(file))).unwrap(),
        [] => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
            tables(&["conversation.bin", "synthetic.bin"].map(|file| folder.join(file)));
        }
        files => tables(&files.iter().map(PathBuf::from).collect::<Vec<_>>()),
    }
}

fn policies() -> [(&'static str, Marks, Keep); 6] {
    let grid = |units| NonZeroU32::new(units);
    [
        ("end of the prompt", Marks { end: true, ..NONE }, Keep::Worth),
        ("every unit", Marks { grid: grid(1), ..NONE }, Keep::Worth),
        ("grid of 16 units", Marks { grid: grid(16), ..NONE }, Keep::Worth),
        ("end, branches seen twice", Marks { end: true, branches: true, ..NONE }, Keep::Worth),
        ("Tandem's, least recently used goes", Marks::default(), Keep::Recent),
        ("Tandem's", Marks::default(), Keep::Worth),
    ]
}

fn tables(files: &[PathBuf]) {
    for file in files {
        let trace = Trace::read(file);
        let whole = Capacity::whole(&trace);
        let seen: u64 = trace.prompts.iter().map(|prompt| u64::from(prompt.chain.tokens().0)).sum();
        println!(
            "\n{}: {} prompts, {:.1} M tokens\n",
            file.display(),
            trace.prompts.len(),
            seen as f64 / 1e6
        );
        println!(
            "| pages for | policy | claimed | usable | usable / claimed | checkpoints per 1,000 tokens computed | per 1,000 seen | phantom |"
        );
        println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (name, marks, keep) in policies() {
            row("everything", name, &replay(&trace, marks, keep, whole));
        }
        for tokens in CAPACITIES {
            let capacity = Capacity { tokens, checkpoints: u64::from(tokens) * 3 / 10_000 };
            for (name, marks, keep) in policies() {
                row(&format!("{} Mi tokens", tokens >> 20), name, &replay(&trace, marks, keep, capacity));
            }
        }
    }
}

fn row(capacity: &str, policy: &str, outcome: &Outcome) {
    let of_seen = |tokens: u64| 100.0 * tokens as f64 / outcome.seen as f64;
    println!(
        "| {capacity} | {policy} | {:.1} % | {:.1} % | {:.1} % | {:.3} | {:.3} | {} |",
        of_seen(outcome.claimed),
        of_seen(outcome.usable),
        100.0 * outcome.ratio(),
        outcome.checkpoints_per_1000_computed(),
        outcome.checkpoints as f64 * 1000.0 / outcome.seen as f64,
        outcome.phantom,
    );
}
