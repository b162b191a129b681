//! A local cluster: one router and its workers as separate processes, supervised until Ctrl-C.

mod child;
mod progress;
mod state;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use discovery::EtcdFlags;
use process::Drain;
use tokio::{sync::mpsc, time::sleep};
use worker::Numerics;

use self::{
    child::{Child, Event, HEARD, Program, Spec},
    progress::Progress,
    state::State,
};

/// How long processes get to drain before they are killed.
const GRACE: Duration = Duration::from_secs(35);
/// A worker that died starts again after this.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Flags of `tandem up`.
#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// Folder of the checkpoint
    #[arg(long, env = "TANDEM_MODEL", default_value = "models/k3-demo")]
    pub model: PathBuf,
    /// Prefill workers
    #[arg(long, env = "TANDEM_PREFILL", default_value_t = 1)]
    pub prefill: usize,
    /// Decode workers
    #[arg(long, env = "TANDEM_DECODE", default_value_t = 1)]
    pub decode: usize,
    /// Router's gRPC address (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_GRPC", default_value = "127.0.0.1:50051")]
    pub grpc: String,
    /// Router's HTTP address (host:port, port 0 for any)
    #[arg(long, env = "TANDEM_HTTP", default_value = "127.0.0.1:8080")]
    pub http: String,
    /// File to write addresses and process ids to, as JSON, once ready
    #[arg(long, env = "TANDEM_STATE")]
    pub state: Option<PathBuf>,
    /// Threads for each worker [default: the cores, shared]
    #[arg(long, env = "TANDEM_THREADS")]
    pub threads: Option<usize>,
    /// What all workers compute
    #[command(flatten)]
    pub numerics: Numerics,
    /// Further flags for the router, such as --router-flag=--retries=2
    #[arg(long, value_name = "FLAG")]
    pub router_flag: Vec<String>,
    /// Further flags for every prefill worker, such as --prefill-flag=--slots=4
    #[arg(long, value_name = "FLAG")]
    pub prefill_flag: Vec<String>,
    /// Further flags for every decode worker
    #[arg(long, value_name = "FLAG")]
    pub decode_flag: Vec<String>,
    /// Folder with tls.crt, tls.key and ca.crt: TLS between all processes, as their own --tls says. Workers then join at a port
    /// of their own, unless there is --etcd
    #[arg(long, env = "TANDEM_TLS", value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// File of tenants, keys and limits: clients must show a key or a token, as the router's own --credentials says. Workers then
    /// join at a port of their own, unless there is --etcd
    #[arg(long, env = "TANDEM_CREDENTIALS", value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Where workers say that they are there, and the router finds them
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Log filter of every process
    #[arg(long, env = "TANDEM_LOG", default_value = "info")]
    pub log: String,
}

impl Flags {
    fn router(&self) -> Vec<String> {
        let mut args = vec![
            format!("--model={}", self.model.display()),
            format!("--grpc={}", self.grpc),
            format!("--http={}", self.http),
            self.log(),
        ];
        if (self.tls.is_some() || self.credentials.is_some()) && self.etcd.etcd.is_empty() {
            args.push("--members=127.0.0.1:0".to_owned());
        }
        args.extend(self.credentials.as_ref().map(|file| format!("--credentials={}", file.display())));
        args.extend(self.tls());
        args.extend(self.etcd.to_flags());
        args.extend_from_slice(&self.router_flag);
        args
    }

    /// Whatever else is asked for, what is heard of processes is logged.
    fn log(&self) -> String {
        format!("--log={HEARD},{}", self.log)
    }

    fn tls(&self) -> Option<String> {
        self.tls.as_ref().map(|folder| format!("--tls={}", folder.display()))
    }

    fn worker(&self, router: &str, name: &str, more: &[String]) -> Vec<String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or_else(|| (cores / (self.prefill + self.decode)).max(1));
        let mut args = vec![
            format!("--model={}", self.model.display()),
            format!("--router={router}"),
            format!("--name={name}"),
            format!("--threads={threads}"),
            self.log(),
        ];
        args.extend(self.tls());
        args.extend(self.etcd.to_flags());
        args.extend(self.numerics.to_flags());
        args.extend_from_slice(more);
        args
    }
}

/// Runs the cluster until Ctrl-C or SIGTERM.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    if flags.prefill == 0 || flags.decode == 0 {
        bail!("a cluster needs at least one --prefill and one --decode worker");
    }
    let drain = Drain::on_signals().context("signals can't be caught")?;
    let (events, mut heard) = mpsc::channel(256);
    let mut cluster = Cluster::new(flags, events)?;
    let ended = tokio::select! {
        ended = cluster.supervise(&mut heard) => ended,
        () = drain.begun() => Ok(()),
    };
    cluster.stop(&drain).await;
    ended
}

struct Cluster {
    flags: Flags,
    folder: PathBuf,
    children: Vec<Child>,
    progress: Progress,
    events: mpsc::Sender<(String, Event)>,
}

impl Cluster {
    fn new(flags: Flags, events: mpsc::Sender<(String, Event)>) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("own path unknown")?;
        let folder = own.parent().unwrap_or_else(|| Path::new(".")).to_path_buf();
        Ok(Self { flags, folder, children: Vec::new(), progress: Progress::new(), events })
    }

    /// Starts everything and keeps it running; returns only on a failure that a restart can't mend.
    async fn supervise(&mut self, heard: &mut mpsc::Receiver<(String, Event)>) -> anyhow::Result<()> {
        self.start(Spec { name: "router".into(), program: Program::Router, args: self.flags.router() })?;
        let mut announced = false;
        while let Some((name, event)) = heard.recv().await {
            match event {
                Event::Compiling { what, done, total } => self.progress.compiling(&name, &what, done, total),
                Event::Line(line) => self.progress.line(&name, &line),
                Event::Ready(addresses) => {
                    self.progress.ready(&name);
                    let first = name == "router" && self.children.len() == 1;
                    if let Some(child) = self.child(&name) {
                        child.addresses = Some(addresses.clone());
                    }
                    if first {
                        self.start_workers(addresses.members.as_ref().unwrap_or(&addresses.grpc))?;
                    }
                    announced = self.publish(announced)?;
                }
                Event::Joined => {
                    if let Some(child) = self.child(&name) {
                        child.joined = true;
                    }
                    announced = self.publish(announced)?;
                }
                Event::Ended(status) => {
                    let never_ready = self.child(&name).is_none_or(|child| child.addresses.is_none());
                    if name == "router" || never_ready {
                        bail!("{name} ended: {status}");
                    }
                    self.progress.line(&name, &format!("ended: {status}; starting again"));
                    self.restart(&name).await?;
                }
            }
        }
        Ok(())
    }

    fn start_workers(&mut self, router: &str) -> anyhow::Result<()> {
        let roles = [
            (Program::PrefillWorker, self.flags.prefill, self.flags.prefill_flag.clone()),
            (Program::DecodeWorker, self.flags.decode, self.flags.decode_flag.clone()),
        ];
        for (program, count, more) in roles {
            for index in 0..count {
                let name = format!("{}-{index}", program.role());
                let args = self.flags.worker(router, &name, &more);
                self.start(Spec { name, program, args })?;
            }
        }
        Ok(())
    }

    fn start(&mut self, spec: Spec) -> anyhow::Result<()> {
        self.progress.starting(&spec.name);
        let child = Child::start(&self.folder, spec, self.events.clone())?;
        self.children.push(child);
        Ok(())
    }

    async fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(index) = self.children.iter().position(|child| child.spec.name == name) else {
            return Ok(());
        };
        let gone = self.children.remove(index);
        sleep(RESTART_PAUSE).await;
        self.start(gone.spec)
    }

    fn child(&mut self, name: &str) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.spec.name == name)
    }

    /// Writes the state file and prints the addresses once everything is ready, and again after every restart.
    fn publish(&self, announced: bool) -> anyhow::Result<bool> {
        let whole = self.children.len() == 1 + self.flags.prefill + self.flags.decode;
        let Some(state) = whole.then(|| State::of(&self.children)).flatten() else { return Ok(announced) };
        if !announced {
            self.progress.announce(&state);
        }
        if let Some(path) = &self.flags.state {
            state.write(path)?;
        }
        Ok(true)
    }

    /// Workers first: the router relays what they still finish.
    async fn stop(mut self, drain: &Drain) {
        let (router, workers): (Vec<_>, Vec<_>) =
            self.children.drain(..).partition(|child| child.spec.program == Program::Router);
        for children in [workers, router] {
            children.iter().for_each(Child::terminate);
            for mut child in children {
                tokio::select! {
                    () = child.ended() => {}
                    () = sleep(GRACE) => child.kill(),
                    () = drain.forced() => child.kill(),
                }
            }
        }
        if let Some(path) = &self.flags.state {
            // A file that names processes which are gone would mislead; that it may never have been written is fine.
            let _ = std::fs::remove_file(path);
        }
    }
}
