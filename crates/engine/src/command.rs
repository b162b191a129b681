use std::sync::mpsc;
use std::sync::{Arc, Weak};

use prefix::Chain;
use scheduler::SequenceId;
use tokio::sync::{Notify, oneshot};

use crate::decode::{DecodeEvent, DecodeJob};
use crate::outlet::Outlet;
use crate::prefill::{PrefillEvent, PrefillJob};
use crate::{Error, Lease, SlotState};

/// What handles ask of the device thread. Commands that touch a sequence's state carry its lease, so that its pages can not
/// pass to another before the command is done.
#[derive(Debug)]
pub(crate) enum Command {
    /// Queue a prompt.
    Prefill(Box<StartPrefill>),
    /// Write latents and index keys to the lease's pages.
    ImportLatents { lease: Arc<Lease>, piece: Piece, reply: Imported },
    /// Write the fixed-size state after `tokens` tokens to the lease's slot.
    ImportState { lease: Arc<Lease>, tokens: u32, state: SlotState, reply: Imported },
    /// Fill the lease's pages and slot with NaN, if it is still held: the next to get them asks again.
    Poison { lease: Weak<Lease> },
    /// Let an imported sequence join the running set.
    Decode(Box<StartDecode>),
    /// Look again: something was read, dropped or freed.
    Wake,
    /// End the thread.
    Stop,
}

/// What consecutive tokens keep in pages.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Position of the first.
    pub(crate) first: u32,
    pub(crate) tokens: u32,
    /// f32 `[latent_layers, tokens, latent_width]`.
    pub(crate) latents: Arc<[f32]>,
    /// f32 `[latent_layers, pools, index_dim]`.
    pub(crate) keys: Arc<[f32]>,
}

/// Answered with the epoch of the state arrays that were written to.
pub(crate) type Imported = oneshot::Sender<Result<Epoch, Error>>;

/// Counts how often the state arrays were made anew; what was imported before is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct StartPrefill {
    pub(crate) sequence: SequenceId,
    pub(crate) job: PrefillJob,
    /// Of its tokens, where there is a prefix cache.
    pub(crate) chain: Option<Chain>,
    pub(crate) outlet: Outlet<PrefillEvent>,
}

#[derive(Debug)]
pub(crate) struct StartDecode {
    pub(crate) sequence: SequenceId,
    pub(crate) lease: Arc<Lease>,
    /// Tokens reserved.
    pub(crate) capacity: u32,
    /// The arrays that the state was imported to.
    pub(crate) epoch: Epoch,
    pub(crate) job: DecodeJob,
    pub(crate) outlet: Outlet<DecodeEvent>,
}

/// Sends to whoever runs the step loop.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) queue: mpsc::Sender<Command>,
    /// Rings for each, for a loop that is not waiting at the queue.
    pub(crate) bell: Arc<Notify>,
}

impl Commands {
    pub(crate) fn send(&self, command: Command) -> Result<(), Error> {
        self.queue.send(command).map_err(|_| Error::Stopped)?;
        self.bell.notify_one();
        Ok(())
    }

    /// Makes the device thread look again; when it is gone there is nobody to look.
    pub(crate) fn wake(&self) {
        let _gone = self.send(Command::Wake);
    }
}
