//! The engines: one folder each. Adding one is a folder and two lines here, its module and its URL schemes.

#[cfg(any(feature = "redis", feature = "sqlite"))]
mod in_flight;
pub mod memory;
#[cfg(feature = "redis")]
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
mod rules;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Error;
use crate::lease::{Attempt, Claim};
use crate::store::{ErrorKind, Store, StoreError, StoreFuture};

/// What every engine is told when it is connected to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// What engine keys begin with: at most 128 bytes without control characters, blanks and braces; may be empty.
    pub prefix: String,
    /// The time limit of every call.
    pub call_timeout: Duration,
    /// The time limit of making a connection.
    pub connect_timeout: Duration,
    /// How many calls may be in flight at a time.
    pub max_in_flight: usize,
    /// Certificates of authorities to trust besides the system's, as PEM; for TLS.
    pub tls_root_certificates: Option<Vec<u8>>,
    /// The runtime on which connections are driven; the caller's unless set.
    pub runtime: Option<Handle>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            prefix: "clinch".to_owned(),
            call_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            max_in_flight: 100,
            tls_root_certificates: None,
            runtime: None,
        }
    }
}

impl StoreOptions {
    /// Checks everything that can be wrong; engines call it before they connect.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] naming the field and what it accepts.
    pub fn check(&self) -> Result<(), Error> {
        for (field, value) in [("call_timeout", self.call_timeout), ("connect_timeout", self.connect_timeout)]
        {
            if value < Duration::from_millis(1) || value > Duration::from_secs(3600) {
                return Err(Error::option(field, &format!("{value:?}"), "accepted is 1 ms to 1 h"));
            }
        }
        if !(1..=100_000).contains(&self.max_in_flight) {
            return Err(Error::option("max_in_flight", &self.max_in_flight, "accepted is 1 to 100000"));
        }
        check_prefix(&self.prefix)
    }
}

#[cfg(feature = "config")]
type Check = fn(&str, &StoreOptions) -> Result<(), StoreError>;

/// URL scheme → what can be told of an address without connecting. An engine that has nothing to tell has no line here.
#[cfg(feature = "config")]
const CHECKS: &[(&str, Check)] = &[
    ("memory", memory::check),
    #[cfg(feature = "redis")]
    ("redis", redis::check),
    #[cfg(feature = "redis")]
    ("redis+unix", redis::check),
    #[cfg(feature = "redis")]
    ("redis+sentinel", redis::check),
    #[cfg(feature = "redis")]
    ("redis+cluster", redis::check),
    #[cfg(feature = "redis")]
    ("redis+quorum", quorum::check),
    #[cfg(feature = "redis-tls")]
    ("rediss", redis::check),
    #[cfg(feature = "redis-tls")]
    ("rediss+sentinel", redis::check),
    #[cfg(feature = "redis-tls")]
    ("rediss+cluster", redis::check),
    #[cfg(feature = "redis-tls")]
    ("rediss+quorum", quorum::check),
    #[cfg(feature = "sqlite")]
    ("sqlite", sqlite::check),
];

type Connect = for<'a> fn(&'a str, &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>>;

/// URL scheme → how to connect. Every engine registers its schemes here.
const SCHEMES: &[(&str, Connect)] = &[
    ("memory", memory::connect),
    #[cfg(feature = "redis")]
    ("redis", redis::connect),
    #[cfg(feature = "redis")]
    ("redis+unix", redis::connect),
    #[cfg(feature = "redis")]
    ("redis+sentinel", redis::connect),
    #[cfg(feature = "redis")]
    ("redis+cluster", redis::connect),
    #[cfg(feature = "redis")]
    ("redis+quorum", quorum::connect),
    #[cfg(feature = "redis-tls")]
    ("rediss", redis::connect),
    #[cfg(feature = "redis-tls")]
    ("rediss+sentinel", redis::connect),
    #[cfg(feature = "redis-tls")]
    ("rediss+cluster", redis::connect),
    #[cfg(feature = "redis-tls")]
    ("rediss+quorum", quorum::connect),
    #[cfg(feature = "sqlite")]
    ("sqlite", sqlite::connect),
];

/// Schemes of engines that exist but were not compiled in, and the feature that brings them.
const ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "redis"))]
    ("redis", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redis+unix", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redis+sentinel", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redis+cluster", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redis+quorum", "redis"),
    #[cfg(not(feature = "redis-tls"))]
    ("rediss", "redis-tls"),
    #[cfg(not(feature = "redis-tls"))]
    ("rediss+sentinel", "redis-tls"),
    #[cfg(not(feature = "redis-tls"))]
    ("rediss+cluster", "redis-tls"),
    #[cfg(not(feature = "redis-tls"))]
    ("rediss+quorum", "redis-tls"),
    #[cfg(not(feature = "sqlite"))]
    ("sqlite", "sqlite"),
];

/// Connects to the engine that `url` names. Usually [`LockManager::connect`](crate::LockManager::connect) does that; this is for
/// those who put a store of their own around it ([`Builder::store`](crate::Builder::store)).
///
/// # Errors
/// [`Error::InvalidUrl`], [`Error::InvalidOption`], and [`Error::Engine`] if the engine cannot be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, Error> {
    options.check()?;
    let connect = engine(url)?;
    connect(url, options).await.map_err(|source| told(url, source))
}

/// Checks an engine's address as far as that can be done without connecting.
///
/// # Errors
/// [`Error::InvalidUrl`], without the password.
#[cfg(feature = "config")]
pub(crate) fn check_url(url: &str, options: &StoreOptions) -> Result<(), Error> {
    engine(url)?;
    match CHECKS.iter().find(|(name, _)| *name == scheme(url)) {
        Some((_, check)) => check(url, options).map_err(|source| told(url, source)),
        None => Ok(()),
    }
}

/// The address with this database in it, and the one that it names already, if it does. `None` for an engine that has no
/// databases.
#[cfg(feature = "config")]
pub(crate) fn with_database(url: &str, database: u32) -> Option<(String, Option<u32>)> {
    match scheme(url) {
        name @ ("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel") => {
            let (url, query) = url.split_at(query_of(url).unwrap_or(url.len()));
            let (scheme, rest) = url.split_once("://")?;
            // A password may have a slash in it.
            let host = rest.rfind('@').map_or(0, |at| at + 1);
            let (address, path) = match rest[host..].find('/') {
                Some(at) => rest.split_at(host + at),
                None => (rest, ""),
            };
            // Under Sentinels the name of the primary stands before it.
            let (name, path) = match path.trim_matches('/').split_once('/') {
                _ if !name.ends_with("+sentinel") => (String::new(), path.trim_matches('/')),
                Some((name, path)) => (format!("/{name}"), path),
                None => (path.trim_end_matches('/').to_owned(), ""),
            };
            Some((format!("{scheme}://{address}{name}/{database}{query}"), path.parse().ok()))
        }
        #[cfg(feature = "redis")]
        "redis+quorum" | "rediss+quorum" => quorum::with_database(url, database),
        "redis+unix" => {
            let (address, query) = url.split_once('?').unwrap_or((url, ""));
            let (named, others): (Vec<_>, Vec<_>) =
                query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("db="));
            let within = named.first().and_then(|pair| pair.strip_prefix("db=")?.parse().ok());
            let query = [format!("db={database}")].into_iter().chain(others.into_iter().map(str::to_owned));
            Some((format!("{address}?{}", query.collect::<Vec<_>>().join("&")), within))
        }
        _ => None,
    }
}

/// Where the query of an address begins, if it has one that we know: a password may have a `?` in it.
fn query_of(url: &str) -> Option<usize> {
    const NAMES: [&str; 7] =
        ["sentinel_user", "sentinel_password", "replicas", "replicas_timeout", "db", "user", "pass"];
    let is_known = |(at, _): &(usize, &str)| {
        let name = url[at + 1..].split('=').next().unwrap_or_default();
        NAMES.contains(&name)
    };
    url.match_indices('?').find(is_known).map(|(at, _)| at)
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

/// What an engine says of its address.
fn told(url: &str, source: StoreError) -> Error {
    match source.kind() {
        ErrorKind::Config => {
            Error::InvalidUrl { url: without_password(url), reason: source.message().to_owned() }
        }
        _ => Error::engine("connect", None, source),
    }
}

/// How to connect to the engine that `url` names.
fn engine(url: &str) -> Result<Connect, Error> {
    let scheme = scheme(url);
    if let Some((_, connect)) = SCHEMES.iter().find(|(name, _)| *name == scheme) {
        return Ok(*connect);
    }
    let reason = match ABSENT.iter().find(|(name, _)| *name == scheme) {
        Some((_, feature)) => {
            format!("this build has no `{scheme}:`; enable the feature `{feature}` of clinch")
        }
        None => {
            let shown = |name: &str| {
                if name == "memory" { "`memory:`".to_owned() } else { format!("`{name}://…`") }
            };
            let known: Vec<_> = SCHEMES.iter().map(|(name, _)| shown(name)).collect();
            format!("unknown scheme; accepted are {}", known.join(", "))
        }
    };
    Err(Error::InvalidUrl { url: without_password(url), reason })
}

/// The one claim of a lease that can be finished with a record; what any other lease is told.
fn with_record(lease: &Attempt) -> Result<&Claim, StoreError> {
    match lease.claims() {
        [claim] if claim.on().space.keeps_records() => Ok(claim),
        _ => Err(StoreError::not_applied(
            ErrorKind::Unsupported,
            "a record is kept for a lease of one claim in a duplicate window or on an idempotency key, and for no other",
        )),
    }
}

/// Checks what engine keys begin with: at most 128 bytes without control characters, blanks and braces; may be empty.
///
/// # Errors
/// [`Error::InvalidOption`] naming the prefix.
pub fn check_prefix(prefix: &str) -> Result<(), Error> {
    let accepted =
        "accepted is at most 128 bytes without control characters, blanks and braces; it may be empty";
    let bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '{' | '}');
    if prefix.len() > 128 || prefix.contains(bad) {
        return Err(Error::option("prefix", &format!("{prefix:?}"), accepted));
    }
    Ok(())
}

/// The URL as it may be shown: whatever stands for a password is replaced.
///
/// ```
/// assert_eq!(clinch::stores::without_password("redis://app:secret@host:6379/0"), "redis://app:***@host:6379/0");
/// ```
pub fn without_password(url: &str) -> String {
    // A path and nothing else, in which an `@` is a letter. It is no secret, and whoever looks for his file must see it.
    if url.starts_with("sqlite:") || url == "memory:" {
        return url.to_owned();
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not an address at all; it may be a password pasted by mistake.
        return url.split_once(':').map_or_else(|| "…".to_owned(), |(scheme, _)| format!("{scheme}:…"));
    };
    // A query may hold credentials too (unix sockets, Sentinels).
    let (rest, hidden) = match query_of(rest) {
        Some(at) => (&rest[..at], "?…"),
        None => (rest, ""),
    };
    // The last `@` ends the credentials, whatever stands before it: a password may hold any sign, a host may not.
    let (credentials, host) =
        rest.rsplit_once('@').map_or((None, rest), |(credentials, host)| (Some(credentials), host));
    let (host, query) = match host.find(['?', '#']) {
        Some(at) => (&host[..at], "?…"),
        None => (host, hidden),
    };
    match credentials {
        Some(credentials) => {
            let user = credentials.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}{query}")
        }
        // What stands where a port should be may be a password whose `@` was forgotten.
        None if is_address(host) => format!("{scheme}://{host}{query}"),
        None => format!("{scheme}://…"),
    }
}

/// Whether what stands before a path is a host, or several, each with a number as its port if it has one.
fn is_address(host: &str) -> bool {
    let authority = host.split('/').next().unwrap_or_default();
    authority.split(',').all(|place| {
        let port = place.rsplit_once(']').map_or(place, |(_, after)| after).split_once(':');
        port.is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_their_password() {
        for (url, shown) in [
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://:secret@h:1/0", "redis://:***@h:1/0"),
            ("redis://u:se@cr/et@h:1/0", "redis://u:***@h:1/0"),
            ("redis://secret@h", "redis://:***@h"),
            ("redis+unix:///run/r.sock?pass=secret", "redis+unix:///run/r.sock?…"),
            ("redis+sentinel://h:1,h2:2/main/0", "redis+sentinel://h:1,h2:2/main/0"),
            ("redis+sentinel://u:secret@h:1,h2/main", "redis+sentinel://u:***@h:1,h2/main"),
            ("redis+sentinel://h:1/main?sentinel_password=secret@secret", "redis+sentinel://h:1/main?…"),
            ("redis+cluster://:secret@h:1,[::1]:2?replicas=1", "redis+cluster://:***@h:1,[::1]:2?…"),
            ("redis+cluster://u:secret,h:2", "redis+cluster://…"),
            ("redis://:secret?@h:1", "redis://:***@h:1"),
            ("redis://:secret#@h:1/0?x=secret", "redis://:***@h:1/0?…"),
            ("redis://u:secret/0", "redis://…"),
            ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
            ("redis+quorum://u:secret@a:1,b:2,c/0?max_ttl=9s", "redis+quorum://u:***@a:1,b:2,c/0?…"),
            ("redis+quorum://a:1,b:2,c", "redis+quorum://a:1,b:2,c"),
            ("redis+quorum://a:1,b:secret,c", "redis+quorum://…"),
            ("sqlite:///var/lib/u:x@h/clinch.db", "sqlite:///var/lib/u:x@h/clinch.db"),
            ("sqlite:clinch.db", "sqlite:clinch.db"),
            ("memory:", "memory:"),
            ("secret", "…"),
            ("ftp:secret", "ftp:…"),
            ("sqlite:locks.db", "sqlite:locks.db"),
            ("sqlite:///home/me@work/locks.db", "sqlite:///home/me@work/locks.db"),
        ] {
            assert_eq!(without_password(url), shown);
            assert!(!without_password(url).contains("secret"));
        }
    }

    #[cfg(feature = "config")]
    #[test]
    fn databases_are_put_where_an_address_has_them() {
        for (url, with, within) in [
            ("redis://h:1", "redis://h:1/3", None),
            ("rediss://u:p/@h/2", "rediss://u:p/@h/3", Some(2)),
            ("redis://h/2?replicas=1", "redis://h/3?replicas=1", Some(2)),
            ("redis+unix:///s?pass=p", "redis+unix:///s?db=3&pass=p", None),
            ("redis+sentinel://h:1,h:2/main", "redis+sentinel://h:1,h:2/main/3", None),
            (
                "redis+sentinel://u:p@h/main/4?sentinel_password=a@b/c",
                "redis+sentinel://u:p@h/main/3?sentinel_password=a@b/c",
                Some(4),
            ),
        ] {
            assert_eq!(with_database(url, 3), Some((with.to_owned(), within)), "{url}");
        }
        assert_eq!(with_database("redis+cluster://h:1,h:2", 3), None);
        assert_eq!(with_database("memory:", 3), None);
    }

    #[test]
    fn prefixes_are_checked() {
        assert!(check_prefix("").is_ok());
        assert!(check_prefix("shop").is_ok());
        for bad in ["a{b", "a}", "a\n", "a b", &"x".repeat(129)] {
            assert!(matches!(check_prefix(bad), Err(Error::InvalidOption { field: "prefix", .. })), "{bad}");
        }
    }
}
