use std::path::PathBuf;
use std::{fs, io};

use checkpoint::{Checkpoint, Wanted};
use engine::{Engine, EngineConfig, EngineHandle, Limits, Metrics, PrefixCache, Role, drafts_of};
use kvxfer::Layout;
use model::ModelConfig;
use programs::ShapeLadder;
use proto::v1;
use sha2::{Digest, Sha256};
use telemetry::Meters;
use tokio::sync::watch;
use worker::{CacheLog, Flags, Serving};

use crate::words::{STATE_FORMAT, cache_change, capacity, ladder_message, layout_of, load_message};

/// A running engine and what its model is called.
#[derive(Debug)]
pub struct Host {
    engine: Engine,
    fingerprint: v1::Fingerprint,
    layout: Layout,
}

/// Why a model could not be loaded. Whose fault: the operator's; starting again with the same files fails again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {fault}")]
    Read { path: PathBuf, fault: io::Error },
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    #[error(transparent)]
    Plugin(#[from] pjrt::Error),
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Host {
    /// Loads the model that `flags` name and compiles every shape of its ladder. Blocks, for minutes perhaps; each compiled
    /// program is logged.
    pub fn load(
        flags: &Flags,
        role: Role,
        chunks: Option<Vec<u32>>,
        batches: Option<Vec<u32>>,
        prefix: Option<PrefixCache>,
        meters: &Meters,
    ) -> Result<Host, Error> {
        let drafts = drafts_of(&ModelConfig::from_dir(&flags.model)?, flags.numerics.drafts)?;
        let (float, int8) = (flags.numerics.float.into(), flags.numerics.int8);
        let wanted = Wanted { float, int8, drafts: drafts > 0, ..Wanted::default() };
        let checkpoint = Checkpoint::open(&flags.model, &wanted)?;
        let fingerprint = fingerprint(flags, drafts, &checkpoint)?;
        let plugin = match &flags.pjrt_plugin {
            Some(plugin) => plugin.clone(),
            None => pjrt::plugin_path()?,
        };
        let config = EngineConfig {
            model_dir: flags.model.clone(),
            plugin,
            devices: flags.devices,
            role,
            ladder: Some(crate::ladder(checkpoint.config(), flags, drafts, chunks, batches)),
            drafts: Some(drafts),
            float,
            int8,
            cache_dir: Some(flags.cache.clone()),
            poison: false,
            limits: Limits::default(),
            prefix,
        };
        let metrics = meters.register(Metrics::register);
        let engine = Engine::start(config, metrics, |progress| {
            tracing::info!(what = progress.what, done = progress.done, total = progress.total, "compiled");
        })?;
        Ok(Host::over(engine, fingerprint))
    }

    /// Ends the process, successfully, while a load that nobody waits for any more goes on: it can't be stopped, and must not
    /// see the process come apart around it.
    pub fn leave_loading() -> ! {
        pjrt::leave(0)
    }

    /// A model that runs already.
    pub fn over(engine: Engine, fingerprint: v1::Fingerprint) -> Host {
        let handle = engine.handle();
        let facts = handle.facts();
        let layout = layout_of(&facts.state, &facts.ladder);
        Host { engine, fingerprint, layout }
    }

    pub fn handle(&self) -> EngineHandle {
        self.engine.handle()
    }

    pub fn fingerprint(&self) -> &v1::Fingerprint {
        &self.fingerprint
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Longest sequence in tokens, prompt and output together.
    pub fn context(&self) -> u32 {
        self.engine.handle().facts().ladder.context
    }

    /// What this worker joins the membership with. `data` is where it takes state in, if it does. A role's own fields are left to it.
    pub fn record(&self, name: String, role: v1::Role, at: &Serving, data: String) -> v1::WorkerRecord {
        let handle = self.engine.handle();
        let ladder: &ShapeLadder = &handle.facts().ladder;
        v1::WorkerRecord {
            name,
            role: role.into(),
            incarnation: at.incarnation.bytes(),
            grpc_address: at.grpc_address.clone(),
            http_address: at.http_address.clone(),
            data_endpoint: data,
            fingerprint: Some(self.fingerprint.clone()),
            layout: Some(crate::layout_message(&self.layout)),
            ladder: Some(ladder_message(ladder)),
            capacity: Some(capacity(ladder)),
            pid: std::process::id(),
            hash_unit_tokens: self.engine.handle().hash_unit().map_or(0, |unit| unit.tokens().0),
            ..v1::WorkerRecord::default()
        }
    }

    /// How busy the engine is, as `role` reports it, and what prompts can be resumed at, where it keeps any. A task keeps both
    /// current until the engine or the load's receivers are gone.
    pub fn watch(&self, role: v1::Role) -> (watch::Receiver<v1::Load>, Option<CacheLog>) {
        let handle = self.engine.handle();
        let mut changes = handle.watch_load();
        let (said, heard) = watch::channel(load_message(&handle.load(), role));
        let cache = handle.hash_unit().map(|_| CacheLog::default());
        let log = cache.clone();
        tokio::spawn(async move {
            while changes.changed().await.is_ok() && !said.is_closed() {
                said.send_replace(load_message(&handle.load(), role));
                if let Some(log) = &log {
                    tell_cache(&handle, log);
                }
            }
        });
        (heard, cache)
    }
}

fn tell_cache(engine: &EngineHandle, log: &CacheLog) {
    match engine.cache_events() {
        Ok(events) => events.into_iter().for_each(|event| log.record(cache_change(event))),
        Err(_missed) => log.replace(engine.cached().into_iter().map(cache_change)),
    }
}

fn fingerprint(flags: &Flags, drafts: u32, checkpoint: &Checkpoint) -> Result<v1::Fingerprint, Error> {
    let path = flags.model.join("config.json");
    let config = match fs::read(&path) {
        Ok(config) => config,
        Err(fault) => return Err(Error::Read { path, fault }),
    };
    // a folder carries no revision; its config decides what the weights mean
    let revision: String = Sha256::digest(config).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(v1::Fingerprint {
        model: flags.served_name(),
        revision: format!("config-{revision}"),
        weights_digest: checkpoint.digest()?.0.to_vec().into(),
        float_format: flags.numerics.float.name().to_owned(),
        matrix_format: if flags.numerics.int8 { "int8" } else { "" }.to_owned(),
        drafts: drafts > 0,
        latent_format: flags.numerics.float.name().to_owned(),
        state_format: STATE_FORMAT.to_owned(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}
