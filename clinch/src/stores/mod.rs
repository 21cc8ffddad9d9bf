//! The engines: one folder each. Adding one is a folder and two lines here, its module and its URL schemes.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Error;
use crate::store::{Store, StoreFuture};

/// What every engine is told when it is connected to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// What engine keys begin with; checked by [`check_prefix`].
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

type Connect = for<'a> fn(&'a str, &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>>;

/// URL scheme → how to connect. Every engine registers its schemes here.
const SCHEMES: &[(&str, Connect)] = &[
    ("memory", memory::connect),
    #[cfg(feature = "redis")]
    ("redis", redis::connect),
    #[cfg(feature = "redis")]
    ("redis+unix", redis::connect),
    #[cfg(feature = "redis-tls")]
    ("rediss", redis::connect),
];

/// Schemes of engines that exist but were not compiled in, and the feature that brings them.
const ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "redis"))]
    ("redis", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redis+unix", "redis"),
    #[cfg(not(feature = "redis-tls"))]
    ("rediss", "redis-tls"),
];

/// Connects to the engine that `url` names.
pub(crate) async fn connect(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, Error> {
    check_prefix(&options.prefix)?;
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if let Some((_, connect)) = SCHEMES.iter().find(|(name, _)| *name == scheme) {
        return connect(url, options).await.map_err(|source| match source.kind() {
            crate::store::ErrorKind::Config => {
                Error::InvalidUrl { url: without_password(url), reason: source.message().to_owned() }
            }
            _ => Error::engine("connect", None, source),
        });
    }
    let reason = match ABSENT.iter().find(|(name, _)| *name == scheme) {
        Some((_, feature)) => {
            format!("this build has no `{scheme}:`; enable the feature `{feature}` of clinch")
        }
        None => {
            let known: Vec<_> = SCHEMES.iter().map(|(name, _)| format!("`{name}:`")).collect();
            format!("unknown scheme; accepted are {}", known.join(", "))
        }
    };
    Err(Error::InvalidUrl { url: without_password(url), reason })
}

/// Checks a key prefix: no control characters, no braces, at most 128 bytes; it may be empty.
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
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not an address at all; it may be a password pasted by mistake.
        return url.split_once(':').map_or_else(|| "…".to_owned(), |(scheme, _)| format!("{scheme}:…"));
    };
    // The last `@` ends the credentials: a password may hold an unescaped one, a host may not. A `?` part may hold
    // credentials too (unix sockets).
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}{query}")
        }
        None => format!("{scheme}://{rest}{query}"),
    }
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
            ("secret", "…"),
            ("ftp:secret", "ftp:…"),
        ] {
            assert_eq!(without_password(url), shown);
            assert!(!without_password(url).contains("secret"));
        }
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
