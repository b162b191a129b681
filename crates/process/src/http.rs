//! `/health`, `/ready` and `/metrics` of every program.

use std::{
    future::IntoFuture,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use ::net::{AnyStream, Listener};
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use telemetry::Meters;

use crate::{Drain, net::accepted};

/// Whether a program can serve requests now, and what else is to be said of its health. Clones are the same switch.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    ready: Arc<AtomicBool>,
    detail: Arc<Mutex<String>>,
}

impl Ready {
    /// Not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns the switch.
    pub fn set(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Reads the switch.
    pub fn get(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Says `detail`, a line, below what `/health` and `/ready` answer from now on; nothing if it is empty.
    pub fn say(&self, detail: String) {
        *self.detail.lock().unwrap_or_else(PoisonError::into_inner) = detail;
    }

    /// What is said below.
    pub fn detail(&self) -> String {
        self.detail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with_detail(&self, answer: &str) -> String {
        let detail = self.detail();
        if detail.is_empty() { format!("{answer}\n") } else { format!("{answer}\n{detail}\n") }
    }
}

/// The three routes; a program may merge its own.
pub fn routes(meters: Meters, ready: Ready) -> Router {
    let metrics = move || async move {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(CONTENT_TYPE, kind)], meters.text())
    };
    let health = ready.clone();
    let health = move || async move { health.with_detail("ok") };
    let readiness = move || async move {
        if ready.get() {
            (StatusCode::OK, ready.with_detail("ready")).into_response()
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, ready.with_detail("not ready")).into_response()
        }
    };
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(readiness))
        .route("/metrics", get(metrics))
}

/// Serves until the drain begins, then lets running requests end; the drain's force cuts them off.
pub async fn serve(listener: Listener, routes: Router, drain: Drain) -> std::io::Result<()> {
    let _work = drain.hold();
    let begun = drain.clone();
    let server = axum::serve(Door(listener), routes)
        .with_graceful_shutdown(async move { begun.begun().await })
        .into_future();
    tokio::select! {
        served = server => served,
        () = drain.forced() => Ok(()),
    }
}

/// A listener as axum takes it.
#[derive(Debug)]
struct Door(Listener);

impl axum::serve::Listener for Door {
    type Io = AnyStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        accepted(&mut self.0).await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}
