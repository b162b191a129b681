//! Clients that leave at every moment of a request's journey.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::hosts::{Running, World};
use crate::{cluster, held, requests};

/// Everything has to be back after so long.
const SOON: Duration = Duration::from_secs(1);

/// Runs what clients do on a cluster without faults.
fn on_a_cluster<F: Future<Output = ()> + 'static>(
    seed: u64,
    clients: impl FnOnce(net::Network, Running) -> F + 'static,
) {
    let world = World::new(seed);
    let mut sim = cluster(seed, &world);
    sim.client("client", async move {
        let network = world.network("client");
        requests::ready(&network).await;
        clients(network, world.running).await;
        Ok(())
    });
    sim.run().unwrap();
}

/// A request is placed, prefilled in several chunks, handed over and answered in many steps. Leaving it after every 4 ms of that
/// leaves it at each of these moments, and between.
#[test]
fn whoever_leaves_at_any_moment_frees_everything_within_a_second() {
    for seed in [0, 3] {
        on_a_cluster(seed, move |network, running| async move {
            let channel = requests::channel(&network);
            let request = requests::long(seed);
            let mut moments = 0;
            loop {
                let leaves = Duration::from_millis(moments * 4);
                let left = timeout(leaves, requests::ask(channel.clone(), &request)).await.is_err();
                sleep(SOON).await;
                held(seed, &running);
                if !left {
                    break;
                }
                moments += 1;
            }
            assert!(moments > 40, "only {moments} moments");
        });
    }
}

/// `TANDEM_SIM_LEAVERS` is how many leave.
#[test]
fn thousands_who_leave_free_everything() {
    let leavers = std::env::var("TANDEM_SIM_LEAVERS").map_or(1_000, |count| count.parse().unwrap());
    on_a_cluster(2, move |network, running| async move {
        let random = Arc::new(Mutex::new(StdRng::seed_from_u64(2)));
        let channel = requests::channel(&network);
        let leave = |index| {
            let (channel, random) = (channel.clone(), Arc::clone(&random));
            async move {
                let leaves = Duration::from_millis(random.lock().unwrap().random_range(0..400));
                let _left = timeout(leaves, requests::ask(channel, &requests::long(index))).await;
            }
        };
        let all = futures::stream::iter((0..leavers).map(leave));
        futures::StreamExt::for_each_concurrent(all, 48, |left| left).await;
        sleep(SOON).await;
        held(2, &running);
    });
}
