use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::command::{Command, Epoch, Piece, StartDecode};
use crate::coverage::Coverage;
use crate::handle::Shared;
use crate::outlet::outlet;
use crate::{DecodeJob, DecodeStream, Error, Lease, SlotState};

/// Room for one sequence, to be filled with its state and then started. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    shared: Arc<Shared>,
    lease: Arc<Lease>,
    tokens: u32,
    imported: Mutex<Imported>,
}

/// What has arrived, in which state arrays.
#[derive(Debug, Default)]
struct Imported {
    epoch: Epoch,
    latents: Coverage,
    /// Tokens that the fixed-size state is after.
    state: Option<u32>,
}

impl Imported {
    /// What was imported to arrays that are gone is gone.
    fn enter(&mut self, epoch: Epoch) {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
    }
}

/// A refused start gives the room back to the caller.
#[derive(Debug)]
pub struct NotStarted {
    /// As it was.
    pub reservation: Reservation,
    /// Why.
    pub error: Error,
}

impl Reservation {
    pub(crate) fn new(shared: Arc<Shared>, lease: Arc<Lease>, tokens: u32) -> Self {
        Self { shared, lease, tokens, imported: Mutex::default() }
    }

    /// Tokens that fit, prompt and output together.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Writes latents f32 `[latent_layers, tokens, latent_width]` of the positions from `first_position` on, and the index keys
    /// f32 `[latent_layers, pools, index_dim]` of the [pools](crate::Facts::pools) that they complete: none where attention is
    /// not sparse. Pieces may be of any length, in any order; one that comes again is written again.
    pub async fn import_latents(
        &self,
        first_position: u32,
        tokens: u32,
        latents: impl Into<Arc<[f32]>>,
        keys: impl Into<Arc<[f32]>>,
    ) -> Result<(), Error> {
        let (latents, keys) = (latents.into(), keys.into());
        let facts = &self.shared.facts;
        let latent = facts.state.latent_layers * facts.state.latent_width;
        check_count("latents", tokens as usize * latent, latents.len())?;
        let end = self.end_of("latents", first_position, tokens)?;
        check_count("keys", facts.key_elements(&facts.pools(first_position, tokens)), keys.len())?;
        if tokens == 0 {
            return Ok(());
        }
        let lease = Arc::clone(&self.lease);
        let piece = Piece { first: first_position, tokens, latents, keys };
        let epoch = self.import(|reply| Command::ImportLatents { lease, piece, reply }).await?;
        let mut imported = self.imported();
        imported.enter(epoch);
        imported.latents.add(first_position, end);
        Ok(())
    }

    /// Writes the fixed-size state, which is that after `tokens` tokens: the whole prompt.
    pub async fn import_state(&self, tokens: u32, state: SlotState) -> Result<(), Error> {
        let shape = &self.shared.facts.state;
        check_count("recurrent", shape.recurrent_elements(), state.recurrent.len())?;
        check_count("tails", shape.tail_elements(), state.tails.len())?;
        check_count("index_tail", shape.index_tail_elements(), state.index_tail.len())?;
        check_count("hidden", shape.hidden.unwrap_or(0), state.hidden.len())?;
        self.end_of("state", tokens, 0)?;
        let lease = Arc::clone(&self.lease);
        let epoch = self.import(|reply| Command::ImportState { lease, tokens, state, reply }).await?;
        let mut imported = self.imported();
        imported.enter(epoch);
        imported.state = Some(tokens);
        Ok(())
    }

    /// Lets the sequence join the running set, once all of its state is imported.
    ///
    /// # Errors
    /// [`NotStarted`] with the reservation as it was, so that what is missing can be imported.
    pub fn start(self, job: DecodeJob) -> Result<DecodeStream, Box<NotStarted>> {
        match self.try_start(job) {
            Ok(stream) => Ok(stream),
            Err(error) => Err(Box::new(NotStarted { reservation: self, error })),
        }
    }

    fn try_start(&self, job: DecodeJob) -> Result<DecodeStream, Error> {
        self.end_of("prompt_len", job.prompt_len, 0)?;
        self.shared.check_tokens("first_token", &[job.first_token])?;
        self.shared.check_tokens("prompt_seen", &job.prompt_seen)?;
        for (token, _) in &job.output_counts {
            self.shared.check_tokens("output_counts", &[*token])?;
        }
        let epoch = self.complete(job.prompt_len)?;
        let (outlet, inlet) = outlet(self.shared.limits.unread_tokens);
        let start = StartDecode {
            sequence: self.shared.next_sequence(),
            lease: Arc::clone(&self.lease),
            capacity: self.tokens,
            epoch,
            job,
            outlet,
        };
        self.shared.commands.send(Command::Decode(Box::new(start)))?;
        Ok(DecodeStream::new(inlet, self.shared.commands.clone()))
    }

    /// The arrays that hold all of the sequence's state.
    fn complete(&self, prompt_len: u32) -> Result<Epoch, Error> {
        let imported = self.imported();
        if let Some(position) = imported.latents.missing(prompt_len) {
            return Err(Error::Incomplete { missing: format!("the latent of position {position}") });
        }
        if imported.state != Some(prompt_len) {
            return Err(Error::Incomplete { missing: format!("the state after {prompt_len} tokens") });
        }
        Ok(imported.epoch)
    }

    async fn import(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<Epoch, Error>>) -> Command,
    ) -> Result<Epoch, Error> {
        let (reply, answer) = oneshot::channel();
        self.shared.commands.send(command(reply))?;
        answer.await.unwrap_or(Err(Error::Stopped))
    }

    fn end_of(&self, field: &'static str, first: u32, tokens: u32) -> Result<u32, Error> {
        let end = u64::from(first) + u64::from(tokens);
        u32::try_from(end).ok().filter(|end| *end <= self.tokens).ok_or(Error::BeyondReservation {
            field,
            end,
            capacity: self.tokens,
        })
    }

    fn imported(&self) -> MutexGuard<'_, Imported> {
        self.imported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_count(field: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Misshapen { field, expected, got }) }
}
