//! Payloads that a receiver reads from its sender's memory.

use super::book::OneTicket;
use super::kept::Middle;
use super::loopback::Rig;
use super::state::{LAYOUT, Ready, State, Units};
use super::tls::tls;
use crate::layout::Layout;
use crate::pace::Bounds;

const WIDE: Layout = Layout { latent_width: 8 << 10, ..LAYOUT };
const TOKENS: u32 = 600;

/// Hands a state over, and the same ticket again; gives out the payload bytes, those that were said on connections, and how often
/// memory was lent and borrowed, and not borrowed.
async fn carried(network: net::Network, sides: [bool; 2]) -> (u64, u64, [u64; 2]) {
    let mut rig = Rig::on(network, OneTicket::of(WIDE, TOKENS), Bounds::default(), sides).await;
    let middle = Middle::before(std::mem::take(&mut rig.ticket.endpoint)).await;
    rig.ticket.endpoint.clone_from(&middle.endpoint);
    (rig.ticket.layout, rig.ticket.state_pos) = (WIDE, TOKENS);
    let all = State::new(WIDE, TOKENS).segments(256);
    let receipt = rig.send(Ready::new(all.clone())).await.unwrap();
    assert_eq!(*rig.book.place().sunk.lock().unwrap(), Units::of(&all));
    assert_eq!(rig.send(Ready::new(all)).await.unwrap(), receipt);
    let links = ["same_host", "apart"].map(|how| rig.ours.links(how));
    rig.all_given_back().await;
    let said = middle.heard.lock().unwrap().len() as u64;
    (receipt.bytes, said, links)
}

#[tokio::test]
async fn workers_of_one_host_read_payloads_from_memory() {
    for network in [net::system(), tls()] {
        let (bytes, said, links) = carried(network, [true; 2]).await;
        assert!(said < bytes / 100, "{said} bytes on the connection for {bytes}");
        assert_eq!(links, [2, 0], "the connection is kept with what was found out");
    }
}

#[tokio::test]
async fn others_are_served_over_the_connection_alone() {
    for (sides, links) in [([true, false], [0, 1]), ([false, true], [0, 0])] {
        let (bytes, said, counted) = carried(net::system(), sides).await;
        assert!(said > bytes, "{said} bytes on the connection for {bytes}");
        assert_eq!(counted, links);
    }
}
