use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use checkpoint::{Checkpoint, Wanted};
use model::ModelConfig;
use pjrt::Client;
use pjrt::cache::ExecutableCache;
use programs::ShapeLadder;

use super::{Arrays, Compiler, Counter, Facts, Key, Place, PluginDevice, Programs, Spread};
use crate::{EngineConfig, Error, Progress, Role, default_ladder, drafts_of};

impl PluginDevice {
    /// Loads the plugin and the model, and compiles every program that the role may run.
    pub(crate) fn open(
        config: &EngineConfig,
        compiled_late: Counter,
        progress: &(impl Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        Self::open_with(config, compiled_late, Key::all, progress)
    }

    /// As [`PluginDevice::open`]; other programs than those of `ahead` are compiled when they are first asked for.
    pub(super) fn open_with(
        config: &EngineConfig,
        compiled_late: Counter,
        ahead: impl Fn(Role, &ShapeLadder) -> Vec<Key>,
        progress: &(impl Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        let place = Place::open(&config.plugin, config.devices)?;
        let devices = place.devices().len();
        // Joined matrices can not be cut by heads.
        let joined = devices == 1;
        let drafts = config.drafts != Some(0);
        let wanted = Wanted { float: config.float, int8: config.int8, drafts, joined };
        let checkpoint = Checkpoint::open(&config.model_dir, &wanted)?;
        let model = checkpoint.config().clone();
        let drafts = drafts_of(&model, config.drafts)?;
        let mut ladder = config.ladder.clone().unwrap_or_else(|| default_ladder(&model, drafts));
        (ladder.drafts, ladder.latents) = (drafts, config.float);
        check(&ladder, config, &model)?;
        ladder.lane = ladder.lane.max(lane(place.client()));
        let share = if devices == 1 { model.state() } else { model.share(devices)?.state() };
        let names = checkpoint.weights().iter().map(|spec| spec.name.clone());
        let compiler = Compiler {
            place: place.clone(),
            ladder: ladder.clone(),
            formats: *checkpoint.formats(),
            cache: config.cache_dir.clone().map(ExecutableCache::new),
            hasty: config.poison,
            weights: names.enumerate().map(|(index, name)| (name, index)).collect(),
            model,
            share,
        };
        let keys = ahead(config.role, &ladder);
        let (done, total) = (AtomicUsize::new(0), keys.len() + 1);
        let finished = |what: &str| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { what: what.to_owned(), done, total });
        };
        // Reading weights waits for the disk, compiling for the cores.
        let (weights, bound) = thread::scope(|scope| {
            let upload = scope.spawn(|| {
                let weights = checkpoint.upload(place.client(), place.devices(), |_| {});
                finished("weights");
                weights
            });
            let bound = compiler.compile_all(&keys, &finished);
            let weights = upload.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (weights, bound)
        });
        let (weights, bound) = (weights?, bound?);
        for (role, error) in checkpoint.int8_error() {
            tracing::info!(role, error, "held as int8; the relative change");
        }
        let arrays = Arrays::new(&place, &share, &ladder, config.poison)?;
        let state = compiler.model.state();
        Ok(Self {
            facts: Facts { state, ladder, poison: config.poison },
            numbers: place.put_numbers()?,
            place,
            weights: weights.into_iter().map(Spread::new).collect(),
            arrays,
            programs: Programs { compiler, bound, compiled_late },
            kept: None,
        })
    }
}

/// Channels that a row of the device's memory holds at least.
fn lane(client: &Client) -> u32 {
    match client.platform_name() {
        "tpu" => 128,
        _ => 1,
    }
}

/// What the programs' own check can not know: the model's context and the role.
fn check(ladder: &ShapeLadder, config: &EngineConfig, model: &ModelConfig) -> Result<(), Error> {
    ladder.check_for(&model.state())?;
    let refuse = |field, reason: String| Err(Error::from(programs::Error::Ladder { field, reason }));
    let context = model.context;
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
