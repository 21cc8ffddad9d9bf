//! Refusals of the server itself: problem details, as the library's own.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    /// The last part of its type.
    kind: &'static str,
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": format!("urn:clinch:problem:{}", self.kind),
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let mut response = (self.status, [content_type], body.to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            // Browsers show no dialog of their own for this scheme.
            let scheme = HeaderValue::from_static("Bearer realm=\"clinch\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
