//! A real etcd server.

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// Ends with this value.
pub(crate) struct Server {
    folder: TempDir,
    ports: [u16; 2],
    more: Vec<String>,
    scheme: &'static str,
    process: Option<Child>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with("http", |_| Vec::new())
    }

    /// With further flags, of which those that are files lie in the server's folder.
    pub(crate) fn with(scheme: &'static str, more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let more = more(folder.path());
        let mut server = Self { folder, ports: [free(), free()], more, scheme, process: None };
        server.run();
        server
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.process.as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(id).unwrap()), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn run(&mut self) {
        self.kill();
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.ports[1]));
        let log = File::options().append(true).create(true).open(self.folder().join("log")).unwrap();
        let process = Command::new(program())
            .args(["--unsafe-no-fsync", "--name=default", "--log-level=warn"])
            .arg(format!("--data-dir={}", self.data().display()))
            .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .arg(format!("--initial-cluster=default={peer}"))
            .args(&self.more)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let begun = Instant::now();
        // From here on a call is answered, if late.
        while TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "etcd does not listen");
            sleep(Duration::from_millis(10));
        }
    }

    /// Killed, and begun anew with nothing in it.
    pub(crate) fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.data()).unwrap();
        self.run();
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.folder().join("log")).unwrap_or_default());
        }
    }
}

fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/etcd.sh");
        let found = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(found.status.success(), "scripts/etcd.sh brings the server");
        String::from_utf8(found.stdout).unwrap().trim().into()
    })
}
