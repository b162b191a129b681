//! Errors in OpenAI's shape.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use proto::status::reason_name;
use serde_json::{Value, json};

use crate::error::Error;

/// The response that says `error`.
pub(super) fn response(error: &Error) -> Response {
    let fault = error.fault();
    let status = error.http_status();
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(%error, "request failed");
    } else {
        tracing::info!(%error, "request ended");
    }
    let mut response = (status, Json(body(error))).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(after) = fault.retry_after {
        response.headers_mut().insert(RETRY_AFTER, (after.as_secs().max(1)).into());
    }
    response
}

/// `{"error": ...}`.
pub(super) fn body(error: &Error) -> Value {
    let fault = error.fault();
    shape(&fault.message, error.http_status(), fault.field.as_deref(), reason_name(fault.reason))
}

pub(super) fn no_such_route(method: &Method, uri: &Uri) -> Response {
    let status = StatusCode::NOT_FOUND;
    let message = format!("there is no {method} {}", uri.path());
    (status, Json(shape(&message, status, None, "NOT_FOUND"))).into_response()
}

fn shape(message: &str, status: StatusCode, param: Option<&str>, code: &str) -> Value {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}
