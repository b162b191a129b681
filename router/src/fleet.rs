//! The router's view of the fleet: who is alive, what has been booked on whom, and how each is reached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use discovery::View;
use proto::v1::{Role, WorkerRecord};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;
use tracing::Span;

use crate::admission::Admitted;
use crate::caches::Caches;
use crate::channels::Channels;
use crate::dispatch::Stranded;
use crate::error::Error;
use crate::placement::{self, Booked, Candidate, Need, Wanted};
use crate::recovery::Failure;

/// Places requests on live workers. Clones are the same fleet.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    model: String,
    view: watch::Receiver<View>,
    books: Books,
    channels: Channels,
    caches: Caches,
    /// Workers come when requests ask for them.
    on_demand: bool,
    /// Whether a request has ever been placed.
    served: Arc<AtomicBool>,
}

/// Tells of changes of the fleet.
#[derive(Debug)]
pub(crate) struct News(watch::Receiver<View>);

/// A request with a prefill worker and a decode worker, whose load is booked until this is dropped.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) admitted: Box<Admitted>,
    pub(crate) prefill: Seat,
    pub(crate) decode: Seat,
    /// This attempt's, within the request's.
    pub(crate) span: Span,
}

/// A request's seat on one worker.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) record: Arc<WorkerRecord>,
    pub(crate) channel: Channel,
    booking: Booking,
}

/// What is booked on each incarnation.
#[derive(Clone, Debug, Default)]
struct Books(Arc<Mutex<HashMap<Bytes, Booked>>>);

#[derive(Debug)]
struct Booking {
    books: Books,
    incarnation: Bytes,
    amount: Booked,
}

impl Fleet {
    pub(crate) fn new(
        model: String,
        view: watch::Receiver<View>,
        channels: Channels,
        on_demand: bool,
    ) -> Self {
        let (books, caches) = (Books::default(), Caches::default());
        Self { model, view, books, channels, caches, on_demand, served: Arc::default() }
    }

    /// Chooses a pair and books the request on it.
    pub(crate) fn place(&self, admitted: Box<Admitted>) -> Result<Placed, Stranded> {
        let view = self.view.borrow().clone();
        match self.seats(&view, &admitted) {
            Ok((prefill, decode)) => {
                self.served.store(true, Ordering::Relaxed);
                let span = tracing::info_span!(
                    parent: &admitted.arrival.span,
                    "attempt",
                    number = i64::from(admitted.recovery.attempt()),
                    prefill = prefill.record.name,
                    decode = decode.record.name,
                    error = tracing::field::Empty,
                );
                Ok(Placed { admitted, prefill, decode, span })
            }
            Err(error) => {
                let served = self.on_demand || self.served.load(Ordering::Relaxed);
                let failure = Box::new(Failure::Unplaced { error, served });
                Err(Stranded { admitted, failure })
            }
        }
    }

    /// The registry's view.
    pub(crate) fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// Changes from now on.
    pub(crate) fn news(&self) -> News {
        let mut view = self.view.clone();
        view.mark_unchanged();
        News(view)
    }

    /// All members, and whether it is still told when they change.
    pub(crate) fn seen(&self) -> (View, bool) {
        (self.view.borrow().clone(), self.view.has_changed().is_ok())
    }

    /// Prompts that a worker is known to resume after; nothing where it has no prefix cache.
    pub(crate) fn checkpoints(&self, record: &WorkerRecord) -> Option<u64> {
        self.caches.count(&record.incarnation).map(|count| count as u64)
    }

    /// Whether a worker's membership has ended. Nobody's has when the registry itself is gone.
    pub(crate) fn has_left(&self, incarnation: &Bytes) -> bool {
        let member = || self.view.borrow().members().any(|member| member.record.incarnation == *incarnation);
        self.view.has_changed().is_ok() && !member()
    }

    /// Longest prompt and output together that every live worker takes, at most `model_context`.
    pub(crate) fn context(&self, model_context: u32) -> u32 {
        let view = self.view.borrow();
        let ladders = view.members().filter_map(|member| member.record.ladder.as_ref());
        ladders
            .map(|ladder| ladder.context_tokens)
            .filter(|&context| context > 0)
            .fold(model_context, u32::min)
    }

    /// Whether a request could be placed now, or where workers come on demand, when they have come.
    pub(crate) fn serves(&self) -> bool {
        if self.on_demand {
            return true;
        }
        let view = self.view.borrow().clone();
        placement::serves(&self.model, &self.candidates(&view, |_| 0))
    }

    /// Waits until members or their loads change, and forgets those that are gone. False: nothing will change again.
    pub(crate) async fn changed(&mut self) -> bool {
        let changed = self.view.changed().await.is_ok();
        let view = self.view.borrow_and_update().clone();
        self.channels
            .keep(|incarnation| view.members().any(|member| member.record.incarnation == incarnation));
        let records = view.members().map(|member| &member.record);
        self.caches.follow(records, |record| self.channels.to(record).ok());
        changed
    }

    /// Live workers of a role.
    pub(crate) fn count(&self, role: Role) -> usize {
        self.view.borrow().members().filter(|member| member.record.role() == role).count()
    }

    fn seats(&self, view: &View, admitted: &Admitted) -> Result<(Seat, Seat), Error> {
        let (request, log) = (&admitted.request, &admitted.log);
        let need = Need {
            prompt_tokens: log.prompt_tokens(request),
            total_tokens: request.prompt_tokens() + request.max_tokens,
        };
        let mut lookup = self.caches.of(request, log.output());
        let candidates = self.candidates(view, |record| lookup.cached(record));
        let avoid = admitted.recovery.avoid(Instant::now());
        let wanted = Wanted { model: &self.model, need, avoid: &avoid, like: log.drawn_by() };
        let pair = placement::choose(&wanted, &candidates)?;
        let uncached = need.prompt_tokens.saturating_sub(candidates[pair.prefill].cached);
        let record = |index| {
            let member = view.members().nth(index);
            member
                .map(|member| Arc::clone(&member.record))
                .ok_or_else(|| Error::NoWorker { role: Role::Unspecified, model: self.model.clone() })
        };
        let (prefill, decode) = (record(pair.prefill)?, record(pair.decode)?);
        let pages =
            decode.capacity.as_ref().map_or(0, |capacity| placement::pages(need.total_tokens, capacity));
        let prompt = Booked { prompt_tokens: u64::from(uncached), ..Booked::default() };
        let room = Booked { slots: 1, pages, ..Booked::default() };
        Ok((self.seat(prefill, prompt)?, self.seat(decode, room)?))
    }

    fn seat(&self, record: Arc<WorkerRecord>, amount: Booked) -> Result<Seat, Error> {
        let channel = self.channels.to(&record)?;
        let booking = self.books.book(record.incarnation.clone(), amount);
        Ok(Seat { record, channel, booking })
    }

    fn candidates<'a>(
        &self,
        view: &'a View,
        mut cached: impl FnMut(&WorkerRecord) -> u32,
    ) -> Vec<Candidate<'a>> {
        let books = self.books.lock().clone();
        let booked = |incarnation: &Bytes| books.get(incarnation).copied().unwrap_or_default();
        view.members()
            .map(|member| Candidate {
                record: &member.record,
                load: &member.load,
                booked: booked(&member.record.incarnation),
                cached: cached(&member.record),
            })
            .collect()
    }
}

impl News {
    /// Waits for a change; for ever when the registry is gone.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Seat {
    /// Of the prompt booked here only `left` tokens are still to be computed.
    pub(crate) fn prompt_left(&mut self, left: u64) {
        let amount = Booked { prompt_tokens: left, ..self.booking.amount };
        self.booking.change(amount);
    }
}

impl Books {
    fn book(&self, incarnation: Bytes, amount: Booked) -> Booking {
        let mut booking = Booking { books: self.clone(), incarnation, amount: Booked::default() };
        booking.change(amount);
        booking
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Bytes, Booked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Booking {
    fn change(&mut self, amount: Booked) {
        let mut books = self.books.lock();
        let booked = books.entry(self.incarnation.clone()).or_default();
        let old = std::mem::replace(&mut self.amount, amount);
        booked.prompt_tokens = booked.prompt_tokens - old.prompt_tokens + amount.prompt_tokens;
        booked.slots = booked.slots - old.slots + amount.slots;
        booked.pages = booked.pages - old.pages + amount.pages;
        if *booked == Booked::default() {
            books.remove(&self.incarnation);
        }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.change(Booked::default());
    }
}

#[cfg(test)]
mod tests;
