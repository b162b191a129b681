use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::{Mutex, Notify, watch};

use crate::clock::Clock;
use crate::command::{Command, Commands};
use crate::handle::Shared;
use crate::load::Load;
use crate::plugin::PluginDevice;
use crate::steps::{Given, StepLoop};
use crate::{Device, EngineConfig, EngineHandle, Error, Limits, Metrics, Pool, PrefixCache, Role};

/// How far the start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What was just finished, e.g. the name of a program.
    pub what: String,
    /// Steps finished.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
}

/// A running engine: owns the device thread. Dropping it ends the thread after the step under way; streams that are open then
/// end with [`Error::Stopped`].
#[derive(Debug)]
pub struct Engine {
    handle: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Loads the model, compiles every shape of the ladder and starts the device thread. Blocks until ready, which may take
    /// minutes; `progress` is called from several threads.
    pub fn start(
        config: EngineConfig,
        metrics: Metrics,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<Self, Error> {
        let device = PluginDevice::open(&config, metrics.compilations_after_ready.clone(), &progress)?;
        Self::over(device, config.role, config.limits, config.prefix, metrics)
    }

    /// Starts the device thread over a device that is ready. `prefix`: what is kept of prompts, if anything is.
    pub fn over(
        device: impl Device + Send + 'static,
        role: Role,
        limits: Limits,
        prefix: Option<PrefixCache>,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let (handle, steps) = assembled(device, role, limits, prefix, metrics, Clock::new(Instant::now));
        let thread = std::thread::Builder::new().name("device".to_owned()).spawn(move || steps.run())?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// An engine without a thread: whoever has the [`Stepper`] runs its steps, on a clock of its own.
    pub fn stepped<D: Device>(
        device: D,
        role: Role,
        limits: Limits,
        prefix: Option<PrefixCache>,
        metrics: Metrics,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> (Self, Stepper<D>) {
        let (handle, steps) = assembled(device, role, limits, prefix, metrics, Clock::new(clock));
        let bell = Arc::clone(&handle.shared.commands.bell);
        (Self { handle, thread: None }, Stepper { steps, bell })
    }

    /// A handle to this engine.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }
}

/// The steps of an engine that has no thread.
#[derive(Debug)]
pub struct Stepper<D> {
    steps: StepLoop<D>,
    bell: Arc<Notify>,
}

impl<D: Device> Stepper<D> {
    /// One round; never waits.
    pub fn turn(&mut self) -> crate::Turn {
        self.steps.turn()
    }

    /// Rings when something is asked.
    pub fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }
}

/// An engine whose steps nobody runs yet.
fn assembled<D: Device>(
    device: D,
    role: Role,
    limits: Limits,
    prefix: Option<PrefixCache>,
    metrics: Metrics,
    clock: Clock,
) -> (EngineHandle, StepLoop<D>) {
    let (queue, commands) = mpsc::channel();
    let sender = Commands { queue, bell: Arc::default() };
    let freed = Arc::new(Notify::new());
    let facts = device.facts().clone();
    let pool = {
        let (sender, freed) = (sender.clone(), Arc::clone(&freed));
        let cache = prefix.map(|prefix| prefix.config(&facts));
        Pool::with_cache(facts.pool(), cache, move || {
            freed.notify_waiters();
            sender.wake();
        })
    };
    metrics.watch(&pool);
    let (load_sender, load) = watch::channel(Load::idle(&pool));
    let keep = prefix.map(|prefix| prefix.format).unwrap_or_default();
    let given = Given { pool: pool.clone(), commands, limits, keep, metrics, load: load_sender, clock };
    let steps = StepLoop::new(device, given);
    let shared = Shared {
        commands: sender,
        pool,
        facts,
        role,
        limits,
        unit: prefix.map(|prefix| prefix.unit),
        load,
        freed,
        line: Mutex::new(()),
        sequences: AtomicU64::new(0),
    };
    (EngineHandle { shared: Arc::new(shared) }, steps)
}

impl Drop for Engine {
    fn drop(&mut self) {
        let stopped = self.handle.shared.commands.send(Command::Stop);
        let Some(thread) = self.thread.take() else { return };
        // A thread that is gone already has panicked, which `join` tells.
        if thread.join().is_err() || stopped.is_err() {
            tracing::error!("device thread ended by a panic");
        }
    }
}
