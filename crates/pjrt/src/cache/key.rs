//! What a compiled program depends on.

use std::fmt;
use std::thread;

use sha2::{Digest, Sha256};

use crate::Result;
use crate::client::Client;

/// Environment variables compilers read behind the caller's back. `PJRT_NPROC` is the thread count work is split for.
const ENVIRONMENT: [&str; 6] = [
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "PJRT_NPROC",
    "XLA_CPU_USE_THUNK_RUNTIME",
    "NVIDIA_TF32_OVERRIDE",
];

/// sha256 over program, options, plugin file, platform version, devices, CPU and environment.
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn of(client: &Client, program: &[u8], options: &[u8]) -> Result<Self> {
        let mut key = Parts::default();
        key.add("program", program);
        key.add("options", options);
        key.add("plugin", &client.plugin().sha256()?);
        key.add("platform", client.platform_name().as_bytes());
        key.add("version", client.platform_version().as_bytes());
        for device in client.devices() {
            key.add("device", device.kind().as_bytes());
        }
        key.add("cpu", cpu(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()).as_bytes());
        key.add("threads", &thread::available_parallelism().map_or(0, usize::from).to_le_bytes());
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                key.add(name, value.as_encoded_bytes());
            }
        }
        Ok(Self(key.0.finalize().into()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Named parts with their lengths, so that no two lists of parts read the same.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }
}

/// The lines of the first processor that say what instructions it has; frequencies and counters change by the minute.
fn cpu(cpuinfo: &str) -> String {
    const TELLING: [&str; 8] =
        ["vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part"];
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let telling = |line: &&str| line.split(':').next().is_some_and(|name| TELLING.contains(&name.trim()));
    first.lines().filter(telling).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
