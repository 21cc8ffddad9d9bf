//! Refusals as RFC 9457 has them: `application/problem+json`.
//!
//! What a refusal shows is written here or by the author of a policy. No key, no token, no holder, no address of an engine
//! and no text of an error below gets into it: a refusal goes to strangers.

mod kind;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

pub use self::kind::RefusalKind;
use super::statuses::Statuses;
use crate::error::{DeniedBy, Error};
use crate::key::{KeyError, TemplateError};

/// A request that is refused: all that its response says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// The status.
    pub status: StatusCode,
    /// The kind in a few words, the same for every refusal of this kind.
    pub title: &'static str,
    /// What happened this time, for developers.
    pub detail: String,
    /// What the user is told, in whatever language the author of the policy wrote it.
    pub message: String,
    /// The remaining time: when to try again, where that is known.
    pub retry_after: Option<Duration>,
    /// Whether the first one is still running, where that is known.
    pub in_progress: Option<bool>,
}

impl Refusal {
    /// A refusal of this kind, with its usual status and texts.
    pub fn new(kind: RefusalKind) -> Self {
        Self::saying(kind, kind.detail().to_owned(), kind.detail().to_owned())
    }

    fn saying(kind: RefusalKind, detail: String, message: String) -> Self {
        Self {
            kind,
            status: Statuses::default().of(kind),
            title: kind.title(),
            detail,
            message,
            retry_after: None,
            in_progress: None,
        }
    }

    /// What this error is to somebody outside.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::DuplicateSubmit { message, remaining, in_progress, .. } => {
                let detail = if *in_progress {
                    "the same was submitted before and is still being carried out"
                } else {
                    "the same was submitted and carried out a moment ago"
                };
                Self {
                    retry_after: Some(*remaining),
                    in_progress: Some(*in_progress),
                    ..Self::saying(RefusalKind::Duplicate, detail.to_owned(), message.clone())
                }
            }
            Error::LockNotAcquired { denied, .. } => {
                let kind = match denied.cause {
                    DeniedBy::Limit => RefusalKind::Limited,
                    // Nobody else has it: the engine was too slow.
                    DeniedBy::TooLate => RefusalKind::Engine,
                    _ => RefusalKind::Locked,
                };
                Self { retry_after: denied.retry_after, ..Self::new(kind) }
            }
            Error::Engine { .. } | Error::ShutDown { .. } => Self::new(RefusalKind::Engine),
            // Nobody did anything wrong, and the same may work next time.
            Error::LeaseLost { .. } => {
                let detail = "the work was broken off, because it was no longer sure that nobody else does it; try again later";
                Self::new(RefusalKind::Engine).detail(detail).message(detail)
            }
            Error::TooLarge { reason } => Self::new(RefusalKind::TooLarge).detail(reason).message(reason),
            Error::Unreadable { reason } => {
                Self::new(RefusalKind::BadRequest).detail(*reason).message(*reason)
            }
            Error::MissingParameter { .. } | Error::RepeatedParameter { .. } => {
                let text = error.to_string();
                Self::new(RefusalKind::BadRequest).detail(&text).message(text)
            }
            // A key is filled in with what the client sends; that its template is none, is not the client's fault.
            Error::InvalidKey(KeyError::Template(TemplateError::Missing { .. })) => {
                Self::new(RefusalKind::BadRequest)
            }
            Error::InvalidKey(KeyError::Template(_)) => Self::new(RefusalKind::Internal),
            Error::InvalidKey(_) => Self::new(RefusalKind::BadRequest),
            #[cfg(feature = "config")]
            Error::Config(_) => Self::new(RefusalKind::Internal),
            Error::InvalidOption { .. }
            | Error::InvalidUrl { .. }
            | Error::ScopeEnded { .. }
            | Error::SelfDeadlock { .. }
            | Error::Missing { .. } => Self::new(RefusalKind::Internal),
        }
    }

    /// The same for an error that nobody else needs, so that its message is not copied. Logged as by
    /// [`log_if_internal`](Self::log_if_internal).
    pub(super) fn taken_from(mut error: Error) -> Self {
        let message = match &mut error {
            Error::DuplicateSubmit { message, .. } => Some(std::mem::take(message)),
            _ => None,
        };
        let refusal = Self::of(&error);
        refusal.log_if_internal(&error);
        match message {
            Some(message) => Self { message, ..refusal },
            None => refusal,
        }
    }

    /// Logs what is wrong with a guard: whoever is refused is not told.
    pub(super) fn log_if_internal(&self, error: &Error) {
        if self.kind == RefusalKind::Internal {
            tracing::error!(%error, "a guard cannot work as it is set up");
        }
    }

    /// Says what happened this time. It goes to strangers.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Says what the user is told.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Gives it another status.
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Says when to try again.
    pub const fn retry_after(mut self, remaining: Duration) -> Self {
        self.retry_after = Some(remaining);
        self
    }

    /// When to try again, in whole seconds, rounded up, at least 1: what the header `Retry-After` says.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let up = |time: Duration| time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        self.retry_after.map(|time| up(time).max(1))
    }

    /// The remaining time in milliseconds, rounded up, at least 1.
    pub fn remaining_millis(&self) -> Option<u64> {
        let up = |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.retry_after.map(|time| up(time).max(1))
    }

    /// The response: status, `Retry-After` where it is known, `Cache-Control: no-store`, and a body of
    /// `application/problem+json` with `type`, `title`, `status`, `detail`, `message` and, where they are known, `retryAfter`
    /// (seconds), `remainingTime` (milliseconds) and `inProgress`.
    pub fn to_response(&self) -> Response<Bytes> {
        let mut room = [b'0'; 20];
        let seconds = self.retry_after_seconds().map(|seconds| digits(seconds, &mut room));
        let mut response = Response::new(self.body(seconds));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(Ok(seconds)) = seconds.map(HeaderValue::from_str) {
            headers.insert(RETRY_AFTER, seconds);
        }
        response
    }

    /// By hand, because most of it needs nothing but copying; put together at once, so that it has the memory it needs and no
    /// more.
    fn body(&self, seconds: Option<&str>) -> Bytes {
        let mut room = [b'0'; 20];
        let millis = self.remaining_millis().map(|millis| digits(millis, &mut room));
        let (detail, message) = (escaped(&self.detail), escaped(&self.message));
        let pieces = [
            "{\"type\":\"",
            self.kind.problem_type(),
            "\",\"title\":\"",
            &escaped(self.title),
            "\",\"status\":",
            self.status.as_str(),
            ",\"detail\":\"",
            &detail,
            "\",\"message\":\"",
            &message,
            "\"",
            seconds.map_or("", |_| ",\"retryAfter\":"),
            seconds.unwrap_or_default(),
            millis.map_or("", |_| ",\"remainingTime\":"),
            millis.unwrap_or_default(),
            match self.in_progress {
                None => "}",
                Some(true) => ",\"inProgress\":true}",
                Some(false) => ",\"inProgress\":false}",
            },
        ];
        pieces.concat().into()
    }
}

/// A number as it is written.
fn digits(number: u64, room: &mut [u8; 20]) -> &str {
    let (mut first, mut rest) = (room.len(), number);
    while first == room.len() || rest > 0 {
        first -= 1;
        room[first] = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
    }
    // They are ASCII.
    str::from_utf8(&room[first..]).unwrap_or_default()
}

/// A text as it stands between the quotation marks of JSON.
fn escaped(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
        return text.into();
    }
    // Texts always can be written.
    let json = serde_json::to_string(text).unwrap_or_default();
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_owned().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Denied;
    use crate::key::{Key, KeyTemplate};
    use crate::lease::{ClaimKey, Holder, Mode, Token};
    use crate::manager::Loss;
    use crate::store::{ErrorKind, StoreError};

    /// In every place where a secret can be in an error.
    const SECRET: &str = "s3cret";

    fn key() -> Key {
        Key::new(format!("order:{SECRET}")).unwrap()
    }

    fn duplicate(message: &str, remaining: Duration, in_progress: bool) -> Error {
        Error::DuplicateSubmit { key: key(), message: message.to_owned(), remaining, in_progress }
    }

    fn denied(cause: DeniedBy, retry_after: Option<Duration>) -> Error {
        let (on, token) = (ClaimKey::lock(key()), Token::from_text(SECRET));
        Error::denied(Denied {
            key: key(),
            cause,
            holder: Some(Holder::new(on, Mode::Exclusive, token, retry_after)),
            retry_after,
            done: None,
            wait: Duration::ZERO,
            by_own_scope: false,
        })
    }

    fn engine() -> Error {
        let text = format!("cannot reach redis://user:{SECRET}@10.1.2.3:6379");
        Error::engine("acquire", Some(&key()), StoreError::not_applied(ErrorKind::Unavailable, text))
    }

    fn body(response: &Response<Bytes>) -> Value {
        serde_json::from_slice(response.body()).unwrap()
    }

    /// Proves: D6
    #[test]
    fn a_duplicate_is_a_problem_with_the_remaining_time() {
        let response =
            Refusal::of(&duplicate("请勿重复提交 🙏", Duration::from_millis(4_001), true)).to_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["retry-after"], "5");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let expected = json!({
            "type": "urn:clinch:problem:duplicate-submit",
            "title": "Duplicate submission",
            "status": 429,
            "detail": "the same was submitted before and is still being carried out",
            "message": "请勿重复提交 🙏",
            "retryAfter": 5,
            "remainingTime": 4_001,
            "inProgress": true,
        });
        assert_eq!(body(&response), expected);
        assert_eq!(
            body(&Refusal::of(&duplicate("", Duration::ZERO, false)).to_response())["inProgress"],
            false
        );
    }

    /// Proves: D6
    #[test]
    fn times_are_rounded_up_and_never_zero() {
        for (remaining, seconds, millis) in [
            (Duration::ZERO, 1, 1),
            (Duration::from_nanos(1), 1, 1),
            (Duration::from_micros(1_001), 1, 2),
            (Duration::from_millis(999), 1, 999),
            (Duration::from_secs(1), 1, 1_000),
            (Duration::from_millis(1_001), 2, 1_001),
            (Duration::from_nanos(2_000_000_001), 3, 2_001),
            (Duration::from_secs(300), 300, 300_000),
            (Duration::MAX, u64::MAX, u64::MAX),
        ] {
            let refusal = Refusal::of(&duplicate("", remaining, false));
            assert_eq!(refusal.retry_after_seconds(), Some(seconds), "{remaining:?}");
            assert_eq!(refusal.remaining_millis(), Some(millis), "{remaining:?}");
            let response = refusal.to_response();
            assert_eq!(response.headers()["retry-after"], seconds.to_string());
            assert_eq!(
                (&body(&response)["retryAfter"], &body(&response)["remainingTime"]),
                (&json!(seconds), &json!(millis))
            );
        }
    }

    /// Proves: L10
    #[test]
    fn a_lock_that_was_not_won_is_a_conflict() {
        let left = Some(Duration::from_millis(1_500));
        for (cause, retry_after, status) in [
            (DeniedBy::Lock, left, 409),
            (DeniedBy::Lock, None, 409),
            (DeniedBy::TooLate, None, 503),
            (DeniedBy::Revoked, None, 409),
            (DeniedBy::Limit, left, 503),
        ] {
            let response = Refusal::of(&denied(cause, retry_after)).to_response();
            assert_eq!(response.status(), status, "{cause:?}");
            let told = response.headers().get("retry-after");
            assert_eq!(told.map(HeaderValue::as_bytes), retry_after.map(|_| b"2".as_slice()));
            assert_eq!(body(&response).get("remainingTime").is_some(), retry_after.is_some());
            assert_eq!(body(&response).get("inProgress"), None);
        }
    }

    #[test]
    fn no_refusal_tells_a_secret() {
        let template = KeyTemplate::new(&format!("{SECRET}:{{id}}")).unwrap();
        let missing = template.key(&[]).unwrap_err();
        let unknown = template.key(&[("id", &1), (SECRET, &2)]).unwrap_err();
        for (error, status) in [
            (duplicate("no", Duration::from_secs(1), true), 429),
            (denied(DeniedBy::Lock, None), 409),
            (denied(DeniedBy::Limit, None), 503),
            (engine(), 503),
            (Error::ShutDown { key: Some(key()) }, 503),
            (Error::LeaseLost { key: key(), loss: Loss::Revoked }, 503),
            (Error::ScopeEnded { key: key() }, 500),
            (Error::SelfDeadlock { key: key(), reason: SECRET }, 500),
            (Error::option("status", &SECRET, SECRET), 500),
            (Error::InvalidUrl { url: SECRET.to_owned(), reason: SECRET.to_owned() }, 500),
            (Error::Missing { what: SECRET, remedy: SECRET }, 500),
            (missing.into(), 400),
            (unknown.into(), 500),
            (Error::InvalidKey(KeyError::TooLong { bytes: 600 }), 400),
        ] {
            let response = Refusal::of(&error).to_response();
            assert_eq!(response.status(), status, "{error}");
            let shown = format!("{response:?}{}", body(&response));
            assert!(
                !shown.contains(SECRET) && !shown.contains("redis") && !shown.contains("10.1.2.3"),
                "{shown}"
            );
            if status == 500 {
                let body = body(&response);
                assert_eq!(
                    (&body["detail"], &body["message"]),
                    (&json!("internal error"), &json!("internal error"))
                );
            }
        }
        let too_large = Refusal::of(&Error::TooLarge { reason: "at most 1 MiB".to_owned() });
        assert_eq!((too_large.status, &*too_large.detail), (StatusCode::PAYLOAD_TOO_LARGE, "at most 1 MiB"));
    }

    #[test]
    fn a_message_cannot_leave_the_body() {
        let evil = "x\r\nSet-Cookie: a=b\r\n\r\n\0\u{1b}\"}</script>\u{2028}";
        let response = Refusal::new(RefusalKind::Locked).message(evil).to_response();
        assert_eq!(body(&response)["message"], evil);
        assert_eq!(response.headers().len(), 2);
        assert!(!response.body().iter().any(u8::is_ascii_control));
    }
}
