use model::weights::Float;
use model::{IndexShape, StateShape};
use pjrt::Buffer;

use super::{export_latents, export_slot, import_latents, import_slot, set_sampling};
use crate::{ArgKind, Error, Input, Mesh, Program, ResKind, ShapeLadder, StateArray, on_cpu};

/// The last of the latent layers is a draft layer's.
const STATE: StateShape = StateShape {
    latent_layers: 3,
    latent_width: 3,
    recurrent_layers: 2,
    heads: 2,
    key_dim: 4,
    value_dim: 5,
    tail_rows: 3,
    tail_width: 8,
    index: Some(IndexShape { dim: 2, pool: 4 }),
    hidden: Some(6),
    vocabulary: 7,
};

fn ladder() -> ShapeLadder {
    ShapeLadder {
        chunks: vec![6],
        batches: vec![2],
        context: 22,
        page_tokens: 8,
        pages: 6,
        slots: 3,
        drafts: 2,
        latents: Float::F32,
        lane: 1,
    }
}

fn elements(array: StateArray) -> usize {
    array.ty(&STATE, &ladder()).elements() as usize
}

fn dims(array: StateArray) -> Vec<usize> {
    array.ty(&STATE, &ladder()).dims.iter().map(|&dim| dim as usize).collect()
}

/// A number for each element that no other element has.
fn unique(count: usize, from: usize) -> Vec<f32> {
    (from..from + count).map(|number| number as f32).collect()
}

fn run(program: &Program, states: &[(StateArray, &Buffer)], inputs: &[(Input, Buffer)]) -> Vec<Buffer> {
    let bind = |what: &ArgKind| match what {
        ArgKind::Weight(weight) => panic!("{} is asked for", weight.name),
        ArgKind::State(array) => states.iter().find(|(each, _)| each == array).unwrap().1,
        ArgKind::Input(input) => &inputs.iter().find(|(each, _)| each == input).unwrap().1,
    };
    on_cpu::run(&program.text, &program.args.iter().map(|arg| bind(&arg.what)).collect::<Vec<_>>())
}

fn scalar(value: i32) -> Buffer {
    on_cpu::array(&[value], &[])
}

/// `array` with each of `parts` put at its place.
fn with(mut array: Vec<f32>, parts: &[(usize, &[f32])]) -> Vec<f32> {
    for (place, part) in parts {
        array[*place..place + part.len()].copy_from_slice(part);
    }
    array
}

#[test]
fn latents_and_keys_land_in_their_pages_come_back_and_disturb_nobody() {
    // Tokens 6 to 14, on the first two pages; they complete pools 1 and 2, but not 3.
    let (tokens, start, valid) = (10, 6, 9);
    let pages = [4i32, 1, 6];
    let place = || {
        vec![
            (Input::Start, scalar(start as i32)),
            (Input::Valid, scalar(valid as i32)),
            (Input::PageTable, on_cpu::array(&pages, &[3])),
        ]
    };
    let arrays = [StateArray::Latents, StateArray::IndexKeys];
    let before = arrays.map(|array| unique(elements(array), 1000));
    let held = [0, 1].map(|at| on_cpu::array(&before[at], &dims(arrays[at])));
    let chunk = [unique(3 * tokens * 3, 1), unique(3 * 3 * 2, 500)];
    let program = import_latents(&STATE, &ladder(), tokens as u32, &Mesh::one_device()).unwrap();
    let mut inputs = place();
    inputs.push((Input::ChunkLatents, on_cpu::array(&chunk[0], &[3, tokens, 3])));
    inputs.push((Input::ChunkKeys, on_cpu::array(&chunk[1], &[3, 3, 2])));
    let written = run(&program, &[(arrays[0], &held[0]), (arrays[1], &held[1])], &inputs);
    assert!(held.iter().all(Buffer::is_deleted), "the arrays are written in place");

    // Rows per page, width, first row and real rows of each array; rows of a chunk.
    let shapes = [(8, 3, start, valid, tokens), (2, 2, 1, 2, 3)];
    let trash = ladder().trash_page() as usize;
    for (at, (per_page, width, first, real, rows)) in shapes.into_iter().enumerate() {
        let mut expected = before[at].clone();
        for (layer, row) in (0..3).flat_map(|layer| (0..real).map(move |row| (layer, row))) {
            let page = layer * 7 + pages[(first + row) / per_page] as usize;
            let place = (page * per_page + (first + row) % per_page) * width;
            expected[place..place + width]
                .copy_from_slice(&chunk[at][(layer * rows + row) * width..][..width]);
        }
        let after = written[at].to_vec::<f32>().unwrap();
        for (index, (after, expected)) in after.iter().zip(&expected).enumerate() {
            let page = index / (per_page * width) % 7;
            assert!(after == expected || page == trash, "element {index} is {after}, not {expected}");
        }
    }

    let program = export_latents(&STATE, &ladder(), tokens as u32, &Mesh::one_device()).unwrap();
    let read = run(&program, &[(arrays[0], &written[0]), (arrays[1], &written[1])], &place());
    assert!(!written.iter().any(Buffer::is_deleted), "reading leaves the arrays");
    let read = [0, 1].map(|at| read[at].to_vec::<f32>().unwrap());
    for layer in 0..3 {
        let real = layer * tokens * 3..(layer * tokens + valid) * 3;
        assert_eq!(read[0][real.clone()], chunk[0][real]);
        let keys = layer * 6..layer * 6 + 4;
        assert_eq!(read[1][keys.clone()], chunk[1][keys]);
        assert_eq!(read[1][layer * 6 + 4..layer * 6 + 6], [0.0; 2], "an open pool's key");
    }
}

#[test]
fn a_slot_comes_back_as_it_was_sent_and_the_others_stay() {
    // Of 15 tokens the last pool has 3, and the draft layer's 2; of 12 none, and the draft layer's last one has 3.
    for (n, places, open) in [(15, [4, 4], [3, 2]), (12, [4, 0], [0, 3])] {
        let arrays = [StateArray::Recurrent, StateArray::Tails, StateArray::IndexRing, StateArray::Hidden];
        let before = arrays.map(|array| unique(elements(array), 10_000));
        let held = [0, 1, 2, 3].map(|at| on_cpu::array(&before[at], &dims(arrays[at])));
        let sizes = [STATE.recurrent_elements(), STATE.tail_elements(), STATE.index_tail_elements(), 6];
        let sent = sizes.map(|size| unique(size, size));
        let slot = 1;
        let inputs = [
            (Input::Slot, scalar(slot as i32)),
            (Input::Start, scalar(n)),
            (Input::SlotRecurrent, on_cpu::array(&sent[0], &[2, 2, 4, 5])),
            (Input::SlotTails, on_cpu::array(&sent[1], &[2, 3, 3, 8])),
            (Input::SlotIndexTail, on_cpu::array(&sent[2], &[3, 4, 2, 2])),
            (Input::SlotHidden, on_cpu::array(&sent[3], &[6])),
        ];
        let program = import_slot(&STATE, &ladder(), &Mesh::one_device()).unwrap();
        let written = run(&program, &arrays.into_iter().zip(&held).collect::<Vec<_>>(), &inputs);

        let recurrent = |layer: usize| ((layer * 4 + slot) * 40, &sent[0][layer * 40..][..40]);
        // Query, key and value have three rows of history, and three of a window, which stays.
        let tail = |at: usize| (((at / 3 * 4 + slot) * 3 + at % 3) * 48, &sent[1][at * 24..][..24]);
        let ring = |layer: usize| {
            let place = places[usize::from(layer == 2)];
            (((layer * 4 + slot) * 8 + place) * 4, &sent[2][layer * 16..][..16])
        };
        let parts: [Vec<(usize, &[f32])>; 4] = [
            (0..2).map(recurrent).collect(),
            (0..6).map(tail).collect(),
            (0..3).map(ring).collect(),
            vec![(slot * 18, &sent[3][..])],
        ];
        for at in 0..4 {
            assert_eq!(written[at].to_vec::<f32>().unwrap(), with(before[at].clone(), &parts[at]));
        }

        let program = export_slot(&STATE, &ladder(), &Mesh::one_device()).unwrap();
        let bound: Vec<_> = arrays.into_iter().zip(&written).collect();
        let read = run(&program, &bound, &inputs[..2]);
        let mut expected = sent.clone();
        for (layer, rows) in expected[2].chunks_exact_mut(16).enumerate() {
            rows[open[usize::from(layer == 2)] * 4..].fill(0.0);
        }
        for (at, read) in read.iter().enumerate() {
            assert_eq!(read.to_vec::<f32>().unwrap(), expected[at]);
        }
    }
}

#[test]
fn pages_that_cut_a_pool_are_refused() {
    let ladder = ShapeLadder { page_tokens: 6, ..ladder() };
    let refused = import_slot(&STATE, &ladder, &Mesh::one_device()).unwrap_err();
    assert!(matches!(refused, Error::Ladder { field: "page_tokens", .. }), "{refused}");
}

#[test]
fn sampling_rows_of_one_slot_are_replaced() {
    let slots = 4;
    let program = set_sampling(&STATE, &ladder(), &Mesh::one_device()).unwrap();
    let seen = on_cpu::booleans(&[true; 4 * 7], &[slots, 7]);
    let counts = on_cpu::array(&[9i32; 4 * 7], &[slots, 7]);
    let bias = on_cpu::array(&[f32::NAN; 4 * 7], &[slots, 7]);
    let states = [
        (StateArray::PromptSeen, &seen),
        (StateArray::OutputCounts, &counts),
        (StateArray::LogitBias, &bias),
    ];
    let inputs = [
        (Input::Slot, scalar(2)),
        (Input::SlotSeen, on_cpu::booleans(&[false, true, false, false, true, false, false], &[7])),
        (Input::SlotCounts, on_cpu::array(&[0i32, 1, 2, 3, 4, 5, 6], &[7])),
        (Input::SlotBias, on_cpu::array(&[0.5f32; 7], &[7])),
    ];
    let written = run(&program, &states, &inputs);
    for (result, written) in program.results.iter().zip(&written) {
        let ResKind::State(what) = result.what else { panic!("{:?} is given", result.what) };
        let mut bytes = vec![0; written.size_bytes()];
        written.to_host(&mut bytes).unwrap();
        let row = bytes.len() / slots;
        let (others, own) = ([&bytes[..2 * row], &bytes[3 * row..]].concat(), &bytes[2 * row..3 * row]);
        let (other, expected): (Vec<u8>, Vec<u8>) = match what {
            StateArray::PromptSeen => (vec![1], vec![0, 1, 0, 0, 1, 0, 0]),
            StateArray::OutputCounts => {
                (9i32.to_ne_bytes().into(), (0..7i32).flat_map(i32::to_ne_bytes).collect())
            }
            StateArray::LogitBias => {
                (f32::NAN.to_ne_bytes().into(), [0.5f32; 7].into_iter().flat_map(f32::to_ne_bytes).collect())
            }
            _ => panic!("{what:?} is given"),
        };
        assert_eq!(own, expected);
        assert!(others.chunks(other.len()).all(|value| value == other), "{what:?}");
    }
}
