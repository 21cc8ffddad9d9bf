//! Which status a refusal has.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::refusal::RefusalKind;
use crate::error::Error;

/// One field and one setter for each kind of refusal, from one table, so that none is forgotten.
macro_rules! statuses {
    ($($field:ident, $kind:ident, $usual:literal, $doc:literal;)*) => {
        /// Which status a refusal has, by its kind: 400 to 599.
        ///
        /// ```
        /// use clinch::http::Statuses;
        ///
        /// let statuses = Statuses::new().duplicate(409).limit(429);
        /// # let written = serde_json::json!({ "duplicate": 409, "limit": 429 });
        /// # assert_eq!(serde_json::from_value::<Statuses>(written).unwrap(), statuses);
        /// ```
        ///
        /// The same in a configuration file:
        ///
        /// ```toml
        /// duplicate = 409
        /// limit = 429
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[must_use]
        pub struct Statuses {
            $($field: u16,)*
        }

        impl Default for Statuses {
            fn default() -> Self {
                Self { $($field: $usual,)* }
            }
        }

        impl Statuses {
            $(
                #[doc = $doc]
                #[doc = concat!("; ", stringify!($usual), " unless set.")]
                pub const fn $field(mut self, status: u16) -> Self {
                    self.$field = status;
                    self
                }
            )*

            const fn number(&self, kind: RefusalKind) -> u16 {
                match kind {
                    $(RefusalKind::$kind => self.$field,)*
                }
            }

            /// Every one must be the status of an error.
            pub(crate) fn check(&self) -> Result<(), Error> {
                $(check(concat!("statuses.", stringify!($field)), self.$field)?;)*
                Ok(())
            }
        }

        #[cfg(test)]
        const KINDS: &[(&str, RefusalKind, u16)] =
            &[$((stringify!($field), RefusalKind::$kind, $usual),)*];
    };
}

statuses! {
    duplicate, Duplicate, 429, "Of a duplicate submission";
    lock, Locked, 409, "Of a lock that somebody else has";
    limit, Limited, 503, "Of a limit whose permits are all taken";
    engine, Engine, 503, "Of an engine that fails";
    too_large, TooLarge, 413, "Of a submission that is too large to be looked at";
    idempotency_key_missing, IdempotencyKeyMissing, 400, "Of a request without the idempotency key that it needs";
    idempotency_key_malformed, IdempotencyKeyMalformed, 400, "Of an idempotency key that is none";
    idempotency_key_reused, IdempotencyKeyReused, 422, "Of an idempotency key that came with another request before";
    idempotency_in_flight, IdempotencyInFlight, 409, "Of a repetition whose first request is still running";
    response_not_stored, ResponseNotStored, 409, "Of a repetition whose first response could not be stored";
    bad_request, BadRequest, 400, "Of a request that a guard cannot read";
    internal, Internal, 500, "Of a guard that is set up wrongly";
}

impl Statuses {
    /// 429 for duplicates, 409 for locks, 503 for limits and engines, and so on: each is said at its setter.
    pub fn new() -> Self {
        Self::default()
    }

    /// The status of this kind of refusal. One that was never checked and is none is an internal error.
    pub fn of(&self, kind: RefusalKind) -> StatusCode {
        StatusCode::from_u16(self.number(kind)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

fn check(field: &'static str, status: u16) -> Result<(), Error> {
    if (400..=599).contains(&status) {
        Ok(())
    } else {
        Err(Error::option(field, &status, "accepted is 400 to 599"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Refusal;

    /// Proves: B8
    #[test]
    fn the_status_of_every_refusal_can_be_configured() {
        for (field, kind, usual) in KINDS {
            assert_eq!(Refusal::new(*kind).to_response().status(), *usual, "{field}");
            for (status, accepted) in
                [(400, true), (418, true), (599, true), (399, false), (600, false), (0, false)]
            {
                let read: Statuses = serde_json::from_value(serde_json::json!({ *field: status })).unwrap();
                assert_eq!(read.check().is_ok(), accepted, "{field} {status}");
                if accepted {
                    let refusal = Refusal::new(*kind).status(read.of(*kind));
                    let response = refusal.to_response();
                    assert_eq!(response.status(), status, "{field}");
                    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                    assert_eq!(body["status"], status, "{field}");
                } else {
                    let error = read.check().unwrap_err().to_string();
                    let text = format!("invalid statuses.{field}: {status}; accepted is 400 to 599");
                    assert_eq!(error, text);
                }
                let others = KINDS.iter().filter(|(other, ..)| other != field);
                assert!(others.clone().all(|(_, kind, usual)| read.of(*kind) == *usual));
            }
        }
        assert!(serde_json::from_str::<Statuses>(r#"{ "duplicates": 409 }"#).is_err());
        assert!(Statuses::new().check().is_ok());
    }

    #[test]
    fn a_status_that_is_none_does_not_panic() {
        assert_eq!(Statuses::new().lock(7).of(RefusalKind::Locked), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
