//! The state file: where everything is, for scripts.

use std::{fs, path::Path};

use anyhow::Context;
use serde::Serialize;

use super::child::{Addresses, Child, Program};

/// A whole, ready cluster.
#[derive(Debug, Serialize)]
pub(super) struct State {
    pub(super) router: Router,
    pub(super) workers: Vec<Worker>,
}

/// The router's process.
#[derive(Debug, Serialize)]
pub(super) struct Router {
    pub(super) pid: u32,
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) members: Option<String>,
}

/// A worker's process.
#[derive(Debug, Serialize)]
pub(super) struct Worker {
    role: &'static str,
    name: String,
    pid: u32,
    grpc: String,
    http: String,
    data: Option<String>,
}

impl State {
    /// None while some process is not ready, or some worker has not joined.
    pub(super) fn of(children: &[Child]) -> Option<Self> {
        let mut router = None;
        let mut workers = Vec::new();
        for child in children {
            let at = child.addresses.clone()?;
            match child.spec.program {
                Program::PrefillWorker | Program::DecodeWorker if !child.joined => return None,
                Program::Router => {
                    let Addresses { grpc, http, members, .. } = at;
                    router = Some(Router { pid: child.pid, grpc, http, members });
                }
                role @ (Program::PrefillWorker | Program::DecodeWorker) => workers.push(Worker {
                    role: role.role(),
                    name: child.spec.name.clone(),
                    pid: child.pid,
                    grpc: at.grpc,
                    http: at.http,
                    data: at.data,
                }),
            }
        }
        Some(Self { router: router?, workers })
    }

    /// Written whole or not at all.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let draft = path.with_extension("draft");
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&draft, text).with_context(|| format!("--state {}", path.display()))?;
        fs::rename(&draft, path).with_context(|| format!("--state {}", path.display()))
    }
}
