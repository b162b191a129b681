//! A prefill and a decode worker in one process, reached as the router reaches them.

use std::time::Duration;

use clap::Parser;
use engine::fake::{FakeDevice, Script};
use engine::{
    DraftCounts, Engine, EngineHandle, GenerateEvent, GenerateJob, HashUnit, Limits, Metrics, Namespace,
    PrefixCache, Role,
};
use host::Host;
use process::{Drain, Random};
use programs::ShapeLadder;
use programs::sampling::Sampling;
use programs::weights::Float;
use proto::status::Fault;
use proto::v1::decode_client::DecodeClient;
use proto::v1::prefill_client::PrefillClient;
use proto::v1::prefill_response::Event as Prefilled;
use proto::v1::run_response::Event as Decoded;
use proto::v1::worker_client::WorkerClient;
use proto::v1::{
    DescribeRequest, Fingerprint, PrefillRequest, PrefillResponse, ReleaseRequest, ReserveRequest,
    RunRequest, RunResponse, Ticket,
};
use telemetry::Meters;
use tokio::task::JoinHandle;
use tonic::Streaming;
use tonic::transport::Channel;
use worker::{Serving, Shell};

pub(crate) const VOCABULARY: usize = 1000;
pub(crate) const SLOTS: u32 = 8;
pub(crate) const DRAFTS: u32 = 3;

/// Other page lengths than the prefill side's.
fn ladder(page_tokens: u32, pages: u32) -> ShapeLadder {
    ShapeLadder {
        chunks: vec![2, 8],
        batches: vec![2, 4, 8],
        context: 128,
        page_tokens,
        pages,
        slots: SLOTS,
        drafts: DRAFTS,
        latents: Float::F32,
        lane: 1,
    }
}

pub(crate) fn sampling(max_tokens: u32) -> proto::v1::Sampling {
    proto::sampling::message(&asked(max_tokens))
}

pub(crate) fn asked(max_tokens: u32) -> Sampling {
    let mut sampling = Sampling::default();
    sampling.max_tokens = Some(max_tokens);
    sampling.seed = 42;
    sampling
}

/// Another prompt for every length.
pub(crate) fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * 37 + length * 101) % VOCABULARY as u32).collect()
}

pub(crate) struct Rig {
    pub(crate) prefill_device: Script,
    pub(crate) decode_device: Script,
    engines: [EngineHandle; 2],
    meters: [Meters; 2],
    incarnations: [Vec<u8>; 2],
    /// Of the prefill worker.
    sender_key: Vec<u8>,
    drains: [Drain; 2],
    workers: Vec<JoinHandle<()>>,
    prefill: PrefillClient<Channel>,
    decode: DecodeClient<Channel>,
}

struct Side {
    host: Host,
    at: Serving,
    device: Script,
}

async fn side(role: Role, ladder: ShapeLadder, flags: &worker::Flags) -> Side {
    let device = Script::default();
    let shell = Shell::bind(net::system(), flags, Drain::new(), Random::system()).await.unwrap();
    let metrics = shell.meters.register(Metrics::register);
    let fake = FakeDevice::new(ladder, VOCABULARY, device.clone());
    let prefix = role.prefills().then(|| PrefixCache::new(HashUnit::new(16).unwrap(), 1 << 20));
    let engine = Engine::over(fake, role, Limits::default(), prefix, metrics).unwrap();
    let fingerprint = Fingerprint { model: "fake".to_owned(), ..Fingerprint::default() };
    Side { host: Host::over(engine, fingerprint), at: shell.serve_http(), device }
}

/// An engine of both roles on a device like the decode worker's, of whose drafts so many are right.
pub(crate) fn single_process(pattern: &[u32]) -> Engine {
    let device = Script::default();
    device.accept(pattern);
    let fake = FakeDevice::new(ladder(5, 200), VOCABULARY, device);
    let metrics = Meters::new().register(Metrics::register);
    Engine::over(fake, Role::Both, Limits::default(), None, metrics).unwrap()
}

/// Its tokens, and what became of drafts.
pub(crate) async fn generate(engine: &Engine, prompt: &[u32], max: u32) -> (Vec<u32>, DraftCounts) {
    let job = GenerateJob {
        request_id: "r".to_owned(),
        prompt: prompt.to_vec(),
        namespace: Namespace::of(b"", b""),
        sampling: asked(max),
        end_tokens: Vec::new(),
        priority: 0,
        deadline: None,
    };
    let mut stream = engine.handle().generate(job).unwrap();
    let (mut all, mut counts) = (Vec::new(), DraftCounts::default());
    loop {
        match stream.next().await.unwrap().unwrap() {
            GenerateEvent::Tokens { tokens, drafts, .. } => {
                all.extend(tokens.iter().map(|token| token.id));
                counts += drafts;
            }
            GenerateEvent::Ended { .. } => return (all, counts),
        }
    }
}

impl Rig {
    pub(crate) async fn start() -> Rig {
        Rig::with_lease(10_000).await
    }

    pub(crate) async fn with_lease(millis: u64) -> Rig {
        let lease = format!("--reservation-lease={millis}");
        // nobody listens there: the workers go on trying to join
        let common = ["worker", "--model=none", "--router=127.0.0.1:9", "--grace=5"];
        let prefill_flags = prefill_worker::Flags::try_parse_from(common).unwrap();
        let decode_flags =
            decode_worker::Flags::try_parse_from(common.into_iter().chain([lease.as_str()])).unwrap();
        let p = side(Role::Prefill, ladder(16, 64), &prefill_flags.worker).await;
        let d = side(Role::Decode, ladder(5, 200), &decode_flags.worker).await;
        let engines = [p.host.handle(), d.host.handle()];
        let meters = [p.at.meters.clone(), d.at.meters.clone()];
        let incarnations = [&p.at, &d.at].map(|at| at.incarnation.bytes().to_vec());
        let drains = [p.at.drain.clone(), d.at.drain.clone()];
        let channel = |at: &Serving| {
            Channel::from_shared(format!("http://{}", at.grpc_address)).unwrap().connect_lazy()
        };
        let (prefill, decode) = (PrefillClient::new(channel(&p.at)), DecodeClient::new(channel(&d.at)));
        let mut about = WorkerClient::new(channel(&p.at));
        let (prefill_device, decode_device) = (p.device, d.device);
        let data = net::system().bind("127.0.0.1:0", net::Traffic::Bulk).await.unwrap();
        let deps = decode_worker::Deps { host: d.host, at: d.at, data };
        let decoding = decode_worker::build(decode_flags, deps).unwrap();
        let prefilling =
            prefill_worker::build(prefill_flags, prefill_worker::Deps { host: p.host, at: p.at });
        let workers = vec![
            tokio::spawn(async { prefilling.serve().await.unwrap() }),
            tokio::spawn(async { decoding.serve().await.unwrap() }),
        ];
        let described = about.describe(DescribeRequest {}).await.unwrap().into_inner();
        let sender_key = described.record.unwrap().sender_key.into();
        Rig {
            prefill_device,
            decode_device,
            engines,
            meters,
            incarnations,
            sender_key,
            drains,
            workers,
            prefill,
            decode,
        }
    }

    pub(crate) fn slow(&self, step: Duration) {
        self.prefill_device.slow(step);
        self.decode_device.slow(step);
    }

    pub(crate) fn drain(&self) {
        self.drains.iter().for_each(Drain::begin);
    }

    pub(crate) async fn ended(self) {
        for worker in self.workers {
            tokio::time::timeout(Duration::from_secs(10), worker).await.expect("drained in time").unwrap();
        }
    }

    pub(crate) async fn reserve(&self, prompt: u32, max: u32) -> Result<Ticket, Fault> {
        self.reserve_with(prompt, max, |_| {}).await
    }

    pub(crate) async fn reserve_with(
        &self,
        prompt: u32,
        max: u32,
        change: impl FnOnce(&mut ReserveRequest),
    ) -> Result<Ticket, Fault> {
        let mut message = ReserveRequest {
            request_id: "r".to_owned(),
            attempt: 0,
            incarnation: self.incarnations[1].clone().into(),
            prompt_tokens: prompt,
            max_tokens: max,
            fingerprint: Some(Fingerprint { model: "fake".to_owned(), ..Fingerprint::default() }),
            sender_key: self.sender_key.clone().into(),
        };
        change(&mut message);
        let reserved = self.decode.clone().reserve(message).await;
        reserved
            .map(|reserved| reserved.into_inner().ticket.unwrap())
            .map_err(|status| Fault::from_status(&status))
    }

    pub(crate) async fn release(&self, ticket: &Ticket) {
        let message = ReleaseRequest {
            request_id: "r".to_owned(),
            attempt: 0,
            incarnation: self.incarnations[1].clone().into(),
            ticket_id: ticket.id.clone(),
        };
        self.decode.clone().release(message).await.unwrap();
    }

    pub(crate) async fn begin(
        &self,
        prompt: &[u32],
        max: u32,
        ticket: &Ticket,
    ) -> (Streaming<PrefillResponse>, Streaming<RunResponse>) {
        self.begin_with(prompt, sampling(max), ticket).await
    }

    pub(crate) async fn begin_with(
        &self,
        prompt: &[u32],
        sampling: proto::v1::Sampling,
        ticket: &Ticket,
    ) -> (Streaming<PrefillResponse>, Streaming<RunResponse>) {
        let (prefill, decode) = self.try_begin(prompt, 0, sampling, ticket).await;
        (prefill.unwrap(), decode.unwrap())
    }

    async fn try_begin(
        &self,
        prompt: &[u32],
        output_tokens: u32,
        sampling: proto::v1::Sampling,
        ticket: &Ticket,
    ) -> (Result<Streaming<PrefillResponse>, Fault>, Result<Streaming<RunResponse>, Fault>) {
        let prefill = PrefillRequest {
            request_id: "r".to_owned(),
            attempt: 0,
            incarnation: self.incarnations[0].clone().into(),
            prompt_ids: prompt.to_vec(),
            sampling: Some(sampling.clone()),
            ticket: Some(ticket.clone()),
            priority: 0,
            tenant: String::new(),
            cache_salt: String::new(),
            output_tokens,
        };
        let decode = RunRequest {
            request_id: "r".to_owned(),
            attempt: 0,
            incarnation: self.incarnations[1].clone().into(),
            ticket_id: ticket.id.clone(),
            ticket_secret: ticket.secret.clone(),
            sampling: Some(sampling),
            end_token_ids: Vec::new(),
        };
        let (mut prefill_client, mut decode_client) = (self.prefill.clone(), self.decode.clone());
        let (prefill, decode) = tokio::join!(prefill_client.run(prefill), decode_client.run(decode));
        let fault = |status: tonic::Status| Fault::from_status(&status);
        let prefill = prefill.map(tonic::Response::into_inner).map_err(fault);
        (prefill, decode.map(tonic::Response::into_inner).map_err(fault))
    }

    /// Runs one prompt on a reserved ticket to both ends.
    pub(crate) async fn run(
        &self,
        prompt: &[u32],
        max: u32,
        ticket: &Ticket,
    ) -> (Result<Vec<Prefilled>, Fault>, Result<Vec<Decoded>, Fault>) {
        self.resume(prompt, 0, max, ticket).await
    }

    /// As [`Rig::run`], when the prompt's last tokens are output already.
    pub(crate) async fn resume(
        &self,
        prompt: &[u32],
        output_tokens: u32,
        max: u32,
        ticket: &Ticket,
    ) -> (Result<Vec<Prefilled>, Fault>, Result<Vec<Decoded>, Fault>) {
        match self.try_begin(prompt, output_tokens, sampling(max), ticket).await {
            (Ok(prefill), Ok(decode)) => collect(prefill, decode).await,
            // as the router does: one side's failure ends the other
            (Err(fault), decode) => (Err(fault.clone()), decode.and(Err(fault))),
            (Ok(prefill), Err(fault)) => (prefill_events(prefill).await, Err(fault)),
        }
    }

    pub(crate) async fn generate(
        &self,
        prompt: &[u32],
        max: u32,
    ) -> (Result<Vec<Prefilled>, Fault>, Result<Vec<Decoded>, Fault>) {
        let ticket = self.reserve(prompt.len() as u32, max).await.unwrap();
        self.run(prompt, max, &ticket).await
    }

    /// Waits until neither worker holds anything.
    pub(crate) async fn idle(&self) {
        while !self.holds_nothing() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn holds_nothing(&self) -> bool {
        let engines = self.engines.iter().all(|engine| {
            let load = engine.load();
            (load.free_pages, load.free_slots) == (load.pages, load.slots)
        });
        engines && self.meters.iter().all(|meters| held(&meters.text()).all(|value| value == 0))
    }

    pub(crate) async fn all_given_back(self) {
        let idle = tokio::time::timeout(Duration::from_secs(5), self.idle()).await;
        assert!(idle.is_ok(), "{}", self.meters.each_ref().map(Meters::text).concat());
        self.drain();
        self.ended().await;
    }
}

/// Every gauge that must be 0 when nothing runs.
fn held(metrics: &str) -> impl Iterator<Item = i64> {
    let held = |line: &&str| line.contains("_held ") || line.starts_with("tandem_transfer_staging_bytes ");
    let lines = metrics.lines().filter(|line| !line.starts_with('#')).filter(held);
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

async fn prefill_events(mut stream: Streaming<PrefillResponse>) -> Result<Vec<Prefilled>, Fault> {
    let mut events = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(response)) => events.push(response.event.unwrap()),
            Ok(None) => return Ok(events),
            Err(status) => return Err(Fault::from_status(&status)),
        }
    }
}

pub(crate) async fn collect(
    prefill: Streaming<PrefillResponse>,
    mut decode: Streaming<RunResponse>,
) -> (Result<Vec<Prefilled>, Fault>, Result<Vec<Decoded>, Fault>) {
    let decoded = async {
        let mut events = Vec::new();
        loop {
            match decode.message().await {
                Ok(Some(response)) => events.push(response.event.unwrap()),
                Ok(None) => return Ok(events),
                Err(status) => return Err(Fault::from_status(&status)),
            }
        }
    };
    tokio::join!(prefill_events(prefill), decoded)
}

/// What became of drafts.
pub(crate) fn counts(decoded: &[Decoded]) -> DraftCounts {
    let mut counts = DraftCounts::default();
    for event in decoded {
        if let Decoded::Delta(delta) = event {
            counts += DraftCounts { verified: delta.drafted_tokens, accepted: delta.accepted_tokens };
        }
    }
    counts
}

/// All tokens, positions checked.
pub(crate) fn tokens(prefilled: Vec<Prefilled>, decoded: Vec<Decoded>) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut prompt = 0;
    for event in prefilled {
        match event {
            Prefilled::FirstToken(first) => tokens.push(first.token_id),
            Prefilled::Progress(progress) => prompt = progress.total_tokens,
            Prefilled::HandedOver(_) => {}
        }
    }
    for event in decoded {
        if let Decoded::Delta(delta) = event {
            assert_eq!(delta.position as usize, prompt as usize + tokens.len());
            tokens.extend(delta.token_ids);
        }
    }
    tokens
}
