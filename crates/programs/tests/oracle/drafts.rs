//! Drafting changes nothing but the number of steps, however many drafts are right.

use checkpoint::Wanted;
use programs::ShapeLadder;
use programs::sampling::{Asked, SampleRow};

use super::machine::{Machine, Setup};
use super::{fixture, ladder, sequences};

/// Enough to cross 25 pools of four tokens and six pages of 16.
const DRAWN: usize = 112;
const PROMPTS: [usize; 6] = [1, 2, 3, 4, 5, 272];

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

/// Drafts for a step: of each sequence the tokens that will be drawn, and how many of its drafts are to be right.
struct Forced<'a> {
    known: &'a [Vec<i32>],
    right: &'a dyn Fn(usize, usize) -> usize,
}

impl Forced<'_> {
    fn of(&self, step: usize, at: usize, drawn: usize, drafts: u32) -> Vec<i32> {
        let draft = |next: usize| {
            let token = self.known[at].get(drawn + next).copied().unwrap_or(5);
            if next < (self.right)(step, at) { token } else { (token + 1) % 50 }
        };
        (0..drafts as usize).map(draft).collect()
    }
}

struct Bench {
    name: &'static str,
    ladder: ShapeLadder,
    machine: Machine,
}

impl Bench {
    fn new(name: &'static str, drafts: u32, forced: bool) -> Self {
        let ladder = ladder(&PROMPTS, DRAWN, &[128], 16, drafts);
        let wanted = Wanted { drafts: drafts > 0, ..Wanted::default() };
        let setup = Setup { wanted, forced, ..Setup::default() };
        let machine = Machine::new(&fixture(name).0, &ladder, setup);
        Self { name, ladder, machine }
    }

    /// What is drawn after each prompt, and how many drafts were accepted. What an earlier run left in the state is still
    /// there.
    fn run(&mut self, sampling: &SampleRow, forced: Option<&Forced<'_>>) -> (Vec<Vec<i32>>, usize) {
        self.machine.sampling = *sampling;
        let mut all = sequences(&PROMPTS, &self.ladder);
        for (sequence, prompt) in all.iter_mut().zip(prompts(self.name)) {
            let token = self.machine.prefill(sequence, &prompt).token;
            sequence.tokens.push(token);
        }
        let drafts = self.ladder.drafts;
        let mut step = 0;
        while all.iter().any(|sequence| sequence.tokens.len() < DRAWN) {
            let before: Vec<usize> = all.iter().map(|sequence| sequence.tokens.len()).collect();
            let each = before.iter().enumerate();
            let drafted: Vec<Vec<i32>> = forced.map_or_else(Vec::new, |forced| {
                each.map(|(at, &drawn)| forced.of(step, at, drawn, drafts)).collect()
            });
            self.machine.decode(&mut all, &drafted);
            for (at, sequence) in all.iter().enumerate() {
                let Some(forced) = forced else { break };
                if before[at] + (drafts as usize) < forced.known[at].len() {
                    let counted = sequence.tokens.len() - before[at];
                    assert_eq!(counted, (forced.right)(step, at) + 1, "{}: step {step}", self.name);
                }
            }
            step += 1;
            // Who is done waits for the others within its room.
            all.iter_mut().for_each(|sequence| sequence.rewind(DRAWN));
        }
        let accepted = all.iter().map(|sequence| sequence.accepted_drafts).sum();
        (all.into_iter().map(|sequence| sequence.tokens).collect(), accepted)
    }
}

fn drafts_change_nothing(name: &'static str, drafts: u32) {
    let [mut plain, mut own, mut forced] = [(0, false), (drafts, false), (drafts, true)]
        .map(|(drafts, forced)| Bench::new(name, drafts, forced));
    for (how, sampling) in [("greedy", SampleRow::padding()), ("sampled", sampled())] {
        let (wanted, _) = plain.run(&sampling, None);
        assert_eq!(own.run(&sampling, None).0, wanted, "{name}, {how}: with its own drafts");
        let right = |step: usize, at: usize| (step + at) % (drafts as usize + 1);
        let (got, accepted) = forced.run(&sampling, Some(&Forced { known: &wanted, right: &right }));
        assert_eq!(got, wanted, "{name}, {how}: with every number of right drafts");
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
