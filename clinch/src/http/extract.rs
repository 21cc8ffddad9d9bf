//! What axum handlers can take.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::web::{Refused, Web};
use super::{ProblemJson, Refusal, Refuse};
use crate::error::Error;
use crate::manager::Lease;
use crate::submit::request::{self, Answer};

/// The lease under which a handler runs: its [fence](Lease::fence), whether it [is degraded](Lease::is_degraded), when it is
/// [lost](Lease::lost). Of several layers it is the innermost one's.
///
/// `Held` fails where there is none, because the guard is not enabled or in shadow mode; `Option<Held>` does not. Handlers with
/// an attribute have theirs by the attribute's `lease = name`.
///
/// ```
/// use clinch::http::Held;
///
/// async fn pay(Held(lease): Held) -> String {
///     format!("fence {:?}, degraded {}", lease.fence(), lease.is_degraded())
/// }
/// # let _ = pay;
/// ```
#[derive(Debug, Clone)]
pub struct Held(pub Lease);

impl<S: Sync> FromRequestParts<S> for Held {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        parts.extensions.get::<Lease>().cloned().map(Self).ok_or(Error::Missing {
            what: "the lease of this request",
            remedy: "put a layer of `clinch::http::Web` around the handler, or take an `Option<Held>`",
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Lease>().cloned().map(Self))
    }
}

/// As the service around it refuses, inside of [`Web::layer`]; as problem details elsewhere.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let answer = request::current().map(|request| request.answer()).unwrap_or_default();
        // One that was handled says nothing of another.
        let answer = if answer.key.as_ref() == self.key() { answer } else { Answer::default() };
        let refusal = Refusal::of(&self);
        refusal.log_if_internal(&self);
        let response = match Web::current() {
            Some(web) => web.refusal(refusal, answer.status, answer.message.as_deref()),
            None => {
                let mut response = ProblemJson.refuse(&refusal);
                response.extensions_mut().insert(Refused);
                response
            }
        };
        response.map(axum::body::Body::from)
    }
}
