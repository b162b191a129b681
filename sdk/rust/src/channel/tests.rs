#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn addresses(ports: &[u16]) -> BTreeSet<SocketAddr> {
    ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
}

#[tokio::test]
async fn the_channel_follows_the_addresses_of_a_name() {
    let address = Address::parse("http://routers.example:50051").unwrap();
    let (changes, mut heard) = mpsc::channel(8);
    let mut known = BTreeSet::new();
    update(&address, None, &mut known, addresses(&[1, 2]), &changes).await.unwrap();
    update(&address, None, &mut known, addresses(&[2, 3]), &changes).await.unwrap();
    drop(changes);
    let mut ports = BTreeSet::new();
    while let Some(change) = heard.recv().await {
        match change {
            Change::Insert(at, endpoint) => {
                assert_eq!(endpoint.uri().port_u16(), Some(at.port()));
                assert!(ports.insert(at.port()));
            }
            Change::Remove(at) => assert!(ports.remove(&at.port())),
        }
    }
    assert_eq!(ports, BTreeSet::from([2, 3]));
    assert_eq!(known, addresses(&[2, 3]));
}
