mod machine;
mod reference;

use model::ModelConfig;
use stablehlo::{DType, Module};

use super::{Asked, choose};
use crate::layers::mla::Pages;
use crate::{ShapeLadder, on_cpu};
use machine::{Does, Machine, config, ladder, layer_weights, numbers};
use reference::Sequence;

fn assert_close(got: &[f32], wanted: &[f64], what: &str) {
    let off: f64 = got.iter().zip(wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let scale: f64 = wanted.iter().map(|x| x * x).sum();
    assert!((off / scale).sqrt() < 2e-5, "{what} differs by {:.1e}", (off / scale).sqrt());
}

/// Scattered pages of the sequence numbered `which`, as many as it has tokens for; the trash page fills the table up.
fn table(ladder: &ShapeLadder, which: u32, tokens: usize) -> Vec<i32> {
    let used = tokens.div_ceil(ladder.page_tokens as usize) as u32;
    let page =
        |at: u32| (if at < used { (at * 3 + which) % ladder.pages } else { ladder.trash_page() }) as i32;
    (0..ladder.pages_per_sequence()).map(page).collect()
}

/// A sequence on its way: rows that are real, and where they are kept.
struct Run {
    rows: Vec<f32>,
    table: Vec<i32>,
    slot: i32,
    done: usize,
}

/// What is done to a sequence, in tokens.
#[derive(Clone, Copy)]
struct Plan<'a> {
    pool: usize,
    chosen: usize,
    ladder: &'a ShapeLadder,
    chunk: usize,
    /// Real tokens of the chunks of a prompt.
    prompt: &'a [usize],
    /// Which of them are only cached.
    cached: &'a [usize],
    /// Tokens of each window that count, for each of two sequences.
    steps: &'a [[usize; 2]],
    /// Only rows from here on are compared, and the first few.
    from: usize,
}

/// Two sequences on their way, and what they should become.
struct Course<'a> {
    plan: Plan<'a>,
    config: &'a ModelConfig,
    machine: Machine<'a>,
    runs: [Run; 2],
    wanted: [Sequence<'a>; 2],
}

/// Two sequences through chunks, then windows whose rejected rows are done again, against the definition.
fn follow(plan: Plan<'_>) {
    let config = config(plan.pool, plan.chosen);
    let weights = layer_weights(&config);
    let runs = [0, 1].map(|which: usize| {
        // The second sequence's prompt is one token longer.
        let counted = plan.steps.iter().map(|step| step[which]).sum::<usize>();
        let total = plan.prompt.iter().sum::<usize>() + which + counted;
        Run {
            rows: numbers(total * config.hidden, which as u64 + 3),
            table: table(plan.ladder, which as u32, total + plan.ladder.window() as usize),
            slot: 2 - which as i32,
            done: 0,
        }
    });
    let wanted = [0, 1].map(|which: usize| Sequence::new(&config, &weights, &runs[which].rows));
    let machine = Machine::new(&config, plan.ladder, &weights);
    let mut course = Course { plan, config: &config, machine, runs, wanted };
    for (turn, &tokens) in plan.prompt.iter().enumerate() {
        for which in 0..2 {
            course.chunk(which, turn, tokens + if turn + 1 == plan.prompt.len() { which } else { 0 });
        }
    }
    for (turn, counted) in plan.steps.iter().enumerate() {
        course.window(turn, counted);
    }
}

impl Course<'_> {
    fn compare(&self, which: usize, position: usize, got: &[f32], what: &str) {
        if position < 5 || position >= self.plan.from {
            let wanted = self.wanted[which].output(position);
            assert_close(got, &wanted, &format!("{what} of {which} at {position}"));
        }
    }

    fn chunk(&mut self, which: usize, turn: usize, valid: usize) {
        let (plan, hidden) = (self.plan, self.config.hidden);
        let run = &self.runs[which];
        let done = run.done;
        let mut rows = run.rows[done * hidden..(done + valid) * hidden].to_vec();
        rows.resize(plan.chunk * hidden, 0.25);
        let does = if plan.cached.contains(&turn) { Does::Cache } else { Does::Attend };
        let scalars = [valid as i32, done as i32, run.slot];
        let (out, keys) = self.machine.chunk(does, &rows, scalars, &run.table);
        assert!(out.iter().all(|x| x.is_finite()));
        for at in (0..valid).filter(|_| does == Does::Attend) {
            self.compare(which, done + at, &out[at * hidden..][..hidden], "a chunk's row");
        }
        let dim = self.config.mla.indexer.unwrap().dim;
        let (first, end) = (done / plan.pool, (done + valid) / plan.pool);
        for (at, got) in keys[keys.len() / 2..].chunks_exact(dim).enumerate() {
            match first + at < end {
                true => assert_close(got, &self.wanted[which].pooled[first + at], "a key handed out"),
                false => assert_eq!(got, vec![0.0; dim]),
            }
        }
        self.runs[which].done += valid;
    }

    /// A window of each sequence and of a row of padding, of which only the first `counted` rows are real.
    fn window(&mut self, turn: usize, counted: &[usize; 2]) {
        let (ladder, hidden) = (self.plan.ladder, self.config.hidden);
        let window = ladder.window() as usize;
        let mut rows = numbers(3 * window * hidden, turn as u64 + 900);
        for (which, run) in self.runs.iter().enumerate() {
            let real = &run.rows[run.done * hidden..(run.done + counted[which]) * hidden];
            rows[which * window * hidden..][..real.len()].copy_from_slice(real);
        }
        let [one, other] = &self.runs;
        let none = vec![ladder.trash_page() as i32; one.table.len()];
        let tables = [&one.table[..], &other.table, &none].concat();
        let positions = [one.done as i32, other.done as i32, 0];
        let slots = [one.slot, other.slot, ladder.trash_slot() as i32];
        let kept = [counted[0] as i32, counted[1] as i32, 0];
        // Every third window is cached alone, and of it only what counts.
        let does = if turn % 3 == 2 { Does::Cache } else { Does::Attend };
        let out = self.machine.window(does, &rows, [&positions, &slots, &kept], &tables);
        for which in 0..2 {
            let done = self.runs[which].done;
            for at in (0..counted[which]).filter(|_| does == Does::Attend) {
                self.compare(
                    which,
                    done + at,
                    &out[(which * window + at) * hidden..][..hidden],
                    "a window's row",
                );
            }
            self.runs[which].done += counted[which];
        }
    }
}

const STEPS: [[usize; 2]; 9] = [[1, 4], [4, 1], [2, 3], [1, 1], [3, 2], [4, 4], [1, 2], [2, 1], [4, 3]];

#[test]
fn chunks_of_any_length_and_windows_done_again_choose_as_defined() {
    follow(Plan {
        pool: 4,
        chosen: 3,
        ladder: &ladder(96, 8, 3),
        chunk: 13,
        prompt: &[12, 1, 3, 6, 12, 2, 11],
        cached: &[1, 4],
        steps: &STEPS,
        from: 0,
    });
}

#[test]
fn windows_longer_than_a_pool_close_several() {
    follow(Plan {
        pool: 2,
        chosen: 4,
        ladder: &ladder(80, 6, 5),
        chunk: 9,
        prompt: &[1, 8, 7, 5],
        cached: &[],
        steps: &[[6, 1], [1, 6], [5, 2], [3, 3], [6, 6], [2, 5], [1, 1]],
        from: 0,
    });
}

#[test]
fn one_token_after_another() {
    follow(Plan {
        pool: 4,
        chosen: 2,
        ladder: &ladder(48, 4, 0),
        chunk: 7,
        prompt: &[6, 5],
        cached: &[0],
        steps: &[[1, 1]; 17],
        from: 0,
    });
}

#[test]
fn pools_of_several_blocks_are_scored_and_read() {
    follow(Plan {
        pool: 4,
        chosen: 40,
        ladder: &ladder(2048, 64, 3),
        chunk: 1152,
        prompt: &[1101],
        cached: &[],
        steps: &STEPS[..4],
        from: 1090,
    });
}

#[test]
fn equal_scores_go_to_the_lowest_pool() {
    // One head of one channel: the keys are the scores. The second row turns them round, so that all keys below 0 score
    // -0 and tie with the one of 0; the third sees fewer.
    let keys: [f32; 12] = [1.0, 3.0, -2.0, 3.0, 2.0, 3.0, 0.0, -1.0, 3.0, 1.0, f32::NAN, f32::NAN];
    let module = Module::new("ties");
    let f = module.main();
    let array = f.input("keys", DType::F32.tensor([1, 3, 4, 1]));
    let table = f.input("table", DType::S32.tensor([1, 3]));
    let pages = Pages { array, layer: f.scalar(0i32), table, trash: 2 };
    let asked =
        Asked { queries: f.splat(1f32, &[1, 3, 1, 1]), weights: f.constant(&[1f32, -1.0, 1.0], &[1, 3, 1]) };
    let mut shape = config(4, 3).mla.indexer.unwrap();
    (shape.heads, shape.dim, shape.chosen) = (1, 1, 3);
    let chosen = choose(&f, &pages, &asked, f.constant(&[40, 43, 18], &[1, 3]), &shape);
    f.ret(&[("pools", chosen.pools)]);
    let text = module.finish().unwrap().text;
    let (keys, table) = (on_cpu::array(&keys, &[1, 3, 4, 1]), on_cpu::array(&[0, 1, 2], &[1, 3]));
    let pools: Vec<i32> = on_cpu::run(&text, &[&keys, &table])[0].to_vec().unwrap();
    assert_eq!(pools, [1, 3, 5, 2, 6, 7, 1, 3, 0]);
}
