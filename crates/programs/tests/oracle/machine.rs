//! The smallest thing that runs prefill and decode: weights and state on one device, everything else by hand.

use std::collections::HashMap;
use std::path::Path;

use checkpoint::{Checkpoint, Wanted};
use model::ModelConfig;
use model::weights::{Encoding, Float};
use pjrt::{Buffer, Client, CompileOptions, DType, Executable, OptionValue, Plugin};
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
    /// How many of the last step's tokens counted; 0 before the first step.
    accepted: i32,
    /// Drafts that were verified and accepted in all.
    pub(crate) accepted_drafts: usize,
}

impl Sequence {
    /// The `at`th sequence gets every `stride`th page, last ones first.
    pub(crate) fn new(ladder: &ShapeLadder, at: usize, stride: usize, prompt: usize) -> Self {
        let pages = (0..ladder.pages_per_sequence())
            .map(|page| (ladder.pages - 1 - page * stride as u32) as i32 - at as i32);
        let pages = pages.collect();
        Self { slot: at as i32, pages, prompt, tokens: Vec::new(), accepted: 0, accepted_drafts: 0 }
    }
}

impl Sequence {
    /// Takes back what was drawn beyond `most` tokens: of the last step fewer tokens count then.
    pub(crate) fn rewind(&mut self, most: usize) {
        let beyond = self.tokens.len().saturating_sub(most) as i32;
        if beyond > 0 {
            self.tokens.truncate(most);
            self.accepted -= beyond;
        }
    }
}

type Compiled = (Program, Executable);

/// An array on every device.
type Spread = Vec<Buffer>;

pub(crate) struct Machine {
    client: Client,
    ladder: ShapeLadder,
    weights: HashMap<String, Spread>,
    states: HashMap<StateArray, Spread>,
    prefills: Vec<(u32, Compiled)>,
    decode: Compiled,
    forced: bool,
    /// How every row draws.
    pub(crate) sampling: SampleRow,
}

/// What a prompt gave.
pub(crate) struct Prefilled {
    pub(crate) logits: Vec<f32>,
    pub(crate) token: i32,
    /// Residual after each layer, one after another.
    pub(crate) layers: Vec<f32>,
}

fn element(dtype: programs::DType) -> DType {
    match dtype {
        programs::DType::F32 => DType::F32,
        programs::DType::BF16 => DType::BF16,
        programs::DType::S8 => DType::S8,
        programs::DType::U8 => DType::U8,
        programs::DType::S32 => DType::S32,
        programs::DType::Pred => DType::Pred,
        other => panic!("{other}"),
    }
}

/// What a machine runs besides a fixture on a ladder.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    pub(crate) wanted: Wanted,
    /// Drafts come with each call.
    pub(crate) forced: bool,
    /// Devices beyond the first.
    pub(crate) more_devices: usize,
}

impl Machine {
    /// Uploads the checkpoint's weights and fills all state with what no result may depend on.
    pub(crate) fn new(dir: &Path, ladder: &ShapeLadder, setup: Setup) -> Self {
        let count = setup.more_devices + 1;
        let plugin = Plugin::load(&pjrt::plugin_path().unwrap()).unwrap();
        let client = Client::new(&plugin, &[("cpu_device_count", OptionValue::Int64(count as i64))]).unwrap();
        let wanted = Wanted { joined: count == 1, ..setup.wanted };
        let checkpoint = Checkpoint::open(dir, &wanted).unwrap();
        let config = checkpoint.config();
        let put = |device: usize, bytes: &[u8], dtype, dims: &[i64]| {
            client.buffer_from_host(bytes, dtype, dims, &client.devices()[device]).unwrap()
        };
        let weights = checkpoint.weights().iter().map(|spec| {
            let dtype = match spec.encoding {
                Encoding::Float(Float::F32) | Encoding::Int8Scales => DType::F32,
                Encoding::Float(Float::Bf16) => DType::BF16,
                Encoding::Int8 => DType::S8,
                Encoding::Packed | Encoding::PackedScales => DType::U8,
            };
            let bytes = checkpoint.assemble(spec).unwrap();
            let part = |device| {
                let (bytes, dims) = share(&bytes, &spec.dims, spec.cut.filter(|_| count > 1), count, device);
                put(device, &bytes, dtype, &dims)
            };
            (spec.name.clone(), (0..count).map(part).collect())
        });
        let state = if count > 1 { config.share(count).unwrap().state() } else { config.state() };
        let states = StateArray::of(&state, ladder).into_iter().map(|array| {
            let ty = array.ty(&state, ladder);
            let elements = ty.elements() as usize;
            let poison: Vec<u8> = match ty.dtype {
                programs::DType::S32 => 7i32.to_le_bytes().repeat(elements),
                programs::DType::Pred => vec![1; elements],
                programs::DType::BF16 => [0xc0, 0x7f].repeat(elements),
                _ => f32::NAN.to_le_bytes().repeat(elements),
            };
            let each = |device| put(device, &poison, element(ty.dtype), &ty.dims);
            (array, (0..count).map(each).collect())
        });
        let (weights, states) = (weights.collect(), states.collect());
        let formats = *checkpoint.formats();
        let options = Options { formats, emit_logits: true, emit_layers: true, force_drafts: setup.forced };
        let [prefills, mut decodes] = programs_of(&client, config, ladder, &options);
        Self {
            weights,
            states,
            prefills,
            decode: decodes.remove(0).1,
            ladder: ladder.clone(),
            client,
            forced: setup.forced,
            sampling: SampleRow::padding(),
        }
    }

    /// Runs a prompt chunk by chunk.
    pub(crate) fn prefill(&mut self, sequence: &mut Sequence, prompt: &[i32]) -> Prefilled {
        let (words, reals) = (self.sampling.words, self.sampling.reals);
        let mut start = 0;
        loop {
            let left = prompt.len() - start;
            let valid = left.min(self.ladder.grid() as usize);
            let chunk = self.ladder.chunk_for(valid as u32).unwrap();
            let mut tokens = prompt[start..start + valid].to_vec();
            tokens.resize(chunk as usize, 3);
            let next = prompt.get(start + valid).copied().unwrap_or_default();
            let inputs = HashMap::from([
                (Input::Share, self.shares()),
                (Input::Tokens, self.array(&tokens, &[i64::from(chunk)])),
                (Input::Valid, self.array(&[valid as i32], &[])),
                (Input::Start, self.array(&[start as i32], &[])),
                (Input::EndsPrompt, self.array(&[i32::from(valid == left)], &[])),
                (Input::NextToken, self.array(&[next], &[])),
                (Input::Slot, self.array(&[sequence.slot], &[])),
                (Input::PageTable, self.array(&sequence.pages, &[sequence.pages.len() as i64])),
                (Input::SampleWords, self.array(&words, &[1, WORDS as i64])),
                (Input::SampleReals, self.array(&reals, &[1, REALS as i64])),
            ]);
            let which = self.prefills.iter().position(|(length, _)| *length == chunk).unwrap();
            let compiled = &self.prefills[which].1;
            let out = execute(compiled, &self.weights, &mut self.states, &inputs);
            start += valid;
            if start == prompt.len() {
                return Prefilled {
                    logits: out[&Output::Logits].to_vec().unwrap(),
                    token: out[&Output::Sampled].to_vec::<i32>().unwrap()[0],
                    layers: out[&Output::LayerOutputs].to_vec().unwrap(),
                };
            }
        }
    }

    /// One step of all sequences, with padded rows between and after them; each takes up the tokens it drew. `forced` gives
    /// the drafts of each. Gives the logits of all drafts, `[sequences, drafts, vocabulary]`.
    pub(crate) fn decode(&mut self, sequences: &mut [Sequence], forced: &[Vec<i32>]) -> Vec<Vec<f32>> {
        let batch = self.ladder.batches[0] as usize;
        let (width, window) = (self.ladder.pages_per_sequence() as usize, self.ladder.window() as usize);
        let trash_page = self.ladder.trash_page() as i32;
        let (mut tokens, mut positions) = (vec![0; batch], vec![0; batch]);
        let mut slots = vec![self.ladder.trash_slot() as i32; batch];
        let mut table = vec![trash_page; batch * width];
        let (mut accepted, mut recent) = (vec![0; batch], vec![0; batch * window]);
        let mut drafts = vec![0; batch * (window - 1)];
        // Row 1 is padding.
        let row_of = |at: usize| if at == 0 { 0 } else { at + 1 };
        for (at, sequence) in sequences.iter().enumerate() {
            let row = row_of(at);
            let drawn = &sequence.tokens;
            tokens[row] = *drawn.last().unwrap();
            positions[row] = (sequence.prompt + drawn.len() - 1) as i32;
            slots[row] = sequence.slot;
            accepted[row] = sequence.accepted;
            let last = &drawn[drawn.len() - sequence.accepted.max(1) as usize..];
            recent[row * window..row * window + last.len()].copy_from_slice(last);
            table[row * width..(row + 1) * width].copy_from_slice(&sequence.pages);
            if self.forced {
                drafts[row * (window - 1)..(row + 1) * (window - 1)].copy_from_slice(&forced[at]);
            }
        }
        let (words, reals) = (self.sampling.words.repeat(batch), self.sampling.reals.repeat(batch));
        let rows = batch as i64;
        let inputs = HashMap::from([
            (Input::Share, self.shares()),
            (Input::Tokens, self.array(&tokens, &[rows])),
            (Input::Positions, self.array(&positions, &[rows])),
            (Input::Accepted, self.array(&accepted, &[rows])),
            (Input::Recent, self.array(&recent, &[rows, window as i64])),
            (Input::ForcedDrafts, self.array(&drafts, &[rows, window as i64 - 1])),
            (Input::Slots, self.array(&slots, &[rows])),
            (Input::PageTable, self.array(&table, &[rows, width as i64])),
            (Input::SampleWords, self.array(&words, &[rows, WORDS as i64])),
            (Input::SampleReals, self.array(&reals, &[rows, REALS as i64])),
        ]);
        let out = execute(&self.decode, &self.weights, &mut self.states, &inputs);
        let drawn = out[&Output::Sampled].to_vec::<i32>().unwrap();
        let counted = match out.get(&Output::Accepted) {
            Some(counted) => counted.to_vec::<i32>().unwrap(),
            None => vec![1; batch],
        };
        let logits =
            out.get(&Output::DraftLogits).map(|all| all.to_vec::<f32>().unwrap()).unwrap_or_default();
        let mut shown = Vec::new();
        for (at, sequence) in sequences.iter_mut().enumerate() {
            let row = row_of(at);
            let count = counted[row] as usize;
            sequence.tokens.extend(&drawn[row * window..row * window + count]);
            sequence.accepted = count as i32;
            sequence.accepted_drafts += count - 1;
            let size = logits.len() / batch;
            shown.push(logits[row * size..(row + 1) * size].to_vec());
        }
        shown
    }

    fn array<T: pjrt::Element>(&self, data: &[T], dims: &[i64]) -> Spread {
        let put = |device| self.client.buffer_from_slice(data, dims, device).unwrap();
        self.client.devices().iter().map(put).collect()
    }

    /// Each device's number.
    fn shares(&self) -> Spread {
        let devices = self.client.devices().iter().enumerate();
        devices
            .map(|(at, device)| self.client.buffer_from_slice(&[at as i32], &[], device).unwrap())
            .collect()
    }
}

/// A device's part of an array, and its axis lengths.
fn share(
    bytes: &[u8],
    dims: &[usize],
    cut: Option<usize>,
    count: usize,
    device: usize,
) -> (Vec<u8>, Vec<i64>) {
    let mut held: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    let Some(axis) = cut else { return (bytes.to_vec(), held) };
    held[axis] /= count as i64;
    let outer: usize = dims[..axis].iter().product();
    let row = bytes.len() / outer;
    let part = row / count;
    let parts = (0..outer).flat_map(|at| &bytes[at * row + device * part..at * row + (device + 1) * part]);
    (parts.copied().collect(), held)
}

/// Prefill programs by chunk length, and decode programs by batch.
fn programs_of(
    client: &Client,
    config: &ModelConfig,
    ladder: &ShapeLadder,
    options: &Options,
) -> [Vec<(u32, Compiled)>; 2] {
    let mesh = Mesh::over(client.devices().len());
    let compile = |program: Program| {
        let mut options = match mesh.devices() {
            1 => CompileOptions::sharded_over(client.devices()),
            _ => CompileOptions::replicated_over(client.devices()),
        };
        // Compiling costs more than running here, and how fast code is changes no number that is judged.
        options.flags.push(("xla_backend_optimization_level".to_owned(), OptionValue::Int64(0)));
        let executable = client.compile(&program.text, &options).unwrap();
        (program, executable)
    };
    let prefills = ladder
        .chunks
        .iter()
        .map(|&chunk| (chunk, compile(prefill(config, ladder, chunk, options, &mesh).unwrap())));
    let decodes = ladder
        .batches
        .iter()
        .map(|&batch| (batch, compile(decode(config, ladder, batch, options, &mesh).unwrap())));
    [prefills.collect(), decodes.collect()]
}

/// Binds by meaning, runs, keeps the state and gives back the outputs, which all devices have alike.
fn execute(
    (program, executable): &Compiled,
    weights: &HashMap<String, Spread>,
    states: &mut HashMap<StateArray, Spread>,
    inputs: &HashMap<Input, Spread>,
) -> HashMap<Output, Buffer> {
    let bind = |what: &ArgKind| match what {
        ArgKind::Weight(spec) => &weights[&spec.name],
        ArgKind::State(array) => &states[array],
        ArgKind::Input(input) => &inputs[input],
    };
    let devices = inputs[&Input::Tokens].len();
    let arguments: Vec<Vec<&Buffer>> = (0..devices)
        .map(|device| program.args.iter().map(|arg| &bind(&arg.what)[device]).collect())
        .collect();
    let mut results: Vec<_> =
        executable.execute_sharded(&arguments).unwrap().into_iter().map(Vec::into_iter).collect();
    let mut outputs = HashMap::new();
    for res in &program.results {
        let mut each: Spread = results.iter_mut().map(|result| result.next().unwrap()).collect();
        match res.what {
            ResKind::State(array) => {
                states.insert(array, each);
            }
            ResKind::Output(output) => {
                outputs.insert(output, each.remove(0));
            }
        }
    }
    outputs
}
