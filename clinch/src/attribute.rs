//! What the attributes expand to. Not for use by hand: it changes without notice.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use crate::error::Error;
use crate::key::{Key, KeyTemplate};
use crate::submit::request::{self, Answer, Request};
use crate::submit::{
    Admission, AsGuards, Defaults, Disconnect, DuplicatePolicy, Guards, Identity, LimitPolicy, LockPolicy,
    Submission, log_duplicate,
};
use crate::telemetry::Stopwatch;

/// The names and values of a template's placeholders.
type Values<'a> = &'a [(&'a str, &'a dyn Display)];

/// The guards that were named in an attribute.
pub fn guards(named: &impl AsGuards) -> Guards {
    named.as_guards()
}

/// The path of the function of this name in which something stands that has the path `inside`: with the type of an associated
/// function, or the function around a nested one, which the module's path does not tell. `plain` where it cannot be seen.
pub fn path(inside: &'static str, name: &str, plain: &'static str) -> &'static str {
    let before = inside.rfind(&format!("::{name}::"));
    before.and_then(|at| inside.get(..at + 2 + name.len())).unwrap_or(plain)
}

/// What an attribute states, on top of the guards' default policy.
#[derive(Debug)]
struct Stated<P: 'static> {
    stated: fn(P) -> P,
    /// The policy on the first defaults that there were, which are usually the only ones.
    first: OnceLock<(Arc<Defaults>, Arc<P>)>,
}

impl<P> Stated<P> {
    const fn new(stated: fn(P) -> P) -> Self {
        Self { stated, first: OnceLock::new() }
    }

    /// The policy on these defaults, of which `begin` takes what it begins with.
    fn on(&self, defaults: &Arc<Defaults>, begin: impl Fn(&Defaults) -> P) -> Arc<P> {
        let made = || Arc::new((self.stated)(begin(defaults)));
        let (first, policy) = self.first.get_or_init(|| (defaults.clone(), made()));
        if Arc::ptr_eq(first, defaults) { policy.clone() } else { made() }
    }
}

/// The guards that are named, or that are around, and the policies that they begin with.
fn around(named: Option<Guards>) -> (Option<Guards>, Arc<Defaults>) {
    let guards = named.or_else(Guards::current);
    let defaults = guards.as_ref().map_or_else(Defaults::unset, |guards| guards.defaults().clone());
    (guards, defaults)
}

/// The guards, if the attribute is to do anything.
fn working(guards: Option<Guards>, enabled: bool) -> Result<Option<Guards>, Error> {
    if !enabled {
        return Ok(None);
    }
    let guards = guards.ok_or(Error::Missing {
        what: "the lock manager of an attribute",
        remedy: "put the router's layer around the handler (`clinch::http::Web::layer`), call `Guards::install` when the \
                 program starts, or name it in the attribute (`manager = …`)",
    })?;
    Ok(Some(guards).filter(|guards| guards.is_on(true)))
}

/// Says what is to happen if the client goes away while what was let in runs, if there is one.
fn on_disconnect(admitted: &Result<Admission, Error>, disconnect: Disconnect) {
    if let (Ok(_), Some(request)) = (admitted, request::current()) {
        request.on_disconnect(disconnect);
    }
}

/// Says how a refusal is to be answered, if there is somebody to answer.
fn answering(
    admitted: Result<Admission, Error>,
    status: Option<u16>,
    message: Option<&String>,
) -> Result<Admission, Error> {
    if let (Err(error), Some(request)) = (&admitted, request::current()) {
        request.answer_with(Answer { key: error.key().cloned(), status, message: message.cloned() });
    }
    admitted
}

/// `#[clinch::lock]`.
#[derive(Debug)]
pub struct Lock {
    key: &'static str,
    template: Result<KeyTemplate, Error>,
    stated: Stated<LockPolicy>,
}

impl Lock {
    /// What the attribute says: the template of its key, and what it states besides.
    pub fn new(key: &'static str, stated: fn(LockPolicy) -> LockPolicy) -> Self {
        let template = KeyTemplate::new(key).map_err(Error::from);
        Self { key, template, stated: Stated::new(stated) }
    }

    /// The key of one call.
    ///
    /// # Errors
    /// [`Error::InvalidKey`].
    pub fn key(&self, values: Values<'_>) -> Result<Key, Error> {
        Ok(self.template.as_ref().map_err(Clone::clone)?.key(values)?)
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// Why it was not taken.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn enter(&self, named: Option<Guards>, key: Result<Key, Error>) -> Result<Admission, Error> {
        let (guards, defaults) = around(named);
        let begin = |defaults: &Defaults| LockPolicy { key: self.key.to_owned(), ..defaults.lock.clone() };
        let policy = self.stated.on(&defaults, begin);
        let Some(guards) = working(guards, policy.enabled)? else { return Ok(Admission::unguarded()) };
        // On the heap, so that the futures of guarded functions that call each other stay small.
        let admitted = Box::pin(guards.enter_lock(&policy, key)).await;
        on_disconnect(&admitted, policy.disconnect);
        answering(admitted, policy.status, policy.message.as_ref())
    }
}

/// `#[clinch::limit]`.
#[derive(Debug)]
pub struct Limit {
    key: &'static str,
    limit: u32,
    template: Result<KeyTemplate, Error>,
    stated: Stated<LimitPolicy>,
}

impl Limit {
    /// What the attribute says: the template of its key, how many, and what it states besides.
    pub fn new(key: &'static str, limit: u32, stated: fn(LimitPolicy) -> LimitPolicy) -> Self {
        let template = KeyTemplate::new(key).map_err(Error::from);
        Self { key, limit, template, stated: Stated::new(stated) }
    }

    /// The name of the limit in one call.
    ///
    /// # Errors
    /// [`Error::InvalidKey`].
    pub fn key(&self, values: Values<'_>) -> Result<Key, Error> {
        Ok(self.template.as_ref().map_err(Clone::clone)?.key(values)?)
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// Why it was not taken.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn enter(&self, named: Option<Guards>, key: Result<Key, Error>) -> Result<Admission, Error> {
        let (guards, defaults) = around(named);
        let begin = |defaults: &Defaults| LimitPolicy {
            key: self.key.to_owned(),
            limit: self.limit,
            ..defaults.limit.clone()
        };
        let policy = self.stated.on(&defaults, begin);
        let Some(guards) = working(guards, policy.enabled)? else { return Ok(Admission::unguarded()) };
        let admitted = Box::pin(guards.enter_limit(&policy, key)).await;
        on_disconnect(&admitted, policy.disconnect);
        answering(admitted, policy.status, policy.message.as_ref())
    }
}

/// `#[clinch::prevent_duplicate]`.
#[derive(Debug)]
pub struct Duplicate {
    function: &'static str,
    stated: Stated<DuplicatePolicy>,
    user: Option<Result<KeyTemplate, Error>>,
    /// Whether it is about the function's own parameters, also inside a request.
    own: bool,
}

impl Duplicate {
    /// What the attribute states, on the function of this path.
    pub const fn new(function: &'static str, stated: fn(DuplicatePolicy) -> DuplicatePolicy) -> Self {
        Self { function, stated: Stated::new(stated), user: None, own: false }
    }

    /// The user is made of parameters by this template.
    #[must_use]
    pub fn user(mut self, template: &str) -> Self {
        self.user = Some(KeyTemplate::new(template).map_err(Error::from));
        self.function()
    }

    /// It is about the function's own parameters, also inside a request.
    #[must_use]
    pub const fn function(mut self) -> Self {
        self.own = true;
        self
    }

    /// A call of the function.
    pub fn call(&self, named: Option<Guards>) -> DuplicateCall<'_> {
        self.called(self.function.to_owned(), named)
    }

    /// A call of the method of this type.
    pub fn call_on(&self, receiver: &'static str, named: Option<Guards>) -> DuplicateCall<'_> {
        let name = self.function.rsplit("::").next().unwrap_or(self.function);
        self.called(format!("{receiver}::{name}"), named)
    }

    fn called(&self, function: String, named: Option<Guards>) -> DuplicateCall<'_> {
        let request = if self.own { None } else { request::current() };
        let (guards, defaults) = around(named);
        let policy = self.stated.on(&defaults, |defaults| defaults.duplicate.clone());
        DuplicateCall { of: self, guards, policy, request, submission: Ok(Submission::of(function)) }
    }
}

/// One call of a guarded function.
pub struct DuplicateCall<'a> {
    of: &'a Duplicate,
    guards: Option<Guards>,
    policy: Arc<DuplicatePolicy>,
    request: Option<Arc<dyn Request>>,
    submission: Result<Submission, Error>,
}

impl std::fmt::Debug for DuplicateCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DuplicateCall").field("of", self.of).finish_non_exhaustive()
    }
}

impl DuplicateCall<'_> {
    /// Whether the function's parameters count.
    pub fn wants_params(&self) -> bool {
        self.request.is_none() && self.policy.enabled && self.policy.include_params
    }

    /// Adds a parameter, if it could be written as JSON.
    pub fn param(&mut self, name: &'static str, json: Option<Result<String, Error>>) {
        match (&mut self.submission, json) {
            (Ok(submission), Some(Ok(json))) => submission.json(name, json),
            (submission, Some(Err(error))) => *submission = Err(error),
            _ => {}
        }
    }

    /// Says who calls.
    pub fn user(&mut self, values: Values<'_>) {
        let Some(template) = &self.of.user else { return };
        let user = template.clone().and_then(|template| Ok(template.key(values)?));
        let submission = std::mem::replace(&mut self.submission, Ok(Submission::of("")));
        self.submission =
            submission.and_then(|submission| Ok(submission.user(Identity::user(user?.as_str()))));
    }

    /// Lets the call in.
    ///
    /// # Errors
    /// Why it was not let in.
    ///
    /// # Cancel safety
    /// Safe: a dropped call leaves nothing behind.
    pub async fn enter(self) -> Result<Admission, Error> {
        let policy = &*self.policy;
        let Some(guards) = working(self.guards, policy.enabled)? else { return Ok(Admission::unguarded()) };
        let since = Stopwatch::start();
        let meter = || guards.locks().meter(policy.name.as_deref().unwrap_or(self.of.function));
        // On the heap, so that the futures of guarded functions that call each other stay small.
        let admitted = Box::pin(async {
            let submission = match &self.request {
                Some(request) => request.submission(policy).await,
                None => self.submission,
            };
            match submission {
                Ok(submission) => guards.enter_duplicate(policy, &submission, since).admitted().await,
                // What cannot be looked at is not refused by one that only looks on.
                Err(error) if guards.looks_on(policy.shadow, &meter(), &error) => Ok(Admission::unguarded()),
                Err(error) => Err(error),
            }
        })
        .await;
        if let Err(error) = &admitted {
            let user_agent = || self.request.as_ref().and_then(|request| request.user_agent());
            log_duplicate(error, || user_agent().map(Cow::Owned));
        }
        // What is about the function alone does not decide for its request.
        if self.request.is_some() {
            on_disconnect(&admitted, policy.disconnect);
        }
        answering(admitted, policy.status, None)
    }
}

/// A parameter that may be serialisable.
#[derive(Debug)]
pub struct Param<'a, T: ?Sized>(pub &'a T);

/// Chosen for parameters that are serialisable.
pub trait ViaSerialize {
    /// The parameter as JSON.
    fn json(&self) -> Option<Result<String, Error>>;
}

impl<T: Serialize + ?Sized> ViaSerialize for &Param<'_, T> {
    fn json(&self) -> Option<Result<String, Error>> {
        let json = serde_json::to_string(self.0);
        let accepted = "accepted is what serde can write as JSON";
        Some(json.map_err(|error| Error::option("parameter", &error, accepted)))
    }
}

/// Chosen for all others: they do not count.
pub trait ViaNothing {
    /// Nothing.
    fn json(&self) -> Option<Result<String, Error>>;
}

impl<T: ?Sized> ViaNothing for Param<'_, T> {
    fn json(&self) -> Option<Result<String, Error>> {
        None
    }
}

/// What a function returned, which may say that it failed although it is no error.
#[derive(Debug)]
pub struct Ended<'a, T: ?Sized>(pub &'a T);

/// Chosen for values with a status.
pub trait ViaStatus {
    /// Whether it is a success.
    fn succeeded(&self) -> bool;
}

/// Chosen for all others.
pub trait ViaAnything {
    /// It is.
    fn succeeded(&self) -> bool;
}

impl<T: ?Sized> ViaAnything for Ended<'_, T> {
    fn succeeded(&self) -> bool {
        true
    }
}

#[cfg(feature = "http")]
mod status {
    use http::{Response, StatusCode};

    use super::{Ended, ViaStatus};

    fn is_success(status: StatusCode) -> bool {
        status.as_u16() < 400
    }

    impl<B> ViaStatus for &Ended<'_, Response<B>> {
        fn succeeded(&self) -> bool {
            is_success(self.0.status())
        }
    }

    impl ViaStatus for &Ended<'_, StatusCode> {
        fn succeeded(&self) -> bool {
            is_success(*self.0)
        }
    }

    /// As axum takes them: a status, then parts of the response.
    macro_rules! tuples {
        ($(($($part:ident),+))+) => {$(
            impl<$($part),+> ViaStatus for &Ended<'_, (StatusCode, $($part),+)> {
                fn succeeded(&self) -> bool {
                    is_success(self.0.0)
                }
            }
        )+};
    }
    tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }
}
