//! How refusals become responses: as the application likes, or as [`Refusal::to_response`] has it.

use bytes::Bytes;
use http::Response;

use super::refusal::Refusal;

/// How a refusal becomes a response. Every `Fn(&Refusal) -> Response<Bytes>` is one.
///
/// ```
/// use clinch::http::{Refusal, RefusalKind, Refuse};
///
/// let plain = |refusal: &Refusal| {
///     let mut response = http::Response::new(refusal.message.clone().into());
///     *response.status_mut() = refusal.status;
///     response
/// };
/// assert_eq!(plain.refuse(&Refusal::new(RefusalKind::Locked)).status(), 409);
/// ```
pub trait Refuse: Send + Sync + 'static {
    /// The response to a request that is refused.
    fn refuse(&self, refusal: &Refusal) -> Response<Bytes>;
}

impl<F> Refuse for F
where
    F: Fn(&Refusal) -> Response<Bytes> + Send + Sync + 'static,
{
    fn refuse(&self, refusal: &Refusal) -> Response<Bytes> {
        self(refusal)
    }
}

/// Refuses as [`Refusal::to_response`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProblemJson;

impl Refuse for ProblemJson {
    fn refuse(&self, refusal: &Refusal) -> Response<Bytes> {
        refusal.to_response()
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.to_response().map(axum::body::Body::from)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Error;
    use crate::http::RefusalKind;

    #[test]
    fn refusals_can_be_written_otherwise() {
        let refusal = Refusal::new(RefusalKind::Limited).retry_after(Duration::from_secs(2));
        let ways: [Box<dyn Refuse>; 2] = [
            Box::new(ProblemJson),
            Box::new(|refusal: &Refusal| Response::new(Bytes::from(format!("{:?}", refusal.kind)))),
        ];
        assert_eq!(ways[0].refuse(&refusal).headers()["retry-after"], "2");
        assert_eq!(ways[1].refuse(&refusal).body(), "Limited");
    }

    /// Proves: L10
    #[cfg(feature = "axum")]
    #[tokio::test]
    async fn a_handler_may_return_the_error() {
        use axum::response::IntoResponse;
        use http_body_util::BodyExt;

        use crate::error::{Denied, DeniedBy};
        use crate::key::Key;

        let handler = || -> Result<&'static str, Error> {
            Err(Error::denied(Denied {
                key: Key::new("order:42").unwrap(),
                cause: DeniedBy::Lock,
                holder: None,
                retry_after: Some(Duration::from_secs(3)),
                done: None,
                wait: Duration::ZERO,
                by_own_scope: false,
            }))
        };
        let response = handler().into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["retry-after"], "3");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["remainingTime"], 3_000);
    }
}
