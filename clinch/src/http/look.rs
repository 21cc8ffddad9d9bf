//! What was submitted by a request, as far as a guard looks at it.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::{Arc, Once};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Uri, header};

use super::body::Unread;
use super::finishing::Begun;
use super::identity::Sender;
use super::route::path_params;
use super::web::Web;
use crate::error::Error;
use crate::submit::{Came, DuplicatePolicy, Fingerprint, Identity, Limits, Params, Submission};

/// The route of a request, for servers that do not say it as axum does: put it into the request's extensions. It is the
/// template (`/orders/{id}`), so that the key of a guard names the route and not each of its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTemplate(pub Cow<'static, str>);

/// The head of a request.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) extensions: Extensions,
}

impl Head {
    pub(super) fn of(parts: &http::request::Parts) -> Self {
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
            extensions: parts.extensions.clone(),
        }
    }

    pub(super) fn look(&self) -> Look<'_> {
        Look { method: &self.method, uri: &self.uri, headers: &self.headers, extensions: &self.extensions }
    }
}

/// A look at the head of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) method: &'a Method,
    uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Look<'a> {
    pub(super) fn of(parts: &'a http::request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }

    /// The address as the client wrote it, also inside a nested router.
    fn uri(&self) -> &'a Uri {
        #[cfg(feature = "axum")]
        if let Some(original) = self.extensions.get::<axum::extract::OriginalUri>() {
            return &original.0;
        }
        self.uri
    }

    fn route(&self) -> Option<&'a str> {
        #[cfg(feature = "axum")]
        if let Some(matched) = self.extensions.get::<axum::extract::MatchedPath>() {
            return Some(matched.as_str());
        }
        self.extensions.get::<RouteTemplate>().map(|route| &*route.0)
    }

    /// Verb and route, if the route is known.
    fn matched(&self) -> Option<String> {
        let (verb, route) = (self.method.as_str(), self.route()?);
        let mut matched = String::with_capacity(verb.len() + 1 + route.len());
        matched.push_str(verb);
        matched.push(' ');
        matched.push_str(route);
        Some(matched)
    }

    /// Whether its verb is one of a few. A client can make up others, and some routes take them.
    fn is_known_verb(&self) -> bool {
        const KNOWN: [Method; 9] = [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
            Method::CONNECT,
            Method::PATCH,
            Method::TRACE,
        ];
        KNOWN.contains(self.method)
    }

    /// The name under which a guard before it is counted, which has this one, or none.
    pub(super) fn guard<'n>(&self, name: Option<&'n str>, kind: &'static str) -> Cow<'n, str> {
        match name {
            Some(name) => name.into(),
            None => self.matched().filter(|_| self.is_known_verb()).map_or(kind.into(), Cow::from),
        }
    }

    /// Whether the body must be read before the guard can say what was submitted, and by whom.
    pub(super) fn needs_body(&self, web: &Web, policy: &DuplicatePolicy) -> bool {
        policy.include_params || (policy.include_user && self.identity_is_in_body(web))
    }

    /// Whether the sender cannot be told without the body: a step asks for a parameter that is not in the address, before any
    /// other knows who it is.
    fn identity_is_in_body(&self, web: &Web) -> bool {
        if !web.identity().needs_params() {
            return false;
        }
        let in_path = self.in_path();
        let params = self.params(in_path.as_deref(), None, Limits::default());
        let missed = Cell::new(false);
        let param = |name: &str| {
            let found = params.param(name);
            missed.set(missed.get() || found.is_none());
            found
        };
        web.identity().identify(&Sender::new(self.headers, self.extensions, &param));
        missed.get()
    }

    /// A parameter of the path or of the query. One that the query has twice is none: which of the two the handler takes is
    /// not known here.
    pub(super) fn named(&self, name: &str) -> Result<Option<String>, Error> {
        let mut path = self.in_path().into_iter().flatten();
        if let Some((_, value)) = path.find(|(found, _)| *found == name) {
            return Ok(Some(value.into_owned()));
        }
        let Some(query) = self.uri().query() else { return Ok(None) };
        let params = Params::new().query(query);
        if params.in_query(name) > 1 {
            return Err(Error::RepeatedParameter { name: name.to_owned() });
        }
        Ok(params.param(name))
    }

    /// The parameters of the path, by the names of the route.
    fn in_path(&self) -> Option<Vec<(&'a str, Cow<'a, str>)>> {
        path_params(self.route()?, self.uri().path())
    }

    /// The parameters of the request.
    fn params<'p>(
        &'p self,
        in_path: Option<&'p [(&'a str, Cow<'a, str>)]>,
        body: Option<&'p Bytes>,
        limits: Limits,
    ) -> Params<'p> {
        let path = match in_path {
            Some(found) => Ok(found.iter().map(|(name, value)| (*name, &**value)).collect()),
            None => Err(self.uri().path()),
        };
        let body = body.map(|body| {
            let value = |name| self.headers.get(name).map(http::HeaderValue::as_bytes);
            (body, [value(header::CONTENT_TYPE), value(header::CONTENT_ENCODING)])
        });
        Params::of_request(path, self.uri().query(), body, limits)
    }

    /// Whose results are whose. As [`identity`](Self::identity), but parameters take no part: what anybody can write into a
    /// request must not open what was stored for somebody else. (They are part of what is compared with the first request.)
    pub(super) fn principal(&self, web: &Web) -> Identity {
        let sender = Sender::new(self.headers, self.extensions, &|_| None);
        web.identity().identify(&sender).unwrap_or_else(Identity::anonymous)
    }

    /// Who sent it, with these parameters.
    fn identity(&self, web: &Web, params: &Params<'_>) -> Identity {
        let param = |name: &str| params.param(name);
        let sender = Sender::new(self.headers, self.extensions, &param);
        web.identity().identify(&sender).unwrap_or_else(|| {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!("nothing tells who sent a request: all such clients count as one user");
            });
            Identity::anonymous()
        })
    }

    /// The hash of the whole request: verb, path and parameters.
    pub(super) fn fingerprint_of_request(
        &self,
        body: &Bytes,
        exclude: &[String],
        limits: Limits,
    ) -> Result<Fingerprint, Error> {
        // The path counts as a whole: another one is another request, whatever its parameters are called.
        let target = serde_json::json!([self.method.as_str(), self.uri().path()]).to_string();
        let params = self.params(Some(&[]), Some(body), limits).json("\0", &target);
        Ok(params.fingerprint_without(exclude)?)
    }

    /// What was submitted by it.
    pub(super) fn submission(
        &self,
        web: &Web,
        policy: &DuplicatePolicy,
        body: Option<&Bytes>,
    ) -> Result<Submission, Error> {
        let (method, bounded) = match self.matched() {
            Some(matched) => (matched, self.is_known_verb()),
            None => (format!("{} {}", self.method, self.uri().path()), false),
        };
        let request = self.extensions.get().map_or_else(|| Arc::new(Came::default()) as _, Begun::request);
        let (mut user, mut fingerprint) = (None, None);
        if policy.include_user || policy.include_params {
            let in_path = self.in_path();
            let params = self.params(in_path.as_deref(), body, web.guards().settings().limits);
            if policy.include_user {
                user = Some(self.identity(web, &params));
            }
            if policy.include_params {
                fingerprint = Some(params.fingerprint_without(&policy.exclude_params)?);
            }
        }
        Ok(Submission::by_request(method, bounded, request, user, fingerprint))
    }
}

/// What a client calls itself.
pub(super) fn user_agent(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// Why a body could not be looked at.
pub(super) fn unread(unread: Unread, limit: usize) -> Error {
    match unread {
        Unread::TooLarge => Error::TooLarge {
            reason: format!(
                "the body of the request has more than {limit} bytes, which is what the guard accepts"
            ),
        },
        Unread::Failed => Error::Unreadable { reason: "the body of the request broke off" },
    }
}
