//! The page's routes: its files, and snapshots once or as they come.
//!
//! A snapshot is made when somebody asks and the last is half a second old: what it costs does not grow with those who look.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router as Routes;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use process::Drain;
use process::http::Ready;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::snapshot::{RouterState, Seen, Snapshot};
use crate::journey::Router;

/// Between two snapshots.
const EVERY: Duration = Duration::from_millis(500);
/// Streams at once.
const VIEWERS: usize = 64;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// The page loads its own files and nothing else, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Path, kind and text of each file.
const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/status/page.css", CSS, include_str!("page/page.css")),
    ("/status/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/status/page.js", SCRIPT, include_str!("page/page.js")),
    ("/status/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/status/workers.js", SCRIPT, include_str!("page/workers.js")),
    ("/status/requests.js", SCRIPT, include_str!("page/requests.js")),
];

/// What all who look have in common. Clones are the same.
#[derive(Clone, Debug)]
struct Live {
    router: Router,
    ready: Ready,
    doors: Drain,
    /// The last snapshot as JSON, and when it was made.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
    viewers: Arc<Semaphore>,
}

/// The page at `/`, and what it is made of under `/status`. Streams end when `doors` close.
pub(crate) fn routes(router: Router, ready: Ready, doors: Drain) -> Routes {
    let viewers = Arc::new(Semaphore::new(VIEWERS));
    let live = Live { router, ready, doors, last: Arc::default(), viewers };
    let routes = Routes::new().route("/status", get(once)).route("/status/events", get(events));
    let file = |kind, text| get(move || async move { answer(kind, Body::from(text)) });
    FILES
        .iter()
        .fold(routes, |routes, &(path, kind, text)| routes.route(path, file(kind, text)))
        .with_state(live)
}

async fn once(State(live): State<Live>) -> Response {
    match live.snapshot() {
        Some(json) => answer(JSON, Body::from(json)),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn events(State(live): State<Live>) -> Response {
    match Arc::clone(&live.viewers).try_acquire_owned() {
        Ok(seat) => answer(EVENTS, Body::from_stream(snapshots(live, seat))),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "as many look as may\n").into_response(),
    }
}

fn answer(kind: &'static str, body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, body).into_response()
}

fn snapshots(live: Live, seat: OwnedSemaphorePermit) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let doors = live.doors.clone();
    let all = stream::unfold((live, ticks, seat), |(live, mut ticks, seat)| async move {
        ticks.tick().await;
        let json = live.snapshot()?;
        let event = [b"data: ", &json[..], b"\n\n"].concat();
        Some((Ok(event.into()), (live, ticks, seat)))
    });
    all.take_until(async move { doors.begun().await })
}

impl Live {
    /// The present snapshot as one line of JSON.
    fn snapshot(&self) -> Option<Bytes> {
        let now = Instant::now();
        // Whoever comes while one is made waits for it.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, json)) = &*last
            && now.saturating_duration_since(*made) < EVERY
        {
            return Some(json.clone());
        }
        match serde_json::to_vec(&self.router.snapshot(self.ready.detail(), now)) {
            Ok(json) => {
                let json = Bytes::from(json);
                *last = Some((now, json.clone()));
                Some(json)
            }
            Err(error) => {
                tracing::error!(%error, "the status was not written");
                None
            }
        }
    }
}

impl Router {
    fn snapshot(&self, trouble: String, now: Instant) -> Snapshot {
        let (view, members_followed) = self.fleet.seen();
        let (running, ended) = self.journal.records();
        let unplaced = self.demand.now();
        let router = RouterState {
            version: env!("CARGO_PKG_VERSION"),
            model: self.model.name.clone(),
            uptime_seconds: now.saturating_duration_since(self.built).as_secs(),
            in_flight: u64::try_from(self.metrics.permits_held.get()).unwrap_or(0),
            waiting: self.gate.waiting() as u64,
            unplaced: unplaced.requests,
            unplaced_tokens: unplaced.prompt_tokens,
            migrations: self.metrics.migrations.get(),
            outcomes: self.metrics.outcomes(),
            members_followed,
            trouble,
        };
        let checkpoints = |record: &_| self.fleet.checkpoints(record);
        Snapshot::of(Seen { router, view: &view, checkpoints: &checkpoints, running, ended }, now)
    }
}
