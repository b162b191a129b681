//! The smallest thing that runs prefill and decode: weights and state on one device, everything else by hand.

use std::collections::HashMap;
use std::path::Path;

use checkpoint::Checkpoint;
use pjrt::{Buffer, Client, CompileOptions, DType, Executable, OptionValue};
use programs::sampling::{REALS, SampleRow, WORDS};
use programs::{
    ArgKind, Input, Mesh, Options, Output, Program, ResKind, ShapeLadder, StateArray, decode, prefill,
};

/// A sequence's room on the device, and what has been drawn.
pub(crate) struct Sequence {
    slot: i32,
    pages: Vec<i32>,
    prompt: usize,
    pub(crate) tokens: Vec<i32>,
}

impl Sequence {
    /// The `at`th sequence gets every tenth page, last ones first.
    pub(crate) fn new(ladder: &ShapeLadder, at: usize, prompt: usize) -> Self {
        let pages =
            (0..ladder.pages_per_sequence()).map(|page| (ladder.pages - 1 - page * 10) as i32 - at as i32);
        Self { slot: at as i32, pages: pages.collect(), prompt, tokens: Vec::new() }
    }
}

type Compiled = (Program, Executable);

pub(crate) struct Machine {
    client: Client,
    ladder: ShapeLadder,
    weights: HashMap<String, Buffer>,
    states: HashMap<StateArray, Buffer>,
    prefills: Vec<(u32, Compiled)>,
    decode: Compiled,
}

impl Machine {
    /// Uploads the checkpoint's weights and fills all state with what no result may depend on.
    pub(crate) fn new(dir: &Path, ladder: &ShapeLadder) -> Self {
        let client = Client::open(&pjrt::plugin_path().unwrap()).unwrap();
        let checkpoint = Checkpoint::open(dir).unwrap();
        let device = &client.devices()[0];
        let config = checkpoint.config();
        let upload = |data: &[f32], dims: &[i64]| client.buffer_from_slice(data, dims, device).unwrap();
        let weights = checkpoint.weights().iter().map(|spec| {
            let dims: Vec<i64> = spec.dims.iter().map(|&dim| dim as i64).collect();
            (spec.name.clone(), upload(&checkpoint.assemble(spec).unwrap(), &dims))
        });
        let states = StateArray::ALL.map(|array| {
            let ty = array.ty(&config.state(), ladder);
            let count = ty.elements() as usize;
            let poison = match array {
                StateArray::OutputCounts => client.buffer_from_slice(&vec![7i32; count], &ty.dims, device),
                StateArray::PromptSeen => {
                    client.buffer_from_host(&vec![1; count], DType::Pred, &ty.dims, device)
                }
                _ => Ok(upload(&vec![f32::NAN; count], &ty.dims)),
            };
            (array, poison.unwrap())
        });
        let options = Options { emit_logits: true };
        let mesh = Mesh::one_device();
        let compile = |program: Program| {
            let mut options = CompileOptions::sharded_over(&client.devices()[..1]);
            // Compiling costs more than running here, and how fast code is changes no number that is judged.
            options.flags.push(("xla_backend_optimization_level".to_owned(), OptionValue::Int64(0)));
            let executable = client.compile(&program.text, &options).unwrap();
            (program, executable)
        };
        let chunks = ladder
            .chunks
            .iter()
            .map(|&chunk| (chunk, compile(prefill(config, ladder, chunk, &options, &mesh).unwrap())));
        Self {
            weights: weights.collect(),
            states: states.into(),
            prefills: chunks.collect(),
            decode: compile(decode(config, ladder, ladder.batches[0], &options, &mesh).unwrap()),
            ladder: ladder.clone(),
            client,
        }
    }

    /// Runs a prompt chunk by chunk; the logits after it and the token drawn from them.
    pub(crate) fn prefill(&mut self, sequence: &mut Sequence, prompt: &[i32]) -> (Vec<f32>, i32) {
        let (words, reals) = rows(1);
        let mut start = 0;
        loop {
            let left = prompt.len() - start;
            let valid = left.min(self.ladder.grid() as usize);
            let chunk = self.ladder.chunk_for(valid as u32).unwrap();
            let mut tokens = prompt[start..start + valid].to_vec();
            tokens.resize(chunk as usize, 3);
            let inputs = HashMap::from([
                (Input::Tokens, self.integers(&tokens, &[i64::from(chunk)])),
                (Input::Valid, self.integers(&[valid as i32], &[])),
                (Input::Start, self.integers(&[start as i32], &[])),
                (Input::EndsPrompt, self.integers(&[i32::from(valid == left)], &[])),
                (Input::Slot, self.integers(&[sequence.slot], &[])),
                (Input::PageTable, self.integers(&sequence.pages, &[sequence.pages.len() as i64])),
                (Input::SampleWords, self.array(&words, &[1, WORDS as i64])),
                (Input::SampleReals, self.array(&reals, &[1, REALS as i64])),
            ]);
            let which = self.prefills.iter().position(|(length, _)| *length == chunk).unwrap();
            let compiled = &self.prefills[which].1;
            let out = execute(compiled, &self.weights, &mut self.states, &inputs);
            start += valid;
            if start == prompt.len() {
                let logits = out[&Output::Logits].to_vec().unwrap();
                return (logits, out[&Output::Sampled].to_vec::<i32>().unwrap()[0]);
            }
        }
    }

    /// One step of all sequences, with padded rows between and after them; the tokens drawn.
    pub(crate) fn decode(&mut self, sequences: &[Sequence]) -> Vec<i32> {
        let batch = self.ladder.batches[0] as usize;
        let width = self.ladder.pages_per_sequence() as usize;
        let trash_page = self.ladder.trash_page() as i32;
        let (mut tokens, mut positions) = (vec![0; batch], vec![0; batch]);
        let mut slots = vec![self.ladder.trash_slot() as i32; batch];
        let mut table = vec![trash_page; batch * width];
        // Row 1 is padding.
        let row_of = |at: usize| if at == 0 { 0 } else { at + 1 };
        for (at, sequence) in sequences.iter().enumerate() {
            let row = row_of(at);
            tokens[row] = *sequence.tokens.last().unwrap();
            positions[row] = (sequence.prompt + sequence.tokens.len() - 1) as i32;
            slots[row] = sequence.slot;
            table[row * width..(row + 1) * width].copy_from_slice(&sequence.pages);
        }
        let (words, reals) = rows(batch);
        let rows = batch as i64;
        let inputs = HashMap::from([
            (Input::Tokens, self.integers(&tokens, &[rows])),
            (Input::Positions, self.integers(&positions, &[rows])),
            (Input::Slots, self.integers(&slots, &[rows])),
            (Input::PageTable, self.integers(&table, &[rows, width as i64])),
            (Input::SampleWords, self.array(&words, &[rows, WORDS as i64])),
            (Input::SampleReals, self.array(&reals, &[rows, REALS as i64])),
        ]);
        let out = execute(&self.decode, &self.weights, &mut self.states, &inputs);
        let drawn = out[&Output::Sampled].to_vec::<i32>().unwrap();
        (0..sequences.len()).map(|at| drawn[row_of(at)]).collect()
    }

    fn integers(&self, data: &[i32], dims: &[i64]) -> Buffer {
        self.array(data, dims)
    }

    fn array<T: pjrt::Element>(&self, data: &[T], dims: &[i64]) -> Buffer {
        self.client.buffer_from_slice(data, dims, &self.client.devices()[0]).unwrap()
    }
}

/// Packed rows that ask for the likeliest token.
fn rows(count: usize) -> (Vec<u32>, Vec<f32>) {
    let row = SampleRow::padding();
    (row.words.repeat(count), row.reals.repeat(count))
}

/// Binds by meaning, runs, keeps the state and gives back the outputs.
fn execute(
    (program, executable): &Compiled,
    weights: &HashMap<String, Buffer>,
    states: &mut HashMap<StateArray, Buffer>,
    inputs: &HashMap<Input, Buffer>,
) -> HashMap<Output, Buffer> {
    let bind = |what: &ArgKind| match what {
        ArgKind::Weight(spec) => &weights[&spec.name],
        ArgKind::State(array) => &states[array],
        ArgKind::Input(input) => &inputs[input],
    };
    let arguments: Vec<&Buffer> = program.args.iter().map(|arg| bind(&arg.what)).collect();
    let results = executable.execute(&arguments).unwrap();
    let mut outputs = HashMap::new();
    for (res, buffer) in program.results.iter().zip(results) {
        match res.what {
            ResKind::State(array) => {
                states.insert(array, buffer);
            }
            ResKind::Output(output) => {
                outputs.insert(output, buffer);
            }
        }
    }
    outputs
}
