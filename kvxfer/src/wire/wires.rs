use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use super::{Turn, Wire};
use crate::frame::Frame;
use crate::ticket::LinkId;

/// The connections of one transfer.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    wires: Vec<(LinkId, Wire)>,
    /// The one looked at first.
    first: usize,
}

impl Wires {
    pub(crate) fn insert(&mut self, link: LinkId, wire: Wire) {
        self.wires.push((link, wire));
    }

    pub(crate) fn get(&mut self, link: LinkId) -> Option<&mut Wire> {
        self.wires.iter_mut().find_map(|(id, wire)| (*id == link).then_some(wire))
    }

    /// Queues a frame; a link that is gone takes its frames with it.
    pub(crate) fn push(&mut self, link: LinkId, frame: Frame) {
        if let Some(wire) = self.get(link) {
            wire.push(frame);
        }
    }

    pub(crate) fn remove(&mut self, link: LinkId) -> Option<Wire> {
        let at = self.wires.iter().position(|(id, _)| *id == link)?;
        Some(self.wires.swap_remove(at).1)
    }

    /// Bytes of segments that are arriving.
    pub(crate) fn staged(&self) -> u64 {
        self.wires.iter().map(|(_, wire)| wire.staged()).sum()
    }

    /// The next turn of any of them, each in its turn; never ready without any.
    pub(crate) async fn turn(&mut self) -> (LinkId, io::Result<Turn>) {
        poll_fn(|cx| {
            let count = self.wires.len();
            for step in 0..count {
                let at = (self.first + step) % count;
                let (link, wire) = &mut self.wires[at];
                if let Poll::Ready(turn) = wire.poll_turn(cx) {
                    self.first = at + 1;
                    return Poll::Ready((*link, turn));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Writes what the streams take now.
    pub(crate) fn flush(&mut self) {
        for (_, wire) in &mut self.wires {
            wire.flush();
        }
    }

    /// All of them, each on its own again.
    pub(crate) fn into_each(self) -> impl Iterator<Item = (LinkId, Wire)> {
        self.wires.into_iter()
    }

    /// Closes all, each with its last words.
    pub(crate) async fn close(self, within: Duration) {
        let mut farewells = tokio::task::JoinSet::new();
        for (_, wire) in self.wires {
            farewells.spawn(wire.close(within));
        }
        farewells.join_all().await;
    }
}
