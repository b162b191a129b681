use std::time::Duration;

use net::Network;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::book::OneTicket;
use super::loopback::{Rig, segments};
use super::state::{LAYOUT, Ready, Units};
use crate::Secret;
use crate::error::Error;
use crate::layout::Layout;
use crate::pace::Bounds;
use crate::reason::Reason;

pub(super) fn tls() -> Network {
    let keys = [(); 2].map(|()| KeyPair::generate().unwrap());
    let [key, own_key] = keys;
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let own = CertificateParams::new(vec![net::MEMBER.to_owned()]).unwrap();
    let own = own.signed_by(&own_key, &Issuer::new(params, key)).unwrap().pem();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("tls.crt", own), ("tls.key", own_key.serialize_pem()), ("ca.crt", authority)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    net::cluster(Some(folder.path())).unwrap()
}

#[tokio::test]
async fn within_tls_too_only_the_ticket_opens_a_transfer() {
    let mut rig = Rig::over(tls(), OneTicket::new(), Bounds::default()).await;
    let secret = std::mem::replace(&mut rig.ticket.secret, Secret([0; 32]));
    let refused = rig.send(Ready::new(segments(7))).await;
    assert!(matches!(refused, Err(Error::PeerGaveUp(Reason::UnknownTicket))), "{refused:?}");
    rig.ticket.secret = secret;
    rig.send(Ready::new(segments(7))).await.unwrap();
    assert_eq!(*rig.book.place().sunk.lock().unwrap(), Units::of(&segments(1)));
    rig.all_given_back().await;
}

/// Sockets fill up, and what TLS then holds back has to leave all the same.
#[tokio::test]
async fn a_large_state_goes_through_tls_to_a_slow_sink() {
    let wide = Layout { latent_width: 8 << 10, ..LAYOUT };
    let tokens = 1100;
    let book = OneTicket { slowness: Duration::from_millis(4), ..OneTicket::of(wide, tokens) };
    let rig = Rig::over(tls(), book, Bounds::default()).await;
    rig.carries(wide, tokens).await;
}
