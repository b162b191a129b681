//! How workers become members.

use std::time::Duration;

use discovery::{Contact, Etcd, Following, InMemory, MembershipService, Registry, View};
use net::Network;
use process::Random;
use process::grpc::{HealthReporter, ServingStatus};
use process::http::Ready;
use telemetry::Meters;
use tokio::sync::watch;

use crate::flags::Flags;

/// How often it is said anew for how long etcd has been away.
const DETAIL: Duration = Duration::from_secs(1);
/// What health is asked for to hear of etcd alone.
const ETCD: &str = "etcd";

/// How workers become members of this router.
#[derive(Debug)]
pub enum Joining {
    /// They join here.
    Here(MembershipService),
    /// They are found in etcd.
    Etcd(Following),
}

impl From<MembershipService> for Joining {
    fn from(membership: MembershipService) -> Self {
        Self::Here(membership)
    }
}

impl Joining {
    /// As the flags say, and the members. Must be called inside the runtime.
    ///
    /// # Errors
    /// What the flags say of etcd is wrong.
    pub fn of(
        flags: &Flags,
        network: &Network,
        meters: &Meters,
        random: &Random,
    ) -> Result<(Self, watch::Receiver<View>), discovery::Error> {
        if let Some(etcd) = Etcd::new(&flags.etcd, random.clone(), meters)? {
            let following = etcd.follow(network.clone());
            let members = following.watch();
            return Ok((Self::Etcd(following), members));
        }
        let registry = InMemory::new();
        let members = registry.watch();
        Ok((Self::Here(MembershipService::new(registry, flags.lease())), members))
    }
}

/// Says whether etcd answers, for ever: to whoever asks for health, and below what is answered over HTTP.
pub(crate) async fn tell(
    following: Following,
    members: watch::Receiver<View>,
    health: HealthReporter,
    ready: Ready,
) {
    let mut contact = following.contact();
    loop {
        let (status, detail) = match &*contact.borrow_and_update() {
            Contact::Here => (ServingStatus::Serving, String::new()),
            Contact::Away { since, reason } => {
                let (seconds, members) = (since.elapsed().as_secs(), members.borrow().members().count());
                let detail = format!(
                    "etcd is away for {seconds} s, working on with the {members} members that answer: {reason}"
                );
                (ServingStatus::NotServing, detail)
            }
        };
        health.set_service_status(ETCD, status).await;
        let away = !detail.is_empty();
        ready.say(detail);
        tokio::select! {
            changed = contact.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(DETAIL), if away => {}
        }
    }
}
