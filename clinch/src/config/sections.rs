//! The sections of a configuration that have no type elsewhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::Secret;
#[cfg(feature = "http")]
use crate::http::{ForwardedHeader, SessionCookie, Statuses, TrustedProxies};
use crate::submit::duration;

/// `[http]`: how users of a web service are told apart and refused.
#[cfg(feature = "http")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Http {
    /// Proxies whose word about the client's address is taken; none unless set.
    pub trusted_proxies: TrustedProxies,
    /// The header in which they say it.
    pub forwarded_header: ForwardedHeader,
    /// The cookies that tell a session, the first that is there; those of common frameworks unless set.
    pub session_cookies: Vec<String>,
    /// `[http.statuses]`: which status a refusal has.
    pub statuses: Statuses,
}

#[cfg(feature = "http")]
impl Default for Http {
    fn default() -> Self {
        Self {
            trusted_proxies: TrustedProxies::default(),
            forwarded_header: ForwardedHeader::default(),
            session_cookies: SessionCookie::COMMON.iter().map(|name| (*name).to_owned()).collect(),
            statuses: Statuses::default(),
        }
    }
}

/// `[http]` in a build without layers, which the same file may well have for another program: it is not looked at.
#[cfg(not(feature = "http"))]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Unread;

#[cfg(not(feature = "http"))]
impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// `[serve]`: the program `clinch serve`. The library itself does not read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Serve {
    /// Where to listen: 127.0.0.1:4747 unless set. Anywhere but on loopback only with a token.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// What whoever changes something must show.
    pub token: Option<Secret>,
    /// Origins of web pages that may change something, besides the program's own: `https://ops.example.com`.
    pub allowed_origins: Vec<String>,
    /// Names under which it is reached, besides its own, with a port or for any port: `locks.example.com`.
    pub allowed_hosts: Vec<String>,
    /// Where force-releases are written down; `audit.log` in the user's state folder unless set.
    pub audit_log: Option<PathBuf>,
    /// Whether there is a playground; unless set, only on an engine that nobody else uses (`memory:`).
    pub playground: Option<bool>,
    /// From which level on it says on stderr what the library logs; errors unless set.
    pub log: LogLevel,
    /// How many connections may be open at a time; 512 unless set.
    pub max_connections: usize,
    /// How large a request may be; 1 MiB unless set.
    pub max_request_bytes: usize,
    /// How long a request may take; 30 s unless set.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// How long requests that run may go on when the program is told to end; 10 s unless set.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 4747).into(),
            token: None,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            audit_log: None,
            playground: None,
            log: LogLevel::Error,
            max_connections: 512,
            max_request_bytes: 1024 * 1024,
            request_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// From which level on something is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// An engine that fails, a guard that cannot work.
    Error,
    /// Also duplicates that were refused, leases that were lost.
    Warn,
    /// Also what changes seldom.
    Info,
    /// Also every attempt.
    Debug,
    /// Everything.
    Trace,
}

fn address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let accepted = "accepted is an address with its port, such as 127.0.0.1:4747 or [::1]:4747";
        serde::de::Error::custom(format!("`{text}` is not accepted; {accepted}"))
    })
}
