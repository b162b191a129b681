use model::StateShape;
use pjrt::Buffer;

use super::{export_latents, export_slot, import_latents, import_slot, set_sampling};
use crate::{ArgKind, Input, Mesh, Program, ResKind, ShapeLadder, StateArray, on_cpu};

const STATE: StateShape = StateShape {
    latent_layers: 2,
    latent_width: 3,
    recurrent_layers: 2,
    heads: 2,
    key_dim: 4,
    value_dim: 5,
    tail_rows: 3,
    tail_width: 8,
    vocabulary: 7,
};

fn ladder() -> ShapeLadder {
    ShapeLadder { chunks: vec![6], batches: vec![2], context: 12, page_tokens: 4, pages: 6, slots: 3 }
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

#[test]
fn latents_land_in_their_pages_come_back_and_disturb_nobody() {
    let (tokens, start, valid) = (6, 3, 5);
    let pages = [4i32, 1, 6];
    let place = || {
        vec![
            (Input::Start, scalar(start)),
            (Input::Valid, scalar(valid)),
            (Input::PageTable, on_cpu::array(&pages, &[3])),
        ]
    };
    let before = unique(elements(StateArray::Latents), 1000);
    let chunk = unique(2 * tokens * 3, 1);
    let array = on_cpu::array(&before, &dims(StateArray::Latents));
    let program = import_latents(&STATE, &ladder(), tokens as u32, &Mesh::one_device()).unwrap();
    let mut inputs = place();
    inputs.push((Input::ChunkLatents, on_cpu::array(&chunk, &[2, tokens, 3])));
    let written = run(&program, &[(StateArray::Latents, &array)], &inputs).remove(0);
    assert!(array.is_deleted(), "the array is written in place");

    let mut expected = before;
    for layer in 0..2 {
        for token in 0..valid as usize {
            let position = start as usize + token;
            let row = (layer * 7 + pages[position / 4] as usize) * 4 + position % 4;
            expected[row * 3..][..3].copy_from_slice(&chunk[(layer * tokens + token) * 3..][..3]);
        }
    }
    let after = written.to_vec::<f32>().unwrap();
    let trash = ladder().trash_page() as usize;
    for (index, (after, expected)) in after.iter().zip(&expected).enumerate() {
        let page = index / (4 * 3) % 7;
        assert!(after == expected || page == trash, "element {index} is {after}, not {expected}");
    }

    let program = export_latents(&STATE, &ladder(), tokens as u32, &Mesh::one_device()).unwrap();
    let read = run(&program, &[(StateArray::Latents, &written)], &place()).remove(0).to_vec::<f32>().unwrap();
    assert!(!written.is_deleted(), "reading leaves the array");
    for layer in 0..2 {
        let real = layer * tokens * 3..(layer * tokens + valid as usize) * 3;
        assert_eq!(read[real.clone()], chunk[real]);
    }
}

#[test]
fn a_slot_comes_back_as_it_was_sent_and_the_others_stay() {
    let (recurrent, tails) = (StateArray::Recurrent, StateArray::Tails);
    let before = [recurrent, tails].map(|array| unique(elements(array), 10_000));
    let arrays =
        [recurrent, tails].map(|array| on_cpu::array(&unique(elements(array), 10_000), &dims(array)));
    let sent = [unique(STATE.recurrent_elements(), 1), unique(STATE.tail_elements(), 5000)];
    let slot = 1;
    let inputs = [
        (Input::Slot, scalar(slot)),
        (Input::SlotRecurrent, on_cpu::array(&sent[0], &[2, 2, 4, 5])),
        (Input::SlotTails, on_cpu::array(&sent[1], &[2, 3, 3, 8])),
    ];
    let program = import_slot(&STATE, &ladder(), &Mesh::one_device()).unwrap();
    let written = run(&program, &[(recurrent, &arrays[0]), (tails, &arrays[1])], &inputs);
    for (at, written) in written.iter().enumerate() {
        let size = sent[at].len() / 2;
        let mut expected = before[at].clone();
        for layer in 0..2 {
            let from = (layer * 4 + slot as usize) * size;
            expected[from..from + size].copy_from_slice(&sent[at][layer * size..][..size]);
        }
        assert_eq!(written.to_vec::<f32>().unwrap(), expected);
    }
    let program = export_slot(&STATE, &ladder(), &Mesh::one_device()).unwrap();
    let states = [(recurrent, &written[0]), (tails, &written[1])];
    let read = run(&program, &states, &[(Input::Slot, scalar(slot))]);
    for (sent, read) in sent.iter().zip(read) {
        assert_eq!(&read.to_vec::<f32>().unwrap(), sent);
    }
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
