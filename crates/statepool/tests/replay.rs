//! The public traces through the real pool: nearly all that an index of attention pages alone would claim can be used.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use replay::{Capacity, replay};
use statepool::{Keep, Marks};
use trace::Trace;

#[path = "../benches/replay/run.rs"]
mod replay;
#[allow(dead_code, reason = "the bench packs")]
#[path = "../benches/replay/trace.rs"]
mod trace;

#[test]
fn of_what_attention_alone_would_claim_98_percent_are_usable() {
    for (file, prompts, least) in [("conversation.bin", 12_031, 0.98), ("synthetic.bin", 3_993, 0.99)] {
        let trace = Trace::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(file));
        assert_eq!(trace.prompts.len(), prompts);
        let outcome = replay(&trace, Marks::default(), Keep::Worth, Capacity::whole(&trace));
        assert!(outcome.ratio() >= least, "{file}: {outcome:?}");
        assert!(outcome.checkpoints_per_1000_computed() <= 0.3, "{file}: {outcome:?}");
        assert_eq!(outcome.phantom, 0, "{file}");
    }
}
