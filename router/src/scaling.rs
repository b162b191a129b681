//! What autoscalers are told: KEDA's external scaler over the loads of the fleet.
//!
//! Every second the loads of all workers, and the requests that no worker has at any router, go to a [`Scaler`] for each way that
//! somebody asks. Routers hear the same workers and each other, so it does not matter which one is asked.

mod demand;
mod peers;
mod service;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery::{Member, View};
use proto::v1::Role;
use scaler::{Answer, DecodeLoad, Load, PrefillLoad, Refused, Scaler, Settings};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub(crate) use demand::{Demand, Unplaced};
pub(crate) use peers::Peers;
pub(crate) use service::{External, PeerService};

const EVERY: Duration = Duration::from_secs(1);
/// Ways to ask that are kept: two for each pool of a large cluster.
const MOST: usize = 256;

type Metadata = BTreeMap<String, String>;

/// The scalers of one router. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Scaling {
    view: watch::Receiver<View>,
    demand: Demand,
    scalers: Arc<Mutex<BTreeMap<Metadata, Scaler>>>,
    /// The last loads, or why there are none. Changes every second.
    loads: watch::Sender<Result<Loads, String>>,
}

/// Of both roles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Loads {
    prefill: PrefillLoad,
    decode: DecodeLoad,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    Refused(Refused),
    /// Another way to ask than all that are kept.
    TooMany,
    Unmeasured(String),
}

impl Scaling {
    pub(crate) fn new(view: watch::Receiver<View>, demand: Demand) -> Self {
        let loads = watch::Sender::new(Ok(Loads::of(&view.borrow(), demand.now())));
        Self { view, demand, scalers: Arc::default(), loads }
    }

    /// Measures, for ever.
    pub(crate) async fn keep(self, peers: Option<Peers>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let others = match &peers {
                Some(peers) => peers.demand().await,
                None => Ok(Unplaced::default()),
            };
            let measured = others.map(|others| Loads::of(&self.view.borrow(), self.demand.now().and(others)));
            match &measured {
                Ok(loads) => {
                    let now = Instant::now().into_std();
                    self.lock().values_mut().for_each(|scaler| loads.tell(scaler, now));
                }
                Err(why) => tracing::warn!(why, "the cluster's demand is not known"),
            }
            self.loads.send_modify(|loads| *loads = measured);
        }
    }

    /// What is asked for by a way to ask, which is kept from now on.
    pub(crate) fn answer(&self, metadata: &Metadata) -> Result<Answer, NoAnswer> {
        let loads = self.loads.borrow().clone().map_err(NoAnswer::Unmeasured)?;
        let mut scalers = self.lock();
        if let Some(scaler) = scalers.get(metadata) {
            return Ok(scaler.answer());
        }
        let mut scaler = Scaler::new(Settings::parse(metadata).map_err(NoAnswer::Refused)?);
        if scalers.len() >= MOST {
            return Err(NoAnswer::TooMany);
        }
        loads.tell(&mut scaler, Instant::now().into_std());
        let answer = scaler.answer();
        scalers.insert(metadata.clone(), scaler);
        Ok(answer)
    }

    /// Changes whenever answers may.
    fn changes(&self) -> watch::Receiver<Result<Loads, String>> {
        self.loads.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Metadata, Scaler>> {
        self.scalers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loads {
    fn of(view: &View, unplaced: Unplaced) -> Self {
        let of_role = |role: Role| {
            view.members().filter(move |member| member.record.role() == role && !member.load.draining)
        };
        let mut prefill = PrefillLoad { tokens: unplaced.prompt_tokens, ..PrefillLoad::default() };
        let (mut rates, mut measured) = (0.0, 0u32);
        for Member { load, .. } in of_role(Role::Prefill) {
            prefill.workers += 1;
            prefill.busy += u32::from(load.queued_tokens > 0 || load.running > 0);
            prefill.tokens = prefill.tokens.saturating_add(load.queued_tokens);
            if load.tokens_per_second > 0.0 {
                (rates, measured) = (rates + load.tokens_per_second, measured + 1);
            }
        }
        prefill.tokens_per_second = if measured > 0 { rates / f64::from(measured) } else { 0.0 };
        let mut decode = DecodeLoad { sequences: unplaced.requests, ..DecodeLoad::default() };
        let (mut slots, mut pages, mut taken) = (0u64, 0u64, 0u64);
        for Member { record, load } in of_role(Role::Decode) {
            let capacity = record.capacity.unwrap_or_default();
            decode.workers += 1;
            slots += u64::from(capacity.slots);
            pages += u64::from(capacity.pages);
            taken += u64::from(capacity.pages.saturating_sub(load.free_pages));
            let held = capacity.slots.saturating_sub(load.free_slots);
            decode.sequences += u64::from(held) + u64::from(load.waiting);
            decode.itl = decode.itl.max(load.step_seconds);
        }
        decode.slots = u32::try_from(slots / u64::from(decode.workers.max(1))).unwrap_or(u32::MAX);
        decode.pages = if pages > 0 { taken as f64 / pages as f64 } else { 0.0 };
        prefill.sequences = decode.sequences;
        Self { prefill, decode }
    }

    fn tell(&self, scaler: &mut Scaler, now: std::time::Instant) {
        scaler.observe(Load::Prefill(self.prefill), now);
        scaler.observe(Load::Decode(self.decode), now);
    }
}

#[cfg(test)]
mod tests;
