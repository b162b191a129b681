//! One trace through one pool: what an index of attention pages alone would claim, what the pool gives, what it costs.

use std::collections::{BTreeMap, HashMap};

use statepool::prefix::{HashUnit, PrefixHash, Tokens};
use statepool::{Bytes, CacheConfig, Checkpoint, Finished, Keep, Marks, Pool, PoolShape, Published};

use crate::trace::{Prompt, Trace};

const PAGE: u32 = 256;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Tokens that fit in the pages.
    pub(crate) tokens: u32,
    /// Checkpoints that fit on the host.
    pub(crate) checkpoints: u64,
}

impl Capacity {
    /// As much as the trace can use.
    pub(crate) fn whole(trace: &Trace) -> Self {
        let whole: u32 =
            trace.prompts.iter().map(|prompt| prompt.chain.tokens().0.next_multiple_of(PAGE)).sum();
        Self { tokens: whole, checkpoints: u64::from(whole) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Tokens of all prompts.
    pub(crate) seen: u64,
    /// Those that an attention-only index of the same capacity finds.
    pub(crate) claimed: u64,
    /// Those that prompts resumed after.
    pub(crate) usable: u64,
    /// Those of the usable whose pages or state were another prompt's.
    pub(crate) phantom: u64,
    pub(crate) checkpoints: u64,
}

impl Outcome {
    pub(crate) fn ratio(&self) -> f64 {
        self.usable as f64 / self.claimed as f64
    }

    pub(crate) fn checkpoints_per_1000_computed(&self) -> f64 {
        self.checkpoints as f64 * 1000.0 / (self.seen - self.usable) as f64
    }
}

/// One unit's checkpoint costs 1.
struct State {
    tokens: Tokens,
    of: PrefixHash,
}

impl Checkpoint for State {
    fn tokens(&self) -> Tokens {
        self.tokens
    }

    fn bytes(&self) -> Bytes {
        Bytes(1)
    }
}

pub(crate) fn replay(trace: &Trace, marks: Marks, keep: Keep, capacity: Capacity) -> Outcome {
    let shape = PoolShape { pages: capacity.tokens / PAGE, slots: 1, page_tokens: PAGE };
    let unit = HashUnit::default();
    let config = CacheConfig {
        marks,
        keep,
        rewrites_last_line: true,
        ..CacheConfig::new(unit, Bytes(capacity.checkpoints))
    };
    let pool = Pool::with_cache(shape, Some(config), || {});
    let mut device = vec![None; shape.pages as usize];
    let mut index = AttentionIndex::new(capacity.tokens / unit.tokens().0);
    let mut outcome = Outcome::default();
    for prompt in &trace.prompts {
        outcome.seen += u64::from(prompt.chain.tokens().0);
        outcome.claimed += u64::from(index.pass(prompt) * unit.tokens().0);
        serve(&pool, &mut device, prompt, &mut outcome);
    }
    outcome
}

/// Admits, computes and publishes one prompt. A page of the device holds the block that it was computed from.
fn serve(pool: &Pool<State>, device: &mut [Option<u32>], prompt: &Prompt, outcome: &mut Outcome) {
    let chain = &prompt.chain;
    let mut admitted = pool.admit(chain, chain.tokens()).unwrap();
    let block = |page: usize| Some(prompt.blocks[page / (chain.unit().tokens().0 / PAGE) as usize]);
    let own = admitted.lease.pages().len() - admitted.lease.own_pages().len();
    for page in admitted.lease.own_pages() {
        device[page.0 as usize] = None;
    }
    let mut resume = 0;
    if let Some(mut hit) = admitted.hit.take() {
        if let Some(copy) = &hit.copy {
            device[copy.to().0 as usize] = device[copy.from().0 as usize];
        }
        resume = hit.resume_at.0;
        let pages = admitted.lease.pages().iter().take((resume / PAGE) as usize);
        let filled = pages.enumerate().all(|(at, page)| device[page.0 as usize] == block(at));
        let of = chain.hash(chain.unit().whole(hit.resume_at));
        let state = hit.checkpoint.load().is_ok_and(|state| Some(state.of) == of);
        outcome.usable += u64::from(resume);
        outcome.phantom += if filled && state { 0 } else { u64::from(resume) };
    }
    for (at, page) in admitted.lease.pages().iter().enumerate().skip(own.max((resume / PAGE) as usize)) {
        device[page.0 as usize] = block(at);
    }
    for tokens in admitted.marks {
        let of = chain.hash(chain.unit().whole(tokens)).unwrap();
        let published = admitted.lease.publish(Finished { tokens }, State { tokens, of }).unwrap();
        outcome.checkpoints += u64::from(published == Published::Stored);
    }
}

/// What a cache of attention pages alone has: all whole blocks of all prompts, the least recently used go first.
struct AttentionIndex {
    most: usize,
    clock: u64,
    used: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
}

impl AttentionIndex {
    fn new(most: u32) -> Self {
        Self { most: most as usize, clock: 0, used: HashMap::new(), order: BTreeMap::new() }
    }

    /// Units of the prompt that are known, before its own become so.
    fn pass(&mut self, prompt: &Prompt) -> u32 {
        let whole = &prompt.blocks[..prompt.chain.units().0 as usize];
        let usable = prompt.chain.usable().0 as usize;
        let known = whole[..usable].iter().take_while(|block| self.used.contains_key(block)).count();
        // From the end, so that no block is older than those that need it.
        for block in whole.iter().rev() {
            self.clock += 1;
            if let Some(former) = self.used.insert(*block, self.clock) {
                self.order.remove(&former);
            }
            self.order.insert(self.clock, *block);
        }
        while self.used.len() > self.most {
            if let Some((_, block)) = self.order.pop_first() {
                self.used.remove(&block);
            }
        }
        known as u32
    }
}
