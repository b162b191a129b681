use std::sync::Arc;

use prefix::{Chain, PrefixHash, Units};

use super::{Cache, Kept, Node};
use crate::event::Event;
use crate::pages::Pages;
use crate::{Bytes, PageId};

/// What came of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The cache has it.
    Stored,
    /// There was one at this boundary already, and it stays.
    Known,
    /// Those that can not be dropped take all the bytes there are.
    NoBudget,
}

impl<C> Cache<C> {
    /// The boundaries of `chain` up to `at`, with a checkpoint there. Boundaries that are there stay as they are;
    /// `leased[i]` holds positions from i x page length and is taken for those that are not.
    pub(crate) fn publish(
        &mut self,
        pages: &mut Pages,
        chain: &Chain,
        leased: &[PageId],
        (at, state, bytes): (Units, Arc<C>, Bytes),
    ) -> Published {
        let Some(hash) = chain.hash(at) else { return Published::NoBudget };
        if self.nodes.get(&hash).is_some_and(|node| node.kept.is_some()) {
            self.grave.push(state);
            return Published::Known;
        }
        if !self.make_room(pages, bytes) {
            self.grave.push(state);
            return Published::NoBudget;
        }
        let mut parent = None;
        for boundary in chain.boundaries().take(at.0 as usize) {
            if !self.nodes.contains_key(&boundary.hash) {
                self.insert(pages, boundary.hash, parent, self.config.unit.whole(boundary.tokens), leased);
            }
            parent = Some(boundary.hash);
        }
        self.keep(hash, state, bytes);
        Published::Stored
    }

    fn insert(
        &mut self,
        pages: &mut Pages,
        hash: PrefixHash,
        parent: Option<PrefixHash>,
        at: Units,
        leased: &[PageId],
    ) {
        let (from, to) = (self.full_pages(Units(at.0.saturating_sub(1))), self.full_pages(at));
        let node = Node {
            parent,
            at,
            pages: leased.get(from as usize..to as usize).unwrap_or_default().to_vec(),
            open: self.open_page(at).and_then(|index| leased.get(index)).copied(),
            kept: None,
            children: 0,
            pins: 0,
        };
        node.each_page(|page| pages.cache(&[page]));
        self.nodes.insert(hash, node);
        if let Some(parent) = parent {
            self.nodes.entry(parent).and_modify(|node| node.children += 1);
            self.requeue(parent);
        }
    }

    fn keep(&mut self, hash: PrefixHash, state: Arc<C>, bytes: Bytes) {
        let bases = self.order.used();
        let uses = self.seen.get(hash).map_or(0, |passed| passed.uses);
        let Some(node) = self.nodes.get_mut(&hash) else { return };
        let position = self.config.unit.position(node.at);
        node.kept = Some(Kept {
            state,
            bytes: bytes.0,
            loading: 0,
            uses,
            bases,
            in_bytes: None,
            in_pages: None,
            doomed: false,
        });
        self.counts.checkpoints += 1;
        self.counts.bytes += bytes.0;
        self.events.push(Event::Stored { hash, position, bytes });
        self.requeue(hash);
    }
}
