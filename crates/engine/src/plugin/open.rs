use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use checkpoint::Checkpoint;
use pjrt::cache::ExecutableCache;
use pjrt::{Client, Plugin};
use programs::ShapeLadder;

use super::{Arrays, Compiler, Counter, Facts, Key, Place, PluginDevice, Programs};
use crate::{EngineConfig, Error, Progress, default_ladder};

impl PluginDevice {
    /// Loads the plugin and the model, and compiles every program that the role may run.
    pub(crate) fn open(
        config: &EngineConfig,
        compiled_late: Counter,
        progress: &(impl Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        let checkpoint = Checkpoint::open(&config.model_dir)?;
        let model = checkpoint.config().clone();
        let ladder = config.ladder.clone().unwrap_or_else(|| default_ladder(&model));
        check(&ladder, config, model.context)?;
        let client = Client::new(&Plugin::load(&config.plugin)?, &[])?;
        let place = Place { client };
        let device = place.device()?;
        let names = checkpoint.weights().iter().map(|spec| spec.name.clone());
        let compiler = Compiler {
            place: place.clone(),
            ladder: ladder.clone(),
            cache: config.cache_dir.clone().map(ExecutableCache::new),
            weights: names.enumerate().map(|(index, name)| (name, index)).collect(),
            model,
        };
        let state = compiler.model.state();
        let keys = Key::all(config.role, &ladder);
        let (done, total) = (AtomicUsize::new(0), keys.len() + 1);
        let finished = |what: &str| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { what: what.to_owned(), done, total });
        };
        // Reading weights waits for the disk, compiling for the cores.
        let (weights, bound) = thread::scope(|scope| {
            let upload = scope.spawn(|| {
                let weights = checkpoint.upload(&place.client, device, |_| {});
                finished("weights");
                weights
            });
            let bound = compiler.compile_all(&keys, &finished);
            let weights = upload.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (weights, bound)
        });
        let (weights, bound) = (weights?, bound?);
        let arrays = Arrays::new(&place, &state, &ladder, config.poison)?;
        Ok(Self {
            facts: Facts { state, ladder },
            place,
            weights,
            arrays,
            programs: Programs { compiler, bound, compiled_late },
            kept: None,
        })
    }
}

/// What the programs' own check can not know: the model's context and the role.
fn check(ladder: &ShapeLadder, config: &EngineConfig, context: usize) -> Result<(), Error> {
    ladder.check()?;
    let refuse = |field, reason: String| Err(Error::from(programs::Error::Ladder { field, reason }));
    if ladder.context as usize > context {
        return refuse("context", format!("the model was trained for {context} tokens"));
    }
    if ladder.pages < ladder.pages_per_sequence() {
        let need = ladder.pages_per_sequence();
        return refuse("pages", format!("one sequence of the whole context needs {need}"));
    }
    if config.role.decodes() && ladder.batches.is_empty() {
        return refuse("batches", "an engine that decodes needs at least one".to_owned());
    }
    Ok(())
}
