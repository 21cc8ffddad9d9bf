//! What each guard asks for: its place for a request, and what happens then.

use std::borrow::Cow;

use super::look::Look;
use super::web::Web;
use crate::error::Error;
use crate::key::{Key, KeyTemplate};
use crate::submit::{
    Disconnect, DuplicatePolicy, Entered, Guards, LimitPolicy, LockPolicy, Streaming, Submission,
};
use crate::telemetry::Stopwatch;

/// What all guards do in the same way.
#[derive(Debug, Clone, Copy)]
pub struct Handling<'a> {
    pub(super) enabled: bool,
    pub(super) shadow: bool,
    pub(super) safe_methods: bool,
    pub(super) disconnect: Disconnect,
    pub(super) streaming: Streaming,
    pub(super) status: Option<u16>,
    pub(super) message: Option<&'a str>,
}

mod sealed {
    pub trait Sealed {}
}

/// A kind of guard that a [`GuardLayer`](super::GuardLayer) puts before a service.
pub trait Gate: sealed::Sealed + Clone + Send + Sync + 'static {
    /// What a request asks for.
    #[doc(hidden)]
    type Wish: Send + Sync + 'static;

    #[doc(hidden)]
    fn handling(&self) -> Handling<'_>;

    /// Whether the body must be read.
    #[doc(hidden)]
    fn needs_body(&self, web: &Web, look: HiddenLook<'_>) -> bool {
        let _ = (web, look);
        false
    }

    /// What the request asks for.
    #[doc(hidden)]
    fn wish(&self, web: &Web, look: HiddenLook<'_>, body: Option<&bytes::Bytes>)
    -> Result<Self::Wish, Error>;

    /// The name under which it is counted.
    #[doc(hidden)]
    fn guard(&self, look: HiddenLook<'_>) -> Cow<'_, str>;

    /// What comes of it, as far as that needs no waiting.
    #[doc(hidden)]
    fn admit<'a>(&'a self, guards: &'a Guards, wish: Self::Wish, since: HiddenSince) -> HiddenEntered<'a>;
}

/// When a request came to its guard.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HiddenSince(pub(super) Stopwatch);

/// A request that was let in or refused, or the future that will say so.
#[doc(hidden)]
#[derive(Debug)]
pub struct HiddenEntered<'a>(pub(super) Entered<'a>);

/// A look at a request, for the guards of this crate only.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HiddenLook<'a>(pub(super) Look<'a>);

/// A guard against duplicate submissions.
#[derive(Debug, Clone)]
pub struct DuplicateGate(std::sync::Arc<DuplicatePolicy>);

impl DuplicateGate {
    pub(super) fn new(policy: DuplicatePolicy) -> Result<Self, Error> {
        policy.check()?;
        Ok(Self(policy.into()))
    }
}

impl sealed::Sealed for DuplicateGate {}

impl Gate for DuplicateGate {
    type Wish = Submission;

    fn handling(&self) -> Handling<'_> {
        let policy = &self.0;
        Handling {
            enabled: policy.enabled,
            shadow: policy.shadow,
            safe_methods: policy.safe_methods,
            disconnect: policy.disconnect,
            streaming: policy.streaming,
            status: policy.status,
            // It is in the error.
            message: None,
        }
    }

    fn needs_body(&self, web: &Web, look: HiddenLook<'_>) -> bool {
        look.0.needs_body(web, &self.0)
    }

    fn wish(
        &self,
        web: &Web,
        look: HiddenLook<'_>,
        body: Option<&bytes::Bytes>,
    ) -> Result<Submission, Error> {
        look.0.submission(web, &self.0, body)
    }

    fn guard(&self, look: HiddenLook<'_>) -> Cow<'_, str> {
        look.0.guard(self.0.name.as_deref(), DuplicatePolicy::KIND)
    }

    fn admit<'a>(&'a self, guards: &'a Guards, wish: Submission, since: HiddenSince) -> HiddenEntered<'a> {
        HiddenEntered(guards.enter_duplicate(&self.0, &wish, since.0))
    }
}

/// Fills a template from the parameters of a request.
fn key(template: &KeyTemplate, look: Look<'_>) -> Result<Key, Error> {
    let mut values = Vec::new();
    for name in template.placeholders() {
        // An empty one would make one key of all who send it empty.
        let value = look
            .named(name)?
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Error::MissingParameter { name: name.to_owned() })?;
        values.push((name, value));
    }
    let values: Vec<(&str, &dyn std::fmt::Display)> =
        values.iter().map(|(name, value)| (*name, value as &dyn std::fmt::Display)).collect();
    Ok(template.key(&values)?)
}

macro_rules! keyed_gate {
    ($gate:ident, $policy:ident, $method:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Clone)]
        pub struct $gate(std::sync::Arc<($policy, KeyTemplate)>);

        impl $gate {
            pub(super) fn new(policy: $policy) -> Result<Self, Error> {
                let template = policy.check()?;
                Ok(Self((policy, template).into()))
            }
        }

        impl sealed::Sealed for $gate {}

        impl Gate for $gate {
            type Wish = Key;

            fn handling(&self) -> Handling<'_> {
                let policy = &self.0.0;
                Handling {
                    enabled: policy.enabled,
                    shadow: policy.shadow,
                    safe_methods: policy.safe_methods,
                    disconnect: policy.disconnect,
                    streaming: policy.streaming,
                    status: policy.status,
                    message: policy.message.as_deref(),
                }
            }

            fn wish(&self, _: &Web, look: HiddenLook<'_>, _: Option<&bytes::Bytes>) -> Result<Key, Error> {
                key(&self.0.1, look.0)
            }

            fn guard(&self, _: HiddenLook<'_>) -> Cow<'_, str> {
                self.0.0.guard().into()
            }

            fn admit<'a>(&'a self, guards: &'a Guards, wish: Key, _: HiddenSince) -> HiddenEntered<'a> {
                HiddenEntered(Entered::Other(Box::pin(guards.$method(&self.0.0, Ok(wish)))))
            }
        }
    };
}

keyed_gate!(LockGate, LockPolicy, enter_lock, "A lock around a service.");
keyed_gate!(LimitGate, LimitPolicy, enter_limit, "A concurrency limit around a service.");
