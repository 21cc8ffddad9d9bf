//! What every request and every response goes through: sizes, times, headers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::timeout;

use super::Limits;
use super::problem::Problem;

/// Everything from us and nothing from elsewhere, nothing inline, no frame around us, no form that is sent by itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Puts the headers on every response. What is shown here is of this moment, so nothing of it is stored.
pub(super) async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Keeps requests within the size that they announce, and within their time. A response that has begun may take longer.
/// (Whoever reads a body has the same limit on what really comes.)
pub(super) async fn keep_limits(State(limits): State<Arc<Limits>>, request: Request, next: Next) -> Response {
    let most = limits.body_bytes;
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| usize::try_from(length).map_or(true, |length| length > most)) {
        let detail = format!("the request is too large; accepted is a body of at most {most} bytes");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail).into_response();
    }
    match timeout(limits.request_time, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request was not done within {:?}", limits.request_time);
            Problem::new(StatusCode::REQUEST_TIMEOUT, "request-timed-out", detail).into_response()
        }
    }
}
