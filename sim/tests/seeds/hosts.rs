//! What runs on the hosts: the programs as their `main` puts them together, over a played device.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use discovery::{InMemory, MembershipService, Registry};
use engine::fake::{FakeDevice, Script};
use engine::{Engine, HashUnit, Limits, Metrics, PrefixCache, Role, Stepper, Turn};
use host::Host;
use net::{Network, Traffic};
use process::{Drain, Random};
use programs::ShapeLadder;
use programs::weights::Float;
use proto::v1::Fingerprint;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use router::{Clients, Deps, Listeners, Model, Router};
use sim::{Noise, Simulated};
use telemetry::Meters;
use tokio::time::sleep;
use worker::Shell;

pub(crate) const MODEL: &str = "k3-demo";
pub(crate) const VOCABULARY: usize = 2048;
/// Where decode workers take state in.
const DATA: u16 = 7000;
const LEASE: Duration = Duration::from_secs(2);
/// What a step takes.
const STEP: Duration = Duration::from_millis(4);

/// What the processes that run now say of themselves, by host. Of one that crashed nothing is left.
pub(crate) type Running = Arc<Mutex<BTreeMap<String, Meters>>>;

/// What all hosts of a simulation have in common.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) noise: Noise,
    pub(crate) clocks: Clocks,
    pub(crate) random: Random,
    pub(crate) keeps: bool,
    pub(crate) drafts: u32,
}

impl World {
    /// With and without a prefix cache, and with and without drafts, in turn.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            running: Running::default(),
            noise: Noise::new(seed),
            clocks: Clocks::default(),
            random: random(seed),
            keeps: seed.is_multiple_of(2),
            drafts: (seed / 2 % 2 * 3) as u32,
        }
    }

    pub(crate) fn network(&self, name: &str) -> Network {
        Arc::new(Simulated::new(turmoil::lookup(name), self.noise.clone()))
    }

    fn runs(&self, name: &str, meters: &Meters) {
        self.running.lock().unwrap().insert(name.to_owned(), meters.clone());
    }

    fn ladder(&self, page_tokens: u32, pages: u32) -> ShapeLadder {
        ShapeLadder {
            chunks: vec![8, 32],
            batches: vec![2, 8],
            context: 400,
            page_tokens,
            pages,
            slots: 12,
            drafts: self.drafts,
            latents: Float::F32,
            lane: 1,
        }
    }
}

/// How many milliseconds the engines' clocks are ahead, by host. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Clocks(Arc<Mutex<BTreeMap<String, i64>>>);

impl Clocks {
    pub(crate) fn set(&self, host: &str, ahead: i64) {
        self.0.lock().unwrap().insert(host.to_owned(), ahead);
    }

    fn of(&self, host: &str) -> impl Fn() -> Instant + Clone + Send + Sync + use<> {
        let (clocks, host) = (self.clone(), host.to_owned());
        move || {
            let now = tokio::time::Instant::now().into_std();
            let ahead = clocks.0.lock().unwrap().get(&host).copied().unwrap_or_default();
            let by = Duration::from_millis(ahead.unsigned_abs());
            if ahead < 0 { now.checked_sub(by).unwrap() } else { now + by }
        }
    }
}

fn random(seed: u64) -> Random {
    let random = Mutex::new(StdRng::seed_from_u64(seed));
    Random::new(move |bytes| random.lock().unwrap().fill_bytes(bytes))
}

pub(crate) async fn router(world: World) -> turmoil::Result {
    let network = world.network("router");
    let flags = router::Flags::try_parse_from(["router", "--model=none"])?;
    let (grpc, _) = process::net::bind(&network, Traffic::Public, "grpc", "0.0.0.0:50051").await?;
    let (http, _) = process::net::bind(&network, Traffic::Public, "http", "0.0.0.0:8080").await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(MODEL);
    let model = Model::open(&folder, MODEL.to_owned())?;
    let registry = InMemory::new();
    let meters = Meters::new();
    world.runs("router", &meters);
    let drain = Drain::new();
    let (random, clients, peers) = (world.random.clone(), Clients::default(), Vec::new());
    let deps = Deps { network, members: registry.watch(), meters, drain, random, clients, peers };
    let router = Router::build(model, flags.config(), deps);
    let membership = MembershipService::new(registry, LEASE);
    router
        .serve(Listeners { grpc, http, members: None, status: None }, membership, Duration::from_secs(5))
        .await?;
    Ok(())
}

fn arguments(name: &str) -> Vec<String> {
    let flags = ["--model=none", "--router=router:50051", "--grpc=0.0.0.0:0", "--http=0.0.0.0:0"];
    let all = ["worker"].into_iter().chain(flags).map(str::to_owned);
    all.chain([format!("--name={name}")]).collect()
}

async fn side(
    world: &World,
    name: &str,
    role: Role,
    ladder: ShapeLadder,
    flags: &worker::Flags,
) -> (Host, Shell) {
    let shell = Shell::bind(world.network(name), flags, Drain::new(), world.random.clone()).await.unwrap();
    world.runs(name, &shell.meters);
    let device = FakeDevice::new(ladder, VOCABULARY, Script::default());
    let prefix =
        (world.keeps && role == Role::Prefill).then(|| PrefixCache::new(HashUnit::new(16).unwrap(), 1 << 16));
    let metrics = shell.meters.register(Metrics::register);
    let clock = world.clocks.of(name);
    let (engine, steps) = Engine::stepped(device, role, Limits::default(), prefix, metrics, clock.clone());
    tokio::spawn(run(steps, clock));
    let fingerprint = Fingerprint { model: MODEL.to_owned(), ..Fingerprint::default() };
    (Host::over(engine, fingerprint), shell)
}

/// Runs an engine's steps on the host's own time.
async fn run(mut steps: Stepper<FakeDevice>, clock: impl Fn() -> Instant) {
    let bell = steps.bell();
    loop {
        match steps.turn() {
            Turn::Ran => sleep(STEP).await,
            Turn::Stopped => return,
            Turn::Idle { until: None } => bell.notified().await,
            Turn::Idle { until: Some(until) } => tokio::select! {
                () = bell.notified() => {}
                () = sleep(until.saturating_duration_since(clock())) => {}
            },
        }
    }
}

pub(crate) async fn prefill(world: World, name: String) -> turmoil::Result {
    let flags = prefill_worker::Flags::try_parse_from(arguments(&name))?;
    let ladder = world.ladder(16, 160);
    let (host, shell) = side(&world, &name, Role::Prefill, ladder, &flags.worker).await;
    let at = shell.serve_http();
    prefill_worker::build(flags, prefill_worker::Deps { host, at }).serve().await?;
    Ok(())
}

pub(crate) async fn decode(world: World, name: String) -> turmoil::Result {
    let flags = decode_worker::Flags::try_parse_from(arguments(&name))?;
    let ladder = world.ladder(12, 300);
    let (host, shell) = side(&world, &name, Role::Decode, ladder, &flags.worker).await;
    let network = shell.network.clone();
    let (data, _) = process::net::bind(&network, Traffic::Bulk, "data", &format!("0.0.0.0:{DATA}")).await?;
    let deps = decode_worker::Deps { host, at: shell.serve_http(), data };
    decode_worker::build(flags, deps)?.serve().await?;
    Ok(())
}
