//! Programs in bf16 are as near to f32 as the judges' own bf16 runs are, and packed weights as near as they can be.

use checkpoint::Wanted;
use model::weights::Float;

use super::machine::{Machine, Setup};
use super::{fixture, ladder, lengths, sequences};

/// How much further from the judge's f32 logits than the judge's own bf16 run.
const SLACK: f64 = 1.5;

fn stays_as_near_as_the_judge(name: &str) {
    let (dir, expected) = fixture(name);
    let mut ladder = ladder(&lengths(&expected), 1, &[64], 16, 0);
    ladder.latents = Float::Bf16;
    let wanted = Wanted { float: Float::Bf16, drafts: false, ..Wanted::default() };
    let mut machine = Machine::new(&dir, &ladder, Setup { wanted, ..Setup::default() });
    let (mut ours, mut judges) = (0.0, 0.0);
    for (sequence, prompt) in sequences(&lengths(&expected), &ladder).iter_mut().zip(&expected.prompts) {
        let logits = machine.prefill(sequence, &prompt.ids).logits;
        let off = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs();
        ours += logits.iter().zip(&prompt.logits).map(off).fold(0.0, f64::max);
        judges += prompt.bf16_error.unwrap();
    }
    assert!(ours < SLACK * judges, "{name}: {ours:.3} over all prompts, the judge is off by {judges:.3}");
}

#[test]
fn kimi_linear_in_bf16() {
    stays_as_near_as_the_judge("folded");
}

#[test]
fn k3_in_bf16() {
    stays_as_near_as_the_judge("k3-1");
}

#[test]
fn glm_in_bf16() {
    stays_as_near_as_the_judge("glm-1");
}
