//! Drafting changes nothing but the number of steps, however many drafts are right.

use checkpoint::Wanted;
use programs::sampling::{Asked, SampleRow};

use super::machine::Machine;
use super::{fixture, ladder, sequences};

/// Enough to cross 50 pools of four tokens and five pages of 32.
const DRAWN: usize = 224;
const PROMPTS: [usize; 6] = [1, 2, 3, 4, 5, 512];

fn sampled() -> SampleRow {
    let asked = Asked { temperature: Some(0.8), seed: Some(11), ..Asked::default() };
    SampleRow::pack(&asked.checked(64, 0).unwrap())
}

/// Tokens of the fixture's longest prompt, over and over.
fn prompts(name: &str) -> Vec<Vec<i32>> {
    let (_, expected) = fixture(name);
    let longest = &expected.prompts.last().unwrap().ids;
    PROMPTS
        .iter()
        .map(|&length| longest.iter().cycle().skip(length).take(length).copied().collect())
        .collect()
}

/// What is drawn after each prompt, and how many drafts were accepted. Forced drafts are right as often as `right` says for
/// a step and a sequence.
fn run(
    name: &str,
    drafts: u32,
    sampling: &SampleRow,
    forced: Option<(&[Vec<i32>], &dyn Fn(usize, usize) -> usize)>,
) -> (Vec<Vec<i32>>, usize) {
    let (dir, _) = fixture(name);
    let ladder = ladder(&PROMPTS, DRAWN, &[128], 32, drafts);
    let mut machine =
        Machine::new(&dir, &ladder, &Wanted { drafts: drafts > 0, ..Wanted::default() }, forced.is_some());
    machine.sampling = *sampling;
    let mut all = sequences(&PROMPTS, &ladder);
    for (sequence, prompt) in all.iter_mut().zip(prompts(name)) {
        let token = machine.prefill(sequence, &prompt).token;
        sequence.tokens.push(token);
    }
    let mut step = 0;
    while all.iter().any(|sequence| sequence.tokens.len() < DRAWN) {
        let drafted: Vec<Vec<i32>> = match forced {
            None => Vec::new(),
            Some((known, right)) => all
                .iter()
                .enumerate()
                .map(|(at, sequence)| {
                    let drawn = sequence.tokens.len();
                    let draft = |next: usize| {
                        let token = known[at].get(drawn + next).copied().unwrap_or(5);
                        if next < right(step, at) { token } else { (token + 1) % 50 }
                    };
                    (0..drafts as usize).map(draft).collect()
                })
                .collect(),
        };
        let before: Vec<usize> = all.iter().map(|sequence| sequence.tokens.len()).collect();
        machine.decode(&mut all, &drafted);
        if let Some((known, right)) = forced {
            for (at, sequence) in all.iter().enumerate() {
                let inside = before[at] + drafts as usize + 1 <= known[at].len();
                let counted = sequence.tokens.len() - before[at];
                assert!(!inside || counted == right(step, at) + 1, "{name}: step {step}: {counted} count");
            }
        }
        step += 1;
        // Who is done waits for the others within its room.
        all.iter_mut().for_each(|sequence| sequence.rewind(DRAWN));
    }
    let accepted = all.iter().map(|sequence| sequence.accepted_drafts).sum();
    (all.into_iter().map(|sequence| sequence.tokens).collect(), accepted)
}

fn drafts_change_nothing(name: &str, drafts: u32) {
    for (how, sampling) in [("greedy", SampleRow::padding()), ("sampled", sampled())] {
        let (plain, _) = run(name, 0, &sampling, None);
        let (own, _) = run(name, drafts, &sampling, None);
        assert_eq!(own, plain, "{name}, {how}: with its own drafts");
        let pattern = |step: usize, at: usize| (step + at) % (drafts as usize + 1);
        let (forced, accepted) = run(name, drafts, &sampling, Some((&plain, &pattern)));
        assert_eq!(forced, plain, "{name}, {how}: with every number of right drafts");
        assert!(accepted > 0);
    }
}

#[test]
fn k3_draws_the_same_with_and_without_drafts() {
    drafts_change_nothing("k3-1", 5);
}

#[test]
fn glm_draws_the_same_with_and_without_drafts() {
    drafts_change_nothing("glm-1", 3);
}
