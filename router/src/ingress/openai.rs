//! The OpenAI-compatible HTTP door.

mod answer;
mod body;
mod logprobs;
mod problem;
mod sse;
mod whole;

use axum::Json;
use axum::Router as Routes;
use axum::body::Body as HttpBody;
use axum::extract::{Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::future::try_join_all;
use process::Random;
use serde_json::{Value, json};
use tracing::info_span;

use crate::admission::Arrival;
use crate::clients::Client;
use crate::error::Error;
use crate::journey::Router;
use answer::{Frame, Kind};
use body::Plan;

const REQUEST_ID: &str = "x-request-id";

/// The routes under `/v1`, and OpenAI's shape for whatever is not there.
pub fn routes(router: Router) -> Routes {
    let missing = |method: Method, uri: Uri| async move { problem::no_such_route(&method, &uri) };
    Routes::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model))
        .fallback(missing)
        .method_not_allowed_fallback(missing)
        .with_state(router)
}

async fn completions(State(router): State<Router>, headers: HeaderMap, body: HttpBody) -> Response {
    answered(generate(router, Kind::Completion, &headers, body).await)
}

async fn chat(State(router): State<Router>, headers: HeaderMap, body: HttpBody) -> Response {
    answered(generate(router, Kind::Chat, &headers, body).await)
}

async fn models(State(router): State<Router>, headers: HeaderMap) -> Response {
    let listed = |_| Json(json!({ "object": "list", "data": [described(&router)] })).into_response();
    answered(client(&router, &headers).map(listed))
}

async fn model(State(router): State<Router>, Path(model): Path<String>, headers: HeaderMap) -> Response {
    let served = &router.model.name;
    answered(client(&router, &headers).and_then(|_| match model == *served {
        true => Ok(Json(described(&router)).into_response()),
        false => Err(Error::UnknownModel { model, served: served.clone() }),
    }))
}

/// Who asks.
fn client(router: &Router, headers: &HeaderMap) -> Result<Client, Error> {
    router.clients.identify(headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default()))
}

fn described(router: &Router) -> Value {
    json!({
        "id": router.model.name, "object": "model", "created": 0, "owned_by": "tandem",
        "max_model_len": router.context(),
    })
}

fn answered(answer: Result<Response, Error>) -> Response {
    answer.unwrap_or_else(|error| problem::response(&error))
}

async fn generate(
    router: Router,
    kind: Kind,
    headers: &HeaderMap,
    body: HttpBody,
) -> Result<Response, Error> {
    let id = request_id(headers, &router.random)?;
    let span = info_span!("generate", door = "http", request = %id);
    telemetry::propagate::from_headers(&span, headers);
    let client = client(&router, headers).inspect_err(|error| router.metrics.refused(error))?;
    let arrival = router.arrival(span, client, None);
    let plan = read_plan(&router, kind, &id, &arrival, body).await.inspect_err(|error| {
        router.metrics.refused(error);
    })?;
    let starts = plan.asked.into_iter().map(|asked| router.generate(asked, arrival.clone()));
    let choices = try_join_all(starts).await?;
    let frame = Frame::new(kind, &id, &router, plan.choices_per_prompt);
    let mut response = match plan.stream {
        Some(options) => sse::response(frame, choices, options),
        None => whole::response(frame, choices).await?,
    };
    if let Ok(value) = id.parse() {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    Ok(response)
}

async fn read_plan(
    router: &Router,
    kind: Kind,
    id: &str,
    arrival: &Arrival,
    body: HttpBody,
) -> Result<Plan, Error> {
    let text = tokio::time::timeout_at(arrival.deadline, body::read(body))
        .await
        .map_err(|_| Error::Deadline { stage: "the body was read" })??;
    body::parse(&text)?.plan(kind, id, router.random.seed())
}

/// How many of the two APIs take a body, with all that it asks of sampling.
pub(crate) fn takes(body: &str) -> usize {
    let takes = |kind| {
        let planned = body::parse(body).and_then(|body| body.plan(kind, "id", 7));
        planned.is_ok_and(|plan| plan.asked.into_iter().all(|asked| asked.sampling.checked(2048, 7).is_ok()))
    };
    [Kind::Completion, Kind::Chat].into_iter().filter(|kind| takes(*kind)).count()
}

/// The client's own id for the request, or a fresh one.
fn request_id(headers: &HeaderMap, random: &Random) -> Result<String, Error> {
    match headers.get(REQUEST_ID) {
        None => Ok(random.uuid().simple().to_string()),
        Some(value) => value
            .to_str()
            .map(str::to_owned)
            .map_err(|_| Error::invalid(REQUEST_ID, "must be visible ASCII characters")),
    }
}

#[cfg(test)]
mod tests;
