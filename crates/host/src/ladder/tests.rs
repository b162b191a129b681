use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Debug, clap::Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
}

fn flags(more: &[&str]) -> Flags {
    let args = ["worker", "--model=m"].iter().chain(more);
    Args::try_parse_from(args).unwrap().flags
}

fn model() -> ModelConfig {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/k3-demo");
    ModelConfig::from_dir(&demo).unwrap()
}

#[test]
fn useless_shapes_are_left_out() {
    let few = ladder(&model(), &flags(&["--slots=3", "--context=100", "--page-tokens=32"]), 0, None, None);
    assert_eq!(few.chunks, [16, 64, 256]);
    assert_eq!(few.batches, [2, 4]);
    assert_eq!((few.context, few.slots, few.pages), (100, 3, 6));
    few.check().unwrap();
    let tiny = ladder(&model(), &flags(&["--slots=1", "--context=16"]), 0, None, None);
    assert_eq!((tiny.chunks, tiny.batches), (vec![16], vec![2]));
}

#[test]
fn flags_win_and_the_context_is_at_most_the_models() {
    let asked = flags(&["--pages=7", "--context=99999999"]);
    let ladder = ladder(&model(), &asked, 3, Some(vec![8]), Some(vec![2]));
    assert_eq!((ladder.pages, ladder.chunks, ladder.batches), (7, vec![8], vec![2]));
    assert_eq!(ladder.context as usize, model().context);
    assert_eq!((ladder.drafts, ladder.latents), (3, programs::weights::Float::F32));
}
