use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use model::{ModelConfig, StateShape};
use pjrt::cache::ExecutableCache;
use pjrt::{CompileOptions, OptionValue};
use programs::weights::Formats;
use programs::{Options, ShapeLadder, transfer};

use super::{ArgKind, Counter, Executable, Input, Place, Program, ResKind, StateArray};
use crate::{Error, Role};

/// Names a program of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Prefill(u32),
    Decode(u32),
    DraftLine,
    ImportLatents(u32),
    ExportLatents(u32),
    CopyPage,
    ImportSlot,
    ExportSlot,
    SetSampling,
}

impl Key {
    /// Everything that a role may run: the slowest to compile first, so that none of them is left for the end.
    pub(super) fn all(role: Role, ladder: &ShapeLadder) -> Vec<Self> {
        let mut keys = Vec::new();
        if role.prefills() {
            keys.extend(ladder.chunks.iter().rev().map(|chunk| Self::Prefill(*chunk)));
            keys.extend((ladder.drafts > 0).then_some(Self::DraftLine));
            keys.push(Self::ExportLatents(ladder.grid()));
            keys.extend([Self::CopyPage, Self::ExportSlot]);
        }
        if role.decodes() {
            keys.extend(ladder.batches.iter().rev().map(|batch| Self::Decode(*batch)));
            keys.extend(ladder.chunks.iter().map(|tokens| Self::ImportLatents(*tokens)));
        }
        keys.extend([Self::ImportSlot, Self::SetSampling]);
        keys
    }
}

/// A compiled program and what to bind to it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) name: String,
    pub(super) executable: Executable,
    pub(super) arguments: Vec<Bind>,
    pub(super) results: Vec<ResKind>,
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bind {
    /// Index of the weight in the order of the upload.
    Weight(usize),
    State(StateArray),
    Input(Input),
}

/// Makes programs for one model, ladder and device.
#[derive(Debug)]
pub(super) struct Compiler {
    pub(super) place: Place,
    pub(super) model: ModelConfig,
    /// What one device keeps of a sequence.
    pub(super) share: StateShape,
    pub(super) ladder: ShapeLadder,
    /// How the weights are held.
    pub(super) formats: Formats,
    pub(super) cache: Option<ExecutableCache>,
    /// Compile quickly rather than well.
    pub(super) hasty: bool,
    /// Index of each weight in the order of the upload.
    pub(super) weights: HashMap<String, usize>,
}

impl Compiler {
    fn text(&self, key: Key) -> Result<Program, Error> {
        let (model, ladder) = (&self.model, &self.ladder);
        let options = Options { formats: self.formats, ..Options::default() };
        let (mesh, state) = (self.place.mesh(), self.share);
        Ok(match key {
            Key::Prefill(chunk) => programs::prefill(model, ladder, chunk, &options, &mesh)?,
            Key::Decode(batch) => programs::decode(model, ladder, batch, &options, &mesh)?,
            Key::DraftLine => programs::draft_line(model, ladder, &options, &mesh)?,
            Key::ExportLatents(tokens) => transfer::export_latents(&state, ladder, tokens, &mesh)?,
            Key::CopyPage => transfer::copy_page(&state, ladder, &mesh)?,
            Key::ImportLatents(tokens) => transfer::import_latents(&state, ladder, tokens, &mesh)?,
            Key::ImportSlot => transfer::import_slot(&state, ladder, &mesh)?,
            Key::ExportSlot => transfer::export_slot(&state, ladder, &mesh)?,
            Key::SetSampling => transfer::set_sampling(&state, ladder, &mesh)?,
        })
    }

    pub(super) fn compile(&self, key: Key) -> Result<Bound, Error> {
        let program = self.text(key)?;
        let arguments = program.args.iter().map(|arg| self.bind(&arg.what)).collect::<Result<_, _>>()?;
        let mut options = match self.place.devices() {
            one @ [_] => CompileOptions::sharded_over(one),
            several => CompileOptions::replicated_over(several),
        };
        if self.hasty {
            let level = "xla_backend_optimization_level".to_owned();
            options.flags.push((level, OptionValue::Int64(0)));
        }
        let executable = match &self.cache {
            None => self.place.client().compile(&program.text, &options)?,
            Some(cache) => {
                let (executable, hit) = cache.get_or_compile(self.place.client(), &program.text, &options)?;
                tracing::debug!(program = program.name, ?hit, "program is ready");
                executable
            }
        };
        let results = program.results.iter().map(|result| result.what).collect();
        Ok(Bound { name: program.name, executable, arguments, results })
    }

    fn bind(&self, what: &ArgKind) -> Result<Bind, Error> {
        Ok(match what {
            ArgKind::State(array) => Bind::State(*array),
            ArgKind::Input(input) => Bind::Input(*input),
            ArgKind::Weight(spec) => {
                let index = self.weights.get(&spec.name).ok_or_else(|| pjrt::Error::Argument {
                    argument: spec.name.clone(),
                    message: "the checkpoint has no such weight".to_owned(),
                })?;
                Bind::Weight(*index)
            }
        })
    }

    /// Compiles all of them, several at a time; `finished` is told the name of each.
    pub(super) fn compile_all(
        &self,
        keys: &[Key],
        finished: &(impl Fn(&str) + Sync),
    ) -> Result<HashMap<Key, Bound>, Error> {
        let next = AtomicUsize::new(0);
        let outcome = Mutex::new(Ok(HashMap::new()));
        let failed = || outcome.lock().unwrap_or_else(PoisonError::into_inner).is_err();
        let work = || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                if failed() {
                    return;
                }
                let bound = self.compile(*key);
                let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                match (bound, outcome.as_mut()) {
                    (Ok(bound), Ok(all)) => {
                        finished(&bound.name);
                        all.insert(*key, bound);
                    }
                    (Err(error), Ok(_)) => *outcome = Err(error),
                    (_, Err(_)) => {}
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(keys.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The programs that are ready.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) compiler: Compiler,
    pub(super) bound: HashMap<Key, Bound>,
    /// Counts what should have been compiled before.
    pub(super) compiled_late: Counter,
}

impl Programs {
    /// The program of a key. One that the ladder left out is compiled now, while everyone waits.
    pub(super) fn get(&mut self, key: Key) -> Result<&Bound, Error> {
        match self.bound.entry(key) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                tracing::warn!(?key, "program compiled after the engine was ready");
                self.compiled_late.inc();
                Ok(entry.insert(self.compiler.compile(key)?))
            }
        }
    }
}
