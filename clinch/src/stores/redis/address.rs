//! Addresses: what stands in a URL, checked before anything is connected to.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::sentinel::Sentinels;
use crate::store::{ErrorKind, StoreError};
use crate::stores::StoreOptions;

const ACCEPTED: &str = "accepted is `redis://[user:password@]host[:port][/database]`, `rediss://…`, \
                        `redis+unix:///path/to/socket[?db=…&user=…&pass=…]`, \
                        `redis+sentinel://[user:password@]host:port,…/name[/database]` and \
                        `redis+cluster://[user:password@]host:port,…`";

/// How long replicas are waited for, unless the address says.
const REPLICAS_TIMEOUT: Duration = Duration::from_millis(100);

/// Where a Sentinel listens, unless the address says.
const SENTINEL_PORT: u16 = 26379;
const PORT: u16 = 6379;

/// A host and a port.
pub(super) type Place = (String, u16);

/// What an address names.
pub(super) struct Address {
    pub(super) servers: Servers,
    pub(super) replicas: Option<Replicas>,
}

pub(super) enum Servers {
    /// One server at a fixed place.
    One(Arc<Client>),
    /// The primary that Sentinels name.
    Watched(Arc<Sentinels>),
    /// The nodes of a Cluster that are asked for the others.
    Cluster { seeds: Vec<Place>, opener: Box<Opener> },
}

/// How many replicas must confirm a grant, and how long that may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) least: u32,
    pub(super) within: Duration,
}

fn config(reason: impl Into<String>) -> StoreError {
    StoreError::not_applied(ErrorKind::Config, reason)
}

/// Opens servers that differ in nothing but where they are.
#[derive(Clone)]
pub(super) struct Opener {
    like: ConnectionInfo,
    tls_root_certificates: Option<Vec<u8>>,
}

impl Opener {
    /// From an address that the client library understands.
    fn new(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        let info = url.into_connection_info().map_err(|error| {
            let text = error.to_string();
            config(format!("{}; {ACCEPTED}", text.split(" - ").next().unwrap_or_default()))
        })?;
        let settings = info.redis_settings().clone().set_lib_name("clinch", env!("CARGO_PKG_VERSION"));
        let like = info.set_redis_settings(settings);
        Ok(Self { like, tls_root_certificates: options.tls_root_certificates.clone() })
    }

    /// The server at the address itself.
    fn here(&self) -> Result<Client, StoreError> {
        self.open(self.like.clone())
    }

    /// The server at another place.
    pub(super) fn at(&self, host: &str, port: u16) -> Result<Client, StoreError> {
        let host = host.to_owned();
        let place = match self.like.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.open(self.like.clone().set_addr(place))
    }

    fn open(&self, info: ConnectionInfo) -> Result<Client, StoreError> {
        let opened = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            tls_client(info, self.tls_root_certificates.as_ref())
        } else {
            Client::open(info)
        };
        opened.map_err(|error| config(format!("cannot be used: {error}")))
    }
}

#[cfg(feature = "redis-tls")]
fn tls_client(info: ConnectionInfo, roots: Option<&Vec<u8>>) -> redis::RedisResult<Client> {
    // Without a provider that the program chose, rustls would panic if two were compiled in.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error only says that somebody else was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match roots {
        None => Client::open(info),
        Some(pem) => {
            let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
            Client::build_with_tls(info, certificates)
        }
    }
}

#[cfg(not(feature = "redis-tls"))]
fn tls_client(info: ConnectionInfo, _roots: Option<&Vec<u8>>) -> redis::RedisResult<Client> {
    Client::open(info)
}

/// What stands behind the `?`.
struct Query<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Query<'a> {
    fn parse(query: &'a str, accepted: &[&str]) -> Result<Self, StoreError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !accepted.contains(name)) {
            // A name may be part of a password with an unescaped `?`.
            let shown = if name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !query.contains('@') {
                name
            } else {
                "…"
            };
            return Err(config(format!(
                "the parameter `{shown}` is not accepted; write the database as a path (`redis://host/2`), and escape a `?` in \
                 a password as %3F; accepted are {}",
                accepted.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    fn replicas(&self) -> Result<Option<Replicas>, StoreError> {
        let within = match self.get("replicas_timeout") {
            None => REPLICAS_TIMEOUT,
            Some(text) => time(text).ok_or_else(|| {
                config(format!(
                    "`replicas_timeout={text}` is not accepted; accepted is a time as `100ms` or `1s`"
                ))
            })?,
        };
        let Some(text) = self.get("replicas") else {
            return match self.get("replicas_timeout") {
                None => Ok(None),
                Some(_) => Err(config("`replicas_timeout` says nothing without `replicas`")),
            };
        };
        match text.parse() {
            Ok(0) => Ok(None),
            Ok(least @ 1..=100) => Ok(Some(Replicas { least, within })),
            _ => Err(config(format!("`replicas={text}` is not accepted; accepted is 0 to 100"))),
        }
    }
}

/// `100ms` or `1s`; at least a millisecond.
fn time(text: &str) -> Option<Duration> {
    let (digits, millis) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let time = Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(millis)?);
    Some(time).filter(|time| !time.is_zero())
}

/// Reads an address.
pub(super) fn parse(url: &str, options: &StoreOptions) -> Result<Address, StoreError> {
    if url.contains('#') {
        return Err(config("a `#` part is not accepted; certificates are always verified"));
    }
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
    let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
    match scheme.split_once('+') {
        Some((_, "sentinel")) => {
            let accepted = ["sentinel_user", "sentinel_password", "replicas", "replicas_timeout"];
            let query = Query::parse(query, &accepted)?;
            let servers = Servers::Watched(Arc::new(sentinels(plain, rest, &query, options)?));
            Ok(Address { servers, replicas: query.replicas()? })
        }
        Some((_, "cluster")) => {
            let query = Query::parse(query, &["replicas", "replicas_timeout"])?;
            let (credentials, hosts, path) = parts(rest);
            if !path.is_empty() && path != "0" {
                return Err(config("a Cluster has one database, and its address no path"));
            }
            let seeds = places(hosts, PORT)?;
            let opener = Opener::new(&format!("{plain}://{credentials}{}", shown_place(&seeds[0])), options)?;
            opener.here()?;
            let servers = Servers::Cluster { seeds, opener: Box::new(opener) };
            Ok(Address { servers, replicas: query.replicas()? })
        }
        _ => {
            let of_unix = ["db", "user", "pass"];
            let mut accepted = vec!["replicas", "replicas_timeout"];
            if scheme == "redis+unix" {
                accepted.splice(0..0, of_unix);
            }
            let query = Query::parse(query, &accepted)?;
            let own = query.0.iter().filter(|(name, _)| of_unix.contains(name));
            let own: Vec<_> = own.map(|(name, value)| format!("{name}={value}")).collect();
            let url =
                if own.is_empty() { address.to_owned() } else { format!("{address}?{}", own.join("&")) };
            let servers = Servers::One(Arc::new(Opener::new(&url, options)?.here()?));
            Ok(Address { servers, replicas: query.replicas()? })
        }
    }
}

/// The credentials with their `@`, the places, and the path without slashes around it.
fn parts(rest: &str) -> (&str, &str, &str) {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    // A password may have a slash in it.
    let (credentials, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    (credentials, hosts, path.trim_end_matches('/'))
}

/// `host:port,[::1]:port,host`: at least one.
fn places(hosts: &str, port: u16) -> Result<Vec<Place>, StoreError> {
    let place = |text: &str| {
        let refused = || config(format!("each place must be `host` or `host:port`; {ACCEPTED}"));
        let (host, port) = match text.rsplit_once(':') {
            // A colon inside of brackets is no port's.
            Some((host, digits)) if !digits.contains(']') => {
                (host, digits.parse().ok().filter(|port| *port != 0).ok_or_else(refused)?)
            }
            _ => (text, port),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = |c: char| c.is_alphanumeric() || "-._:%".contains(c);
        if inner.is_empty() || !inner.chars().all(is_host) {
            return Err(refused());
        }
        Ok((inner.to_owned(), port))
    };
    hosts.split(',').map(|text| place(text.trim())).collect()
}

/// `host:port`, with brackets where they are needed.
pub(super) fn shown_place((host, port): &Place) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// `host:port` as servers tell it: the last colon is the port's.
pub(super) fn told_place(text: &str) -> Option<Place> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host.to_owned(), port.parse().ok()?))
}

fn sentinels(
    plain: &str,
    rest: &str,
    query: &Query<'_>,
    options: &StoreOptions,
) -> Result<Sentinels, StoreError> {
    let (credentials, hosts, path) = parts(rest);
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(config(format!("it does not name the primary that the Sentinels watch; {ACCEPTED}")));
    }
    let places = places(hosts, SENTINEL_PORT)?;
    let first = shown_place(&places[0]);
    let data = Opener::new(&format!("{plain}://{credentials}{first}/{database}"), options)?;
    // As in a query everything may stand but `&`, signs that end a password elsewhere are escaped.
    let escaped = |name: &str| {
        let signs = [(":", "%3A"), ("/", "%2F"), ("@", "%40"), ("?", "%3F")];
        signs.iter().fold(query.get(name).unwrap_or_default().to_owned(), |text, (sign, code)| {
            text.replace(sign, code)
        })
    };
    let (user, password) = (escaped("sentinel_user"), escaped("sentinel_password"));
    let own =
        if user.is_empty() && password.is_empty() { String::new() } else { format!("{user}:{password}@") };
    let watch = Opener::new(&format!("{plain}://{own}{first}"), options)?;
    data.here()?;
    watch.here()?;
    Ok(Sentinels::new(name.to_owned(), places, data, watch, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        match parse(url, &StoreOptions::default()) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config);
                error.message().to_owned()
            }
            Ok(_) => panic!("{url} is accepted"),
        }
    }

    #[test]
    fn every_kind_of_address_is_read() {
        let read = |url: &str| parse(url, &StoreOptions::default()).unwrap();
        assert!(matches!(read("redis://u:p@h:1/2").servers, Servers::One(_)));
        let of_cluster = read("redis+cluster://u:p%2F@x@h1:1,[::1]:2,h3?replicas=1&replicas_timeout=50ms");
        let Servers::Cluster { seeds, .. } = of_cluster.servers else { panic!("not a Cluster") };
        assert_eq!(seeds.iter().map(shown_place).collect::<Vec<_>>(), ["h1:1", "[::1]:2", "h3:6379"]);
        assert_eq!(of_cluster.replicas, Some(Replicas { least: 1, within: Duration::from_millis(50) }));
        let Servers::Watched(sentinels) =
            read("redis+sentinel://h1,h2:2/main/3?sentinel_password=a:b@c/d").servers
        else {
            panic!("not under Sentinels")
        };
        assert_eq!(sentinels.name(), "main");
        assert_eq!(sentinels.known(), ["h1:26379", "h2:2"]);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_can() {
        for (url, reason) in [
            ("redis+sentinel://h1:1,h2:2", "does not name the primary"),
            ("redis+sentinel://h1:x/main", "`host:port`"),
            ("redis+sentinel://h1,,h2/main", "`host:port`"),
            ("redis+sentinel://h1/main/x", "database"),
            ("redis+sentinel://h1/main?db=1", "the parameter `db` is not accepted"),
            ("redis+cluster://h1:1/2", "one database"),
            ("redis+cluster://", "`host:port`"),
            ("redis+cluster://h1:0", "`host:port`"),
            ("redis://h?replicas=x", "accepted is 0 to 100"),
            ("redis://h?replicas=1&replicas_timeout=5", "as `100ms`"),
            ("redis://h?replicas_timeout=5ms", "says nothing"),
            ("redis://h?protocol=resp3", "the parameter `protocol` is not accepted"),
        ] {
            let message = refused(url);
            assert!(message.contains(reason), "{url}: {message}");
        }
    }
}
