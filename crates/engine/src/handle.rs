use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prefix::{Chain, HashUnit};
use scheduler::SequenceId;
use statepool::{Event, Missed, NoRoom};
use tokio::sync::{Mutex, Notify, watch};

use crate::command::{Command, Commands, StartPrefill};
use crate::outlet::outlet;
use crate::{
    Error, Facts, GenerateJob, GenerateStream, Limits, Load, Pool, PrefillJob, PrefillStream, Reservation,
    Role,
};

/// Reaches the device thread. A clone reaches the same one; when the engine stops every call says so.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) commands: Commands,
    pub(crate) pool: Pool,
    pub(crate) facts: Facts,
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    /// Of the prefix cache's hashes, where there is one.
    pub(crate) unit: Option<HashUnit>,
    pub(crate) load: watch::Receiver<Load>,
    /// Rings after each lease that was given back.
    pub(crate) freed: Arc<Notify>,
    /// Held by the one that is next to get room, so that those who wait are served in order.
    pub(crate) line: Mutex<()>,
    pub(crate) sequences: AtomicU64,
}

impl Shared {
    pub(crate) fn next_sequence(&self) -> SequenceId {
        SequenceId(self.sequences.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn check_tokens(&self, field: &'static str, tokens: &[u32]) -> Result<(), Error> {
        let vocabulary = self.facts.state.vocabulary;
        match tokens.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(Error::UnknownToken { field, id: *id, vocabulary }),
            None => Ok(()),
        }
    }

    fn check_length(&self, field: &'static str, tokens: usize) -> Result<u32, Error> {
        let context = self.facts.ladder.context;
        u32::try_from(tokens).ok().filter(|tokens| *tokens <= context).ok_or(Error::TooLong {
            field,
            tokens: tokens as u64,
            context,
        })
    }
}

impl EngineHandle {
    /// What one sequence keeps, and the shapes there are.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// Queues a prompt; refuses one that can not be computed here.
    pub fn prefill(&self, job: PrefillJob) -> Result<PrefillStream, Error> {
        let shared = &self.shared;
        if !shared.role.prefills() {
            return Err(Error::WrongRole { phase: "prefill" });
        }
        if job.prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        shared.check_length("prompt", job.prompt.len())?;
        shared.check_tokens("prompt", &job.prompt)?;
        // One more event than chunks: that it started.
        let (outlet, inlet) = outlet(shared.limits.unread_chunks + 1);
        let chain = shared.unit.map(|unit| Chain::of(&job.namespace, unit, &job.prompt));
        let start = StartPrefill { sequence: shared.next_sequence(), job, chain, outlet };
        shared.commands.send(Command::Prefill(Box::new(start)))?;
        Ok(PrefillStream::new(inlet, shared.commands.clone()))
    }

    /// Room for a sequence of `tokens` tokens, prompt and output together; fails if there is none now, or if others wait.
    pub fn reserve(&self, tokens: u32) -> Result<Reservation, Error> {
        self.check_reservation(tokens)?;
        match self.shared.line.try_lock() {
            Ok(_first_in_line) => Ok(self.lease(tokens)?),
            Err(_others_wait) => Err(self.no_room(tokens).into()),
        }
    }

    /// As [`EngineHandle::reserve`], but waits for its turn and for room, until the deadline. Dropping the future leaves the
    /// line.
    pub async fn reserve_by(&self, tokens: u32, deadline: Option<Instant>) -> Result<Reservation, Error> {
        self.check_reservation(tokens)?;
        let waiting = self.wait_for_room(tokens);
        match deadline {
            None => waiting.await,
            Some(deadline) => tokio::time::timeout_at(deadline.into(), waiting)
                .await
                .unwrap_or(Err(Error::DeadlinePassed { phase: "reserve" })),
        }
    }

    /// Prefill, local import and decode in one process, through the same types that workers use.
    pub fn generate(&self, job: GenerateJob) -> Result<GenerateStream, Error> {
        GenerateStream::begin(self.clone(), job)
    }

    /// How busy the engine is; pages and slots as of now, the rest as of the last step.
    pub fn load(&self) -> Load {
        let pool = &self.shared.pool;
        let load = *self.shared.load.borrow();
        Load { free_pages: pool.free_pages(), free_slots: pool.free_slots(), ..load }
    }

    /// Tells of every change of the load.
    pub fn watch_load(&self) -> watch::Receiver<Load> {
        self.shared.load.clone()
    }

    /// How far apart prompts can be resumed; none without a prefix cache.
    pub fn hash_unit(&self) -> Option<HashUnit> {
        self.shared.unit
    }

    /// What prompts can be resumed at and could not at the last call, and the other way round; or that it is too much, and
    /// [`EngineHandle::cached`] says what there is. For one caller, after changes of the load.
    pub fn cache_events(&self) -> Result<Vec<Event>, Missed> {
        self.shared.pool.drain_events()
    }

    /// Everything that prompts can be resumed at; events begin anew after it.
    pub fn cached(&self) -> Vec<Event> {
        self.shared.pool.snapshot()
    }

    fn check_reservation(&self, tokens: u32) -> Result<(), Error> {
        if !self.shared.role.decodes() {
            return Err(Error::WrongRole { phase: "decode" });
        }
        self.shared.check_length("tokens", tokens as usize)?;
        Ok(())
    }

    async fn wait_for_room(&self, tokens: u32) -> Result<Reservation, Error> {
        let _first_in_line = self.shared.line.lock().await;
        loop {
            // Listening begins before looking, or a lease given back in between would go unheard.
            let freed = self.shared.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.lease(tokens) {
                Ok(reservation) => return Ok(reservation),
                Err(no_room) if no_room.may_pass() => freed.await,
                Err(no_room) => return Err(no_room.into()),
            }
        }
    }

    fn lease(&self, tokens: u32) -> Result<Reservation, NoRoom> {
        let shared = &self.shared;
        let lease = Arc::new(shared.pool.reserve(shared.facts.paged_tokens(tokens))?);
        if shared.facts.poison {
            // When the engine is gone the first import says so.
            let _gone = shared.commands.send(Command::Poison { lease: Arc::downgrade(&lease) });
        } else {
            shared.commands.wake();
        }
        Ok(Reservation::new(Arc::clone(shared), lease, tokens))
    }

    fn no_room(&self, tokens: u32) -> NoRoom {
        let pool = &self.shared.pool;
        let shape = pool.shape();
        NoRoom {
            need_pages: shape.pages_for(self.shared.facts.paged_tokens(tokens)),
            need_slots: 1,
            free_pages: pool.free_pages(),
            free_slots: pool.free_slots(),
            pages: shape.pages,
            slots: shape.slots,
        }
    }
}
