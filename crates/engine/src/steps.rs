use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::command::{Command, Epoch, Piece};
use crate::load::{Load, Rate};
use crate::{CheckpointFormat, Device, DeviceFault, Error, Lease, Limits, Metrics, Pool};

mod answers;
mod drawn;
mod prompts;
mod rows;

use answers::Answers;
use prompts::{Prompts, Ran};

#[cfg(test)]
mod tests;

/// Most commands taken between two steps: imports of new sequences must not starve those that run.
const COMMANDS_PER_STEP: usize = 32;

/// The device thread: takes commands, then runs at most one prefill step and one decode step, and again.
///
/// It alone touches the device. Between steps it drops what was abandoned or came too late.
#[derive(Debug)]
pub(crate) struct StepLoop<D> {
    device: D,
    pool: Pool,
    commands: Receiver<Command>,
    metrics: Metrics,
    load: watch::Sender<Load>,
    clock: Clock,
    epoch: Epoch,
    prompts: Prompts,
    answers: Answers,
    prefill_rate: Rate,
    decode_rate: Rate,
}

/// What one round of the loop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There were steps to run, and there may be more.
    Ran,
    /// Nothing to do before something is asked, or this moment comes.
    Idle {
        /// The earliest deadline.
        until: Option<Instant>,
    },
    /// The engine was dropped, and there is nothing more to do.
    Stopped,
}

/// Whether the thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

/// What the loop is given beside its device.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) pool: Pool,
    pub(crate) commands: Receiver<Command>,
    pub(crate) limits: Limits,
    pub(crate) keep: CheckpointFormat,
    pub(crate) metrics: Metrics,
    pub(crate) load: watch::Sender<Load>,
    pub(crate) clock: Clock,
}

impl<D: Device> StepLoop<D> {
    pub(crate) fn new(device: D, given: Given) -> Self {
        let Given { pool, commands, limits, keep, metrics, load, clock } = given;
        let prompts = Prompts::new(device.facts(), limits, keep, pool.clone(), clock.clone());
        let answers = Answers::new(&device.facts().ladder, limits);
        Self {
            device,
            pool,
            commands,
            metrics,
            load,
            clock,
            epoch: Epoch::default(),
            prompts,
            answers,
            prefill_rate: Rate::default(),
            decode_rate: Rate::default(),
        }
    }

    /// Runs until told to stop, or until nobody is left to ask.
    pub(crate) fn run(mut self) {
        loop {
            let waited = match self.turn() {
                Turn::Ran => continue,
                Turn::Stopped => return,
                Turn::Idle { until } => self.wait_for_command(until),
            };
            match waited {
                Ok(command) => {
                    if self.obey(command) == Go::Stop {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes what was asked, drops what was abandoned or is late, and runs the steps that there are, at most one of each
    /// phase. Never waits.
    pub(crate) fn turn(&mut self) -> Turn {
        if self.take_commands() == Go::Stop {
            return Turn::Stopped;
        }
        let now = self.clock.now();
        self.prompts.sweep(now);
        self.answers.sweep(now);
        let prefilled = self.prefill_step();
        let decoded = self.decode_step();
        self.publish();
        if prefilled || decoded {
            return Turn::Ran;
        }
        let deadlines = [self.prompts.next_deadline(), self.answers.next_deadline()];
        Turn::Idle { until: deadlines.into_iter().flatten().min() }
    }

    fn take_commands(&mut self) -> Go {
        for _ in 0..COMMANDS_PER_STEP {
            match self.commands.try_recv() {
                Ok(command) => {
                    if self.obey(command) == Go::Stop {
                        return Go::Stop;
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Go::Stop,
            }
        }
        Go::On
    }

    fn wait_for_command(&self, until: Option<Instant>) -> Result<Command, RecvTimeoutError> {
        match until {
            None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.commands.recv_timeout(until.saturating_duration_since(self.clock.now())),
        }
    }

    fn obey(&mut self, command: Command) -> Go {
        match command {
            Command::Prefill(start) => self.prompts.queue(*start),
            Command::ImportLatents { lease, piece, reply } => {
                let Piece { first, tokens, latents, keys } = piece;
                let done = self.device.import_latents(&lease, first, tokens, &latents, &keys);
                self.imported(lease, reply, done);
            }
            Command::ImportState { lease, tokens, state, reply } => {
                let done = self.device.import_state(lease.slot(), tokens, &state);
                self.imported(lease, reply, done);
            }
            Command::Poison { lease } => {
                let done = lease
                    .upgrade()
                    .map_or(Ok(()), |lease| self.device.poison(lease.own_pages(), lease.slot()));
                self.settle(done);
            }
            Command::Decode(start) => {
                let began = self.answers.begin(*start, self.epoch, &mut self.device);
                self.settle(began);
            }
            Command::Wake => {}
            Command::Stop => return Go::Stop,
        }
        Go::On
    }

    fn imported(
        &mut self,
        lease: Arc<Lease>,
        reply: oneshot::Sender<Result<Epoch, Error>>,
        done: Result<(), DeviceFault>,
    ) {
        let answer = match &done {
            Ok(()) => Ok(self.epoch),
            Err(fault) => Err(fault.into()),
        };
        // Freed before the answer, so that who awaits it finds the room free.
        drop(lease);
        self.settle(done);
        // Whoever asked may be gone; the room is free then, too.
        let _gone = reply.send(answer);
    }

    /// When a fault took the state arrays, every sequence lost its state.
    fn settle(&mut self, done: Result<(), DeviceFault>) {
        let Err(fault) = done else { return };
        tracing::error!(message = %fault.message, lost_state = fault.lost_state, "step failed on the device");
        if fault.lost_state {
            self.epoch.0 += 1;
            self.prompts.lose_state();
            self.answers.lose_state();
            self.pool.clear();
        }
    }

    fn prefill_step(&mut self) -> bool {
        let admitted = self.prompts.admit(self.clock.now(), &mut self.device);
        if let Ok(cached) = &admitted {
            self.metrics.prefix_hit_tokens.inc_by(*cached);
        }
        self.settle(admitted.map(drop));
        let Some(step) = self.prompts.next_step() else { return false };
        let began = self.clock.now();
        let done = self.prompts.run(&step, &mut self.device);
        if let Ok(Ran::Computed) = &done {
            let took = self.clock.now().duration_since(began);
            self.metrics.prefill_step.observe(took.as_secs_f64());
            self.metrics.prefill_tokens.inc_by(step.valid.into());
            self.prefill_rate.observe(step.valid, took);
        }
        self.settle(done.map(drop));
        true
    }

    fn decode_step(&mut self) -> bool {
        if !self.answers.plan() {
            return false;
        }
        let began = self.clock.now();
        let done = self.answers.run(&mut self.device);
        if let Ok(drawn) = &done {
            let took = self.clock.now().duration_since(began);
            self.metrics.decode_step.observe(took.as_secs_f64());
            self.metrics.decode_tokens.inc_by(drawn.tokens.into());
            self.metrics.drafted_tokens.inc_by(drawn.drafts.verified.into());
            self.metrics.accepted_tokens.inc_by(drawn.drafts.accepted.into());
            self.decode_rate.observe(drawn.tokens, took);
        }
        self.settle(done.map(drop));
        true
    }

    fn publish(&self) {
        let running = self.prompts.running() + self.answers.running();
        let load = Load {
            waiting: u32::try_from(self.prompts.waiting()).unwrap_or(u32::MAX),
            running: u32::try_from(running).unwrap_or(u32::MAX),
            queued_tokens: self.prompts.queued_tokens(),
            prefill_tokens_per_second: self.prefill_rate.tokens_per_second(),
            decode_tokens_per_second: self.decode_rate.tokens_per_second(),
            decode_step_seconds: self.decode_rate.step_seconds(),
            ..Load::idle(&self.pool)
        };
        self.load.send_if_modified(|known| {
            let changed = *known != load;
            *known = load;
            changed
        });
    }
}

impl From<&DeviceFault> for Error {
    fn from(fault: &DeviceFault) -> Self {
        if fault.lost_state { Self::StateLost } else { Self::Device { message: fault.message.clone() } }
    }
}
