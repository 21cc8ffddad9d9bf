//! A submission: what makes two of them the same, and the key that stands for it.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::identity::{Hasher, Identity};
use super::{DuplicatePolicy, Fingerprint, Limits, Params};
use crate::error::Error;
use crate::key::escape::Escaped;
use crate::key::{Key, MAX_KEY_BYTES};

/// What stands in a key where users, or parameters, do not count.
const ANY: &str = "*";

thread_local! {
    /// Where the next key of this thread is put together, so that only the key itself needs memory.
    static TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// A submission: of what, by whom, and with which parameters.
///
/// ```
/// use clinch::submit::{DuplicatePolicy, Identity, Submission};
/// # #[derive(serde::Serialize)] struct Order { item: u32, timestamp: u64 }
///
/// let policy = DuplicatePolicy::new().exclude_params(["timestamp"]);
/// let submission = Submission::of("create_order")
///     .user(Identity::user("42"))
///     .param("order", &Order { item: 7, timestamp: 1_700_000_000 })?;
/// # let _ = (policy, submission);
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Submission {
    method: Cow<'static, str>,
    /// Whether the method is one of the few that stand in the program text, as opposed to a path that a client wrote.
    bounded: bool,
    /// Where it is a request's own, to which keys that request came: it is no duplicate of itself if it comes to one twice.
    of_request: Option<Arc<dyn Comes>>,
    user: Option<Identity>,
    /// Parameters as JSON, by their names.
    params: Vec<(Cow<'static, str>, String)>,
    fingerprint: Option<Fingerprint>,
}

impl Submission {
    /// A submission of this method: verb and route (`POST /orders/{id}`), or the path of a function.
    pub fn of(method: impl Into<Cow<'static, str>>) -> Self {
        Self {
            method: method.into(),
            bounded: true,
            of_request: None,
            user: None,
            params: Vec::new(),
            fingerprint: None,
        }
    }

    /// By this user.
    pub fn user(mut self, user: Identity) -> Self {
        self.user = Some(user);
        self
    }

    /// With this parameter.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if it cannot be serialised.
    pub fn param(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: &impl Serialize,
    ) -> Result<Self, Error> {
        let name = name.into();
        let json = serde_json::to_string(value).map_err(|error| {
            let accepted = "accepted is what serde can write as JSON";
            Error::option("param", &format!("`{name}`: {error}"), accepted)
        })?;
        self.params.push((name, json));
        Ok(self)
    }

    /// With parameters that were hashed already. It counts instead of those given by [`param`](Self::param).
    pub const fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// What a request itself submits, as opposed to a function that is called in it. Unless it is bounded, its method is a path
    /// as a client wrote it, which can be anything.
    #[cfg(feature = "http")]
    pub(crate) fn by_request(
        method: String,
        bounded: bool,
        request: Arc<dyn Comes>,
        user: Option<Identity>,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        let method = method.into();
        Self { method, bounded, of_request: Some(request), user, params: Vec::new(), fingerprint }
    }

    /// Whether its request comes to this key once more. From now on it did.
    pub(crate) fn comes_again(&self, key: &Key) -> bool {
        self.of_request.as_ref().is_some_and(|request| request.came().again(key))
    }

    /// Its method, if that is one of a few.
    pub(crate) fn method(&self) -> Option<&str> {
        self.bounded.then_some(&*self.method)
    }

    /// With a parameter that is JSON already.
    pub(crate) fn json(&mut self, name: &'static str, json: String) {
        self.params.push((name.into(), json));
    }

    fn hash_params(&self, policy: &DuplicatePolicy, limits: Limits) -> Result<Fingerprint, Error> {
        if let Some(fingerprint) = self.fingerprint {
            return Ok(fingerprint);
        }
        let params = Params::new().exclude(&policy.exclude_params).limits(limits);
        let params = self.params.iter().fold(params, |params, (name, json)| params.json(name, json));
        Ok(params.fingerprint()?)
    }

    /// The key of a duplicate guard: prefix if there is one, method, user, hash of the parameters.
    pub(crate) fn key(
        &self,
        policy: &DuplicatePolicy,
        hasher: &Hasher,
        limits: Limits,
    ) -> Result<Key, Error> {
        let user = match (&self.user, policy.include_user) {
            (_, false) => None,
            (Some(user), true) => Some(hasher.identity(user)),
            (None, true) => {
                let remedy = "say who submits (`user = \"{…}\"` in an attribute), or set `include_user = false` if that does not count";
                return Err(Error::Missing { what: "the user of a submission", remedy });
            }
        };
        let params = if policy.include_params {
            Some(hasher.params(&self.hash_params(policy, limits)?))
        } else {
            None
        };
        let rest = [user.as_deref().unwrap_or(ANY), params.as_deref().unwrap_or(ANY)];
        compose(&policy.key_prefix, &self.method, &rest)
    }
}

/// A request that comes to guards.
pub(crate) trait Comes: Send + Sync {
    /// To which keys it came already.
    fn came(&self) -> &Came;
}

/// The keys of duplicate guards that one request came to. Another request that is handled inside of it, as one of a batch is,
/// has its own.
#[derive(Debug, Default)]
pub(crate) struct Came(Mutex<Keys>);

/// Hardly any request comes to more than one, which needs no list.
#[derive(Debug, Default)]
struct Keys {
    first: Option<Key>,
    more: Vec<Key>,
}

impl Came {
    fn again(&self, key: &Key) -> bool {
        let mut came = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let again = came.first.as_ref() == Some(key) || came.more.contains(key);
        match &came.first {
            None => came.first = Some(key.clone()),
            Some(_) if again => {}
            Some(_) => came.more.push(key.clone()),
        }
        again
    }
}

/// One that nobody else knows.
impl Comes for Came {
    fn came(&self) -> &Came {
        self
    }
}

/// Without the values of its parameters, because they are what users sent.
impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<&str> = self.params.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Submission")
            .field("method", &self.method)
            .field("user", &self.user)
            .field("params", &params)
            .finish_non_exhaustive()
    }
}

/// Joins the parts of a key. None of them can imitate another: separators in prefix and method are escaped, and the rest are
/// hashes or [`ANY`], which have none. What would be too long is replaced by its hash.
pub(crate) fn compose(prefix: &str, method: &str, rest: &[&str]) -> Result<Key, Error> {
    let joined = |mut text: String, prefix: &str, method: &str| {
        // Writing to a string does not fail.
        if !prefix.is_empty() {
            let _: fmt::Result = Escaped(&mut text).write_str(prefix);
            text.push(':');
        }
        let _: fmt::Result = Escaped(&mut text).write_str(method);
        for part in rest {
            text.push(':');
            text.push_str(part);
        }
        text
    };
    let mut text = joined(TEXT.try_with(Cell::take).unwrap_or_default(), prefix, method);
    if text.len() > MAX_KEY_BYTES {
        text = joined(String::new(), "", &Hasher::default().hash("method", text.as_bytes()));
    }
    let key = Key::new(&text);
    if text.capacity() <= 2 * MAX_KEY_BYTES {
        text.clear();
        // A thread that is ending keeps nothing.
        let _ = TEXT.try_with(|kept| kept.set(text));
    }
    Ok(key?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(policy: &DuplicatePolicy, submission: &Submission) -> String {
        submission.key(policy, &Hasher::default(), Limits::default()).unwrap().to_string()
    }

    /// Proves: D1, D2
    #[test]
    fn a_key_is_prefix_method_user_and_params() {
        let policy = DuplicatePolicy::new();
        let submission = Submission::of("POST /orders/{id}").user(Identity::user("42"));
        let whole = key(&policy.clone().key_prefix("order"), &submission);
        let parts: Vec<&str> = whole.split(':').collect();
        assert_eq!(parts[..2], ["order", "POST%20/orders/%7Bid%7D"]);
        assert_eq!((parts.len(), parts[2].len(), parts[3].len()), (4, 32, 32));

        let other = |submission| {
            key(&policy, &submission) != key(&policy, &Submission::of("f").user(Identity::user("1")))
        };
        assert!(other(Submission::of("g").user(Identity::user("1"))));
        assert!(other(Submission::of("f").user(Identity::user("2"))));
        assert!(other(Submission::of("f").user(Identity::user("1")).param("a", &1).unwrap()));

        let gate = policy.include_user(false).include_params(false);
        assert_eq!(key(&gate, &Submission::of("f").param("a", &1).unwrap()), "f:*:*");
        assert_eq!(key(&gate, &Submission::of("f").user(Identity::user("1"))), "f:*:*");
    }

    #[test]
    fn a_user_that_counts_and_is_not_known_is_an_error() {
        let error = Submission::of("f").key(&DuplicatePolicy::new(), &Hasher::default(), Limits::default());
        assert!(matches!(error, Err(Error::Missing { .. })));
    }

    #[test]
    fn long_methods_are_hashed() {
        let gate = DuplicatePolicy::new().include_user(false).include_params(false);
        let (one, two) =
            (key(&gate, &Submission::of("é".repeat(600))), key(&gate, &Submission::of("é".repeat(601))));
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
    }
}
