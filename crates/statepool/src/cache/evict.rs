use prefix::PrefixHash;

use super::{Cache, Kept, Node};
use crate::event::Event;
use crate::pages::Pages;
use crate::{Bytes, Keep};

/// Uses count for less the more there are: what was used ten times is not used ten times as soon as what was used once. Of the
/// exponents 0.35 to 1 this is the best over all traces and sizes of `benches/replay`.
const FAME: f64 = 0.75;

/// What dropping one checkpoint brings and costs.
struct Stake {
    /// Tokens that its prompts would compute again.
    tokens: f64,
    /// Pages that go with it, if it is a leaf.
    pages: f64,
}

impl<C> Cache<C> {
    /// Drops leaves until `need` pages are free. The caller has seen that enough are evictable.
    pub(crate) fn free_pages(&mut self, pages: &mut Pages, need: u32) {
        while pages.free() < need {
            let Some((rank, hash)) = self.order.pages.first() else { return };
            if self.moved(hash) {
                continue;
            }
            if self.config.keep == Keep::Worth {
                self.order.pages.evicted(rank);
            }
            self.drop_checkpoint(pages, hash);
        }
    }

    /// Drops checkpoints until `bytes` more are within the budget; none where that can not be reached.
    pub(super) fn make_room(&mut self, pages: &mut Pages, bytes: Bytes) -> bool {
        let budget = self.config.budget.0;
        if self.counts.held_bytes.saturating_add(bytes.0) > budget {
            return false;
        }
        while self.counts.bytes.saturating_add(bytes.0) > budget {
            let Some((rank, hash)) = self.order.bytes.first() else { return false };
            if self.moved(hash) {
                continue;
            }
            if self.config.keep == Keep::Worth {
                self.order.bytes.evicted(rank);
            }
            self.drop_checkpoint(pages, hash);
        }
        true
    }

    /// Drops all that nobody uses.
    pub(crate) fn clear(&mut self, pages: &mut Pages) {
        while let Some((_, hash)) = self.order.bytes.first() {
            self.drop_checkpoint(pages, hash);
        }
    }

    /// A boundary loses its checkpoint, and goes with its pages unless another needs them.
    pub(super) fn drop_checkpoint(&mut self, pages: &mut Pages, hash: PrefixHash) {
        let Some(node) = self.nodes.get_mut(&hash) else { return };
        let Some(mut kept) = node.kept.take() else { return };
        self.order.bytes.put(hash, &mut kept.in_bytes, None);
        self.order.pages.put(hash, &mut kept.in_pages, None);
        self.counts.checkpoints = self.counts.checkpoints.saturating_sub(1);
        self.counts.bytes = self.counts.bytes.saturating_sub(kept.bytes);
        let position = self.config.unit.position(node.at);
        self.events.push(Event::Removed { hash, position, bytes: Bytes(kept.bytes) });
        self.seen.note(hash, |passed| passed.uses = kept.uses);
        self.grave.push(kept.state);
        self.prune(pages, hash);
    }

    /// Drops `from` and the ancestors that nothing needs any more.
    pub(super) fn prune(&mut self, pages: &mut Pages, from: PrefixHash) {
        let mut next = Some(from);
        while let Some(hash) = next {
            let needless = |node: &Node<C>| node.kept.is_none() && node.children == 0 && node.pins == 0;
            if !self.nodes.get(&hash).is_some_and(needless) {
                return;
            }
            let Some(node) = self.nodes.remove(&hash) else { return };
            node.each_page(|page| pages.uncache(&[page]));
            next = node.parent;
            if let Some(parent) = next {
                self.nodes.entry(parent).and_modify(|node| node.children = node.children.saturating_sub(1));
                self.requeue(parent);
            }
        }
    }

    /// Whether a queue had a checkpoint too low: what lies before it may have gone since its last use.
    fn moved(&mut self, hash: PrefixHash) -> bool {
        let ranks = |kept: &Kept<C>| (kept.in_bytes, kept.in_pages);
        let of = |cache: &Self| cache.nodes.get(&hash).and_then(|node| node.kept.as_ref()).map(ranks);
        let before = of(self);
        self.requeue(hash);
        before != of(self)
    }

    /// Puts a checkpoint into the queues it belongs to, at the rank it has now.
    pub(super) fn requeue(&mut self, hash: PrefixHash) {
        if self.nodes.get(&hash).is_none_or(|node| node.kept.is_none()) {
            return;
        }
        let stake = self.stake(hash);
        let Some(node) = self.nodes.get_mut(&hash) else { return };
        let leaf = node.children == 0 && node.pins == 0;
        let Some(kept) = &mut node.kept else { return };
        let uses = (f64::from(kept.uses) + 1.0).powf(FAME);
        // A checkpoint without bytes or pages costs nothing to keep; 1 ranks it far up.
        let worth = |size: f64| uses * stake.tokens / size.max(1.0);
        let idle = kept.loading == 0;
        let by_bytes = idle.then(|| self.order.rank(kept.bases.bytes, worth(kept.bytes as f64)));
        let by_pages = (idle && leaf).then(|| self.order.rank(kept.bases.pages, worth(stake.pages)));
        self.order.bytes.put(hash, &mut kept.in_bytes, by_bytes);
        self.order.pages.put(hash, &mut kept.in_pages, by_pages);
    }

    fn stake(&self, hash: PrefixHash) -> Stake {
        let mut stake = Stake { tokens: 0.0, pages: 0.0 };
        let unit = f64::from(self.config.unit.tokens().0);
        let mut alone = true;
        for (index, node) in self.path(hash).enumerate() {
            if index > 0 && node.kept.is_some() {
                break;
            }
            alone &= index == 0 || node.children == 1;
            stake.tokens += unit;
            if alone {
                stake.pages += node.pages.len() as f64;
            }
        }
        stake
    }
}
