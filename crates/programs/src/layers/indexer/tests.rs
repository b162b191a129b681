mod machine;
mod reference;

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

/// Two sequences through chunks, then windows whose rejected rows are done again, against the definition.
fn follow(plan: Plan<'_>) {
    let (config, ladder) = (config(plan.pool, plan.chosen), plan.ladder);
    let (weights, hidden) = (layer_weights(&config), config.hidden);
    let mut machine = Machine::new(&config, ladder, &weights);
    let total = |which: usize| {
        plan.prompt.iter().sum::<usize>() + which + plan.steps.iter().map(|step| step[which]).sum::<usize>()
    };
    let room = |which: usize| total(which) + ladder.window() as usize;
    let mut runs = [0, 1].map(|which| Run {
        rows: numbers(total(which) * hidden, which as u64 + 3),
        table: table(ladder, which as u32, room(which)),
        slot: 2 - which as i32,
        done: 0,
    });
    let wanted = [0, 1].map(|which| Sequence::new(&config, &weights, &runs[which].rows));
    let compare = |which: usize, position: usize, got: &[f32], what: &str| {
        if position < 5 || position >= plan.from {
            assert_close(got, &wanted[which].output(position), &format!("{what} of {which} at {position}"));
        }
    };
    for (turn, &tokens) in plan.prompt.iter().enumerate() {
        for (which, run) in runs.iter_mut().enumerate() {
            // The second sequence's last chunk is one token longer.
            let valid = tokens + if turn + 1 == plan.prompt.len() { which } else { 0 };
            let mut rows = run.rows[run.done * hidden..(run.done + valid) * hidden].to_vec();
            rows.resize(plan.chunk * hidden, 0.25);
            let does = if plan.cached.contains(&turn) { Does::Cache } else { Does::Attend };
            let scalars = [valid as i32, run.done as i32, run.slot];
            let (out, keys) = machine.chunk(does, &rows, scalars, &run.table);
            if does == Does::Attend {
                for (at, got) in out.chunks_exact(hidden).enumerate() {
                    assert!(got.iter().all(|x| x.is_finite()));
                    if at < valid {
                        compare(which, run.done + at, got, "a chunk's row");
                    }
                }
            }
            let dim = config.mla.indexer.unwrap().dim;
            let (first, end) = (run.done / plan.pool, (run.done + valid) / plan.pool);
            for (at, got) in keys[keys.len() / 2..].chunks_exact(dim).enumerate() {
                match first + at < end {
                    true => assert_close(got, &wanted[which].pooled[first + at], "a key handed out"),
                    false => assert_eq!(got, vec![0.0; dim]),
                }
            }
            run.done += valid;
        }
    }
    let (trash, window) = (ladder.trash_slot() as i32, ladder.window() as usize);
    for (turn, counted) in plan.steps.iter().enumerate() {
        let mut rows = numbers(3 * window * hidden, turn as u64 + 900);
        for (which, run) in runs.iter().enumerate() {
            let real = &run.rows[run.done * hidden..(run.done + counted[which]) * hidden];
            rows[which * window * hidden..][..real.len()].copy_from_slice(real);
        }
        let positions = [runs[0].done as i32, runs[1].done as i32, 0];
        let none = vec![ladder.trash_page() as i32; runs[0].table.len()];
        let tables = [&runs[0].table[..], &runs[1].table, &none].concat();
        let kept = [counted[0] as i32, counted[1] as i32, 0];
        let slots = [runs[0].slot, runs[1].slot, trash];
        // Every third window is cached alone, and of it only what counts.
        let does = if turn % 3 == 2 { Does::Cache } else { Does::Attend };
        let out = machine.window(does, &rows, [&positions, &slots, &kept], &tables);
        for (which, run) in runs.iter_mut().enumerate() {
            for at in (0..counted[which]).filter(|_| does == Does::Attend) {
                let got = &out[(which * window + at) * hidden..][..hidden];
                compare(which, run.done + at, got, "a window's row");
            }
            run.done += counted[which];
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
