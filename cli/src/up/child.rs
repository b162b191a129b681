//! One supervised process, and what it says.

use std::{path::Path, process::Stdio};

use anyhow::Context;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{ChildStderr, Command},
    sync::{mpsc, watch},
};

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Router,
    PrefillWorker,
    DecodeWorker,
}

impl Program {
    pub(super) fn role(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::PrefillWorker => "prefill",
            Self::DecodeWorker => "decode",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Router => "tandem-router",
            Self::PrefillWorker => "tandem-prefill-worker",
            Self::DecodeWorker => "tandem-decode-worker",
        }
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) args: Vec<String>,
}

/// Log filter for the lines that are listened for.
pub(super) const HEARD: &str = "worker::shell=info,host::load=info,discovery::remote=info,discovery::etcd::announce=info,tandem_router=info";

/// Where a ready process is reached, as it logs it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Addresses {
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) data: Option<String>,
    /// A router's, where workers join elsewhere than at its `grpc`.
    pub(super) members: Option<String>,
}

/// What a process says.
#[derive(Debug)]
pub(super) enum Event {
    Compiling {
        what: String,
        done: u64,
        total: u64,
    },
    Ready(Addresses),
    /// A worker is a member: requests can be placed on it.
    Joined,
    /// A warning, an error, or something that is no log line.
    Line(String),
    Ended(String),
}

/// A running process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) spec: Spec,
    pub(super) pid: u32,
    pub(super) addresses: Option<Addresses>,
    /// Always false for a router, which workers join.
    pub(super) joined: bool,
    gone: watch::Receiver<bool>,
}

impl Child {
    pub(super) fn start(
        folder: &Path,
        spec: Spec,
        events: mpsc::Sender<(String, Event)>,
    ) -> anyhow::Result<Self> {
        let path = folder.join(spec.program.file());
        let mut process = Command::new(&path)
            .args(&spec.args)
            .arg("--log-json")
            .arg("--stop-with-stdin")
            // The child's stdin is our pipe: however we end, it sees the end of it and stops.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal must reach only us, so that processes are taken down in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} can't be started", path.display()))?;
        let pid = process.id().context("a process without an id")?;
        let stderr = process.stderr.take().context("a process without stderr")?;
        let (ended, gone) = watch::channel(false);
        let name = spec.name.clone();
        tokio::spawn(async move {
            listen(&name, stderr, &events).await;
            let status = match process.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            ended.send_replace(true);
            let _ = events.send((name, Event::Ended(status))).await;
        });
        Ok(Self { spec, pid, addresses: None, joined: false, gone })
    }

    /// Asks the process to drain.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    pub(super) async fn ended(&mut self) {
        // An error means that the watching task is gone, and the process with it.
        let _ = self.gone.wait_for(|gone| *gone).await;
    }

    fn signal(&self, signal: Signal) {
        if !*self.gone.borrow()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            // It may have ended by itself since; then there is nothing to do.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

async fn listen(name: &str, stderr: ChildStderr, events: &mpsc::Sender<(String, Event)>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // When nobody listens any more the lines are still read, so that the process never blocks on a full pipe.
        if let Some(event) = parse(line) {
            let _ = events.send((name.to_owned(), event)).await;
        }
    }
}

#[derive(Deserialize)]
struct LogLine {
    level: String,
    target: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

fn parse(line: String) -> Option<Event> {
    let Ok(log) = serde_json::from_str::<LogLine>(&line) else { return Some(Event::Line(line)) };
    let text =
        |key: &str| log.fields.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let number = |key: &str| log.fields.get(key).and_then(serde_json::Value::as_u64);
    match (text("message").as_str(), number("done"), number("total")) {
        ("compiled", Some(done), Some(total)) => {
            return Some(Event::Compiling { what: text("what"), done, total });
        }
        ("joined", ..) => return Some(Event::Joined),
        ("ready" | "listening", ..) => {
            if let Ok(addresses) = serde_json::from_value(log.fields.clone().into()) {
                return Some(Event::Ready(addresses));
            }
        }
        _ => {}
    }
    matches!(log.level.as_str(), "WARN" | "ERROR").then(|| {
        let more: Vec<String> = log
            .fields
            .iter()
            .filter(|(key, _)| *key != "message")
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Event::Line(format!("{} {}: {} {}", log.level, log.target, text("message"), more.join(" ")))
    })
}

#[cfg(test)]
mod tests;
