//! Who may do what: the token, the `Host` and the `Origin` of a request.
//!
//! - **Host.** A page on the internet can make its own name point at this machine, and its visitors' browsers then talk to
//!   us as if we were that page (DNS rebinding). They cannot forge the `Host` header, so only names that are ours are served.
//! - **Origin.** What changes anything is refused when a page of another origin sent it.
//! - **Token.** Ending a lease by force needs it everywhere. Where others than this machine can connect, everything but the
//!   bare health needs it, because keys and labels tell what a business does.
//!
//! Nothing here rests on cookies, so there is nothing that a browser would send along by itself.

mod hosts;
mod origins;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri, header};

pub(super) use self::hosts::Hosts;
pub(super) use self::origins::Origin;
pub(super) use self::token::AccessToken;
use super::problem::Problem;

/// Who may do what.
#[derive(Debug)]
pub(super) struct Access {
    hosts: Hosts,
    origins: Vec<Origin>,
    token: AccessToken,
    /// Whether others than this machine can connect.
    open: bool,
}

impl Access {
    pub(super) fn new(
        address: SocketAddr,
        hosts: &[String],
        origins: Vec<Origin>,
        token: AccessToken,
    ) -> Self {
        Self { hosts: Hosts::new(address, hosts), origins, token, open: !address.ip().is_loopback() }
    }

    /// Whether looking needs the token too.
    pub(super) const fn guards_reading(&self) -> bool {
        self.open
    }

    pub(super) const fn token(&self) -> &AccessToken {
        &self.token
    }

    /// Whether this request may be told more than whether we are well.
    pub(super) fn may_read(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        self.host(uri, headers).is_ok() && (!self.open || self.token.is_shown(headers).is_ok())
    }

    fn host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let refused = || {
            let accepted = self.hosts.accepted();
            let detail =
                format!("this server is not called that; accepted is {accepted}, or what --host adds");
            Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host", detail)
        };
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or_else(refused)?;
        let other = uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host));
        if other || hosts.next().is_some() || !self.hosts.accepts(host) {
            return Err(refused());
        }
        Ok(host)
    }

    /// A browser says when a page of another site asks, also for what it must not read. To open our page is everybody's right;
    /// to take up connections here is not.
    fn site(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let is = |name: &str, values: &[&str]| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .is_some_and(|value| values.contains(&value))
        };
        if is("sec-fetch-site", &["cross-site", "same-site"]) && !is("sec-fetch-mode", &["navigate"]) {
            return self.origin("", headers);
        }
        Ok(())
    }

    /// Programs send no `Origin`; browsers always do with what can change something.
    fn origin(&self, host: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let origin = headers.get(header::ORIGIN);
        let origin = origin.and_then(|origin| origin.to_str().ok()?.parse::<Origin>().ok());
        if origin.is_some_and(|origin| origin.is_of(host) || self.origins.contains(&origin)) {
            return Ok(());
        }
        let detail = "a page of another origin may not do this; --origin adds one that may";
        Err(Problem::new(StatusCode::FORBIDDEN, "foreign-origin", detail))
    }
}

/// Refuses requests that are for somebody else, or that somebody else's page made.
pub(super) async fn check_names(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let checked = access
        .host(request.uri(), request.headers())
        .and_then(|host| access.site(request.headers()).map(|()| host))
        .and_then(|host| {
            let has_origin = request.headers().contains_key(header::ORIGIN);
            if safe || !has_origin { Ok(()) } else { access.origin(host, request.headers()) }
        });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses requests without the token.
pub(super) async fn check_token(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.token.is_shown(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The same, where reading needs it.
pub(super) async fn check_reader(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    if access.guards_reading() {
        return check_token(State(access), request, next).await;
    }
    next.run(request).await
}
