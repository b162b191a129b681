//! The cache against a naive model: a device whose every line says which tokens it was computed from, so that a line of
//! another prompt, of another namespace, or of nobody is seen wherever it is shared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};
use proptest::sample::Index;
use statepool::prefix::{Chain, HashUnit, Namespace, PrefixHash, Tokens};
use statepool::{
    Bytes, CacheConfig, Checkpoint, CheckpointPin, Event, Finished, Keep, Lease, Marks, PageCopy, PageId,
    Pool, PoolError, PoolShape,
};

#[path = "cache/faults.rs"]
mod faults;

const BYTES: u64 = 10;

/// What a line or state was computed from.
fn computed_from(salt: u8, tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, tokens).hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    tokens: u32,
    of: u64,
}

impl Checkpoint for State {
    fn tokens(&self) -> Tokens {
        Tokens(self.tokens)
    }

    fn bytes(&self) -> Bytes {
        Bytes(BYTES)
    }
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    unit: u32,
    page: u32,
    pages: u32,
    checkpoints: u64,
    rewrites: bool,
    keep: Keep,
}

fn setting() -> impl Strategy<Value = Setting> {
    (1u32..9, 1u32..7, 8u32..40, 0u64..9, any::<bool>(), any::<bool>()).prop_map(
        |(unit, page, pages, checkpoints, rewrites, worth)| {
            let keep = if worth { Keep::Worth } else { Keep::Recent };
            Setting { unit, page, pages, checkpoints, rewrites, keep }
        },
    )
}

#[derive(Clone, Debug)]
enum Act {
    /// Of one of two tenants: a beginning of one of two texts, and an end of its own.
    Admit {
        salt: u8,
        text: u32,
        common: usize,
        own: Vec<u32>,
        answer: u32,
    },
    /// One step, to the next mark or the prompt's end.
    Step(Index),
    /// A state of another position is offered.
    Lie(Index),
    Drop(Index),
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let own = prop::collection::vec(0u32..2, 0..9);
    prop_oneof![
        40 => (0u8..2, 0u32..2, 0usize..30, own, 0u32..9)
            .prop_map(|(salt, text, common, own, answer)| Act::Admit { salt, text, common, own, answer }),
        80 => any::<Index>().prop_map(Act::Step),
        10 => any::<Index>().prop_map(Act::Lie),
        20 => any::<Index>().prop_map(Act::Drop),
        1 => prop::strategy::Just(Act::Clear),
    ]
}

struct Sequence {
    salt: u8,
    tokens: Vec<u32>,
    lease: Lease<State>,
    /// Until the first step.
    loading: Option<(CheckpointPin<State>, Option<PageCopy<State>>)>,
    marks: Vec<Tokens>,
    resumed: u32,
    done: u32,
}

/// Per page and line: what the latent, and what the draft layer's line, was computed from.
type Lines = Vec<[Option<u64>; 2]>;

struct World {
    setting: Setting,
    pool: Pool<State>,
    device: BTreeMap<PageId, Lines>,
    running: Vec<Sequence>,
    /// By the events.
    stored: BTreeMap<PrefixHash, Tokens>,
}

impl World {
    fn new(setting: Setting) -> Self {
        let shape = PoolShape { pages: setting.pages, slots: 4, page_tokens: setting.page };
        let unit = HashUnit::new(setting.unit).unwrap();
        let config = CacheConfig {
            rewrites_last_line: setting.rewrites,
            keep: setting.keep,
            marks: Marks { grid: std::num::NonZeroU32::new(2), ..Marks::default() },
            remembered: 64,
            ..CacheConfig::new(unit, Bytes(setting.checkpoints * BYTES))
        };
        let pool = Pool::with_cache(shape, Some(config), || {});
        Self { setting, pool, device: BTreeMap::new(), running: Vec::new(), stored: BTreeMap::new() }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Admit { salt, text, common, own, answer } => {
                let mut tokens: Vec<u32> = (0..30).map(|at| at * (text + 1) % 5).take(common).collect();
                tokens.extend(own);
                tokens.push(9);
                self.admit(salt, tokens, answer);
            }
            Act::Step(at) if !self.running.is_empty() => self.step(at.index(self.running.len())),
            Act::Lie(at) if !self.running.is_empty() => self.lie(at.index(self.running.len())),
            Act::Drop(at) if !self.running.is_empty() => {
                self.running.swap_remove(at.index(self.running.len()));
            }
            Act::Clear => self.pool.clear(),
            Act::Step(_) | Act::Lie(_) | Act::Drop(_) => {}
        }
    }

    fn admit(&mut self, salt: u8, tokens: Vec<u32>, answer: u32) {
        let unit = HashUnit::new(self.setting.unit).unwrap();
        let chain = Chain::of(&Namespace::of(&[salt], b"model"), unit, &tokens);
        let longest = chain
            .boundaries()
            .filter(|at| at.tokens < chain.tokens() && self.stored.contains_key(&at.hash))
            .map(|at| at.tokens)
            .last();
        let want = Tokens(chain.tokens().0 + answer);
        let need = self.pool.shape().pages_for(want.0);
        let before = self.pool.free_pages();
        let admitted = match self.pool.admit(&chain, want) {
            Ok(admitted) => admitted,
            Err(PoolError::NoRoom(refused)) => {
                assert!(refused.free_slots == 0 || refused.free_pages < need, "{refused}");
                assert_eq!(refused.may_pass(), need <= self.setting.pages);
                assert_eq!(self.pool.free_pages(), before, "a refusal changes nothing");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        let resumed = admitted.hit.as_ref().map(|hit| hit.resume_at);
        // A hit pins at most a page for each of its boundaries that the lease does not share.
        let tight = before < need + chain.units().0;
        assert!(resumed == longest || (resumed.is_none() && tight), "{resumed:?}, not {longest:?}");
        for page in admitted.lease.own_pages() {
            self.device.insert(*page, vec![[None; 2]; self.setting.page as usize]);
        }
        let done = resumed.unwrap_or_default().0;
        let loading = admitted.hit.map(|hit| (hit.checkpoint, hit.copy));
        let mut marks = admitted.marks;
        marks.reverse();
        let lease = admitted.lease;
        assert!(lease.capacity() >= want.0);
        self.running.push(Sequence { salt, tokens, lease, loading, marks, resumed: done, done });
        if self.running.last().unwrap().loading.is_some() {
            self.resume();
        }
    }

    /// Copies the page, compares all that is shared.
    fn resume(&mut self) {
        let sequence = self.running.last_mut().unwrap();
        let at = sequence.resumed;
        let (pin, copy) = sequence.loading.as_mut().unwrap();
        let of = computed_from(sequence.salt, &sequence.tokens[..at as usize]);
        assert_eq!(pin.load().unwrap(), &State { tokens: at, of });
        if let Some(copy) = copy {
            assert_eq!(sequence.lease.own_pages().first(), Some(&copy.to()));
            let lines = self.device[&copy.from()].clone();
            self.device.insert(copy.to(), lines);
        }
        for position in 0..at {
            let page = sequence.lease.pages()[(position / self.setting.page) as usize];
            let line = self.device[&page][(position % self.setting.page) as usize];
            let of = |to: u32| Some(computed_from(sequence.salt, &sequence.tokens[..to as usize]));
            assert_eq!(line[0], of(position + 1), "latent of {position}, resumed at {at}");
            if self.setting.rewrites && position + 1 < at {
                assert_eq!(line[1], of(position + 2), "draft line of {position}, resumed at {at}");
            }
        }
    }

    fn step(&mut self, index: usize) {
        let setting = self.setting;
        let sequence = &mut self.running[index];
        sequence.loading = None;
        let total = sequence.tokens.len() as u32;
        let mark = sequence.marks.pop();
        let end = mark.map_or(total, |mark| mark.0);
        let from = if setting.rewrites { sequence.done.saturating_sub(1) } else { sequence.done };
        let own: HashSet<PageId> = sequence.lease.own_pages().iter().copied().collect();
        for position in from..end {
            let page = sequence.lease.pages()[(position / setting.page) as usize];
            assert!(own.contains(&page), "a shared page is written at {position}");
            let line = &mut self.device.get_mut(&page).unwrap()[(position % setting.page) as usize];
            let of = |to: u32| computed_from(sequence.salt, &sequence.tokens[..to as usize]);
            line[0] = Some(of(position + 1));
            line[1] = (position + 1 < end).then(|| of(position + 2));
        }
        assert!(end >= sequence.done);
        sequence.done = end;
        if mark.is_some() {
            let of = computed_from(sequence.salt, &sequence.tokens[..end as usize]);
            let state = State { tokens: end, of };
            sequence.lease.publish(Finished { tokens: Tokens(end) }, state).unwrap();
        }
    }

    fn lie(&mut self, index: usize) {
        let (unit, sequence) = (self.setting.unit, &mut self.running[index]);
        let tokens = sequence.done;
        let wrong = State { tokens: tokens + 1, of: 0 };
        let refused = sequence.lease.publish(Finished { tokens: Tokens(tokens) }, wrong).unwrap_err();
        let boundary = tokens > 0 && tokens.is_multiple_of(unit);
        assert_eq!(matches!(refused, PoolError::WrongPosition { .. }), boundary, "{refused}");
        assert_eq!(matches!(refused, PoolError::NotABoundary { .. }), !boundary, "{refused}");
    }

    /// Counts against what runs and what the events say.
    fn check(&mut self) {
        for event in self.pool.drain_events().unwrap() {
            match event {
                Event::Stored { hash, position, .. } => assert_eq!(self.stored.insert(hash, position), None),
                Event::Removed { hash, position, .. } => {
                    assert_eq!(self.stored.remove(&hash), Some(position))
                }
            }
        }
        let usage = self.pool.usage();
        let mut pages: HashSet<PageId> = HashSet::new();
        let mut own: HashSet<PageId> = HashSet::new();
        let mut pins = HashSet::new();
        for sequence in &self.running {
            pages.extend(sequence.lease.pages());
            assert!(sequence.lease.own_pages().iter().all(|page| own.insert(*page)), "two write one page");
            if let Some((_, copy)) = &sequence.loading {
                pages.extend(copy.as_ref().map(PageCopy::from));
                pins.insert((sequence.salt, &sequence.tokens[..sequence.resumed as usize]));
            }
        }
        assert_eq!(usage.held_pages as usize, pages.len());
        assert_eq!(usage.held_slots as usize, self.running.len());
        assert_eq!(usage.held_checkpoints as usize, pins.len());
        assert_eq!(usage.free_pages + usage.held_pages + usage.cached_pages, self.setting.pages);
        assert_eq!(usage.cached_checkpoints as usize, self.stored.len());
        assert_eq!(usage.cached_bytes, BYTES * self.stored.len() as u64);
        assert!(usage.cached_bytes <= BYTES * self.setting.checkpoints);
    }
}

proptest! {
    #[test]
    fn a_hit_is_what_was_computed_and_everything_comes_back(
        setting in setting(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut world = World::new(setting);
        for act in acts {
            world.act(act);
            world.check();
        }
        world.running.clear();
        world.check();
        let usage = world.pool.usage();
        assert_eq!((usage.held_pages, usage.held_slots, usage.held_checkpoints), (0, 0, 0));
        assert_eq!(world.pool.free_pages(), setting.pages, "what nobody uses can be had");
        world.pool.clear();
        world.check();
        assert_eq!(world.pool.usage().free_pages, setting.pages);
        assert!(world.stored.is_empty());
    }
}
