//! What the types cannot say: ranges, and what goes together. An error stands at the field's own line.

use std::path::Path;
use std::time::Duration;

use super::error::ConfigError;
use super::secret::{HIDDEN, StoreUrl};
use super::{Config, Serve};
use crate::error::Error;
use crate::manager::LockOptions;
use crate::stores::{self, StoreOptions, without_password};

/// The fewest bytes of a secret that is worth its name.
const LEAST_SECRET: usize = 16;

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let at =
        |section: &str, checked: Result<(), Error>| checked.map_err(|error| config.located(section, error));
    at("", config.unconnected().and_then(|builder| builder.checked()))?;
    config.engine_url()?;
    if config.host.as_deref().is_some_and(|host| host.is_empty() || host.contains(char::is_control)) {
        return Err(config.wrong("host", "accepted is a name without control characters, or none"));
    }
    if let Some(path) = &config.tls_root_certificates {
        certificates(path).map_err(|problem| config.wrong("tls_root_certificates", problem))?;
    }
    if config.fleet_key.as_ref().is_some_and(|key| key.expose().len() < LEAST_SECRET) {
        let accepted =
            format!("too short; accepted are at least {LEAST_SECRET} bytes (the value is not shown)");
        return Err(config.wrong("fleet_key", accepted));
    }
    guards(config)?;
    policies(config)?;
    #[cfg(feature = "http")]
    at("http.", config.http.statuses.check())?;
    serve(config, &config.serve)
}

/// A range has two ends, and the one that was set is the one that is wrong.
fn guards(config: &Config) -> Result<(), ConfigError> {
    let Err(error) = config.guards.check() else { return Ok(()) };
    let error = config.located("guards.", error);
    if error.field() == Some("guards.max_interval") && config.source("guards.max_interval").is_default() {
        let (min, max) = (config.guards.min_interval, config.guards.max_interval);
        let problem = format!("{min:?} is not accepted; accepted is at most the `max_interval` of {max:?}");
        return Err(config.wrong("guards.min_interval", problem));
    }
    Err(error)
}

/// Whether the default policies can work.
fn policies(config: &Config) -> Result<(), ConfigError> {
    let Config { duplicate, lock, limit, idempotency, .. } = config;
    // A TTL that nobody set is not held against the one who sets a low `max_ttl`: perhaps no such guard is used.
    let ttl = |field: &str, ttl: Duration, mut options: LockOptions| {
        let given = !config.source(field).is_default();
        let most = if given { config.max_ttl } else { config.max_ttl.max(ttl) };
        options.check(most)
    };
    let at =
        |section: &str, checked: Result<(), Error>| checked.map_err(|error| config.located(section, error));
    at("duplicate.", duplicate.check())?;
    at("idempotency.", idempotency.check())?;
    at("lock.", lock.check_options().and_then(|()| ttl("lock.ttl", lock.ttl, lock.options(None))))?;
    at("limit.", limit.check_options().and_then(|()| ttl("limit.ttl", limit.ttl, limit.options(None))))?;
    let lease = ttl("idempotency.lease", idempotency.lease, LockOptions::new(idempotency.lease));
    // It is called by another name there.
    at("idempotency.", lease.map_err(|error| renamed(error, "lease")))?;
    for (path, is_set) in [
        ("duplicate.name", duplicate.name.is_some()),
        ("lock.key", !lock.key.is_empty()),
        ("lock.name", lock.name.is_some()),
        ("limit.key", !limit.key.is_empty()),
        ("limit.limit", limit.limit != 1),
        ("limit.name", limit.name.is_some()),
        ("idempotency.name", idempotency.name.is_some()),
    ] {
        if is_set {
            let problem =
                "is not configured here: it is said where the guard stands, in its attribute or its policy";
            return Err(config.wrong(path, problem));
        }
    }
    Ok(())
}

fn renamed(error: Error, field: &'static str) -> Error {
    match error {
        Error::InvalidOption { value, accepted, .. } => Error::InvalidOption { field, value, accepted },
        other => other,
    }
}

fn serve(config: &Config, serve: &Serve) -> Result<(), ConfigError> {
    let Serve { listen, token, allowed_origins, max_request_bytes, request_timeout, .. } = serve;
    if let Some(token) = token {
        let token = token.expose();
        if token.len() < LEAST_SECRET || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let accepted = format!(
                "accepted are at least {LEAST_SECRET} visible ASCII characters without blanks (the value is not shown)"
            );
            return Err(config.wrong("serve.token", accepted));
        }
    } else if !listen.ip().is_loopback() {
        let accepted =
            "accepted without a `serve.token` are only addresses of this machine, such as 127.0.0.1:4747";
        return Err(config.wrong("serve.listen", format!("`{listen}` is not accepted; {accepted}")));
    }
    if let Some(origin) = allowed_origins.iter().find(|origin| !is_origin(origin)) {
        let accepted =
            "accepted are a scheme and a host, such as https://ops.example.com or http://localhost:8080";
        return Err(config.wrong("serve.allowed_origins", format!("`{origin}` is not accepted; {accepted}")));
    }
    if let Some(host) = serve.allowed_hosts.iter().find(|host| !host.chars().all(is_host_sign)) {
        let accepted =
            "accepted are names with or without a port, such as locks.example.com or localhost:8080";
        return Err(config.wrong("serve.allowed_hosts", format!("`{host}` is not accepted; {accepted}")));
    }
    if !(1..=1 << 20).contains(&serve.max_connections) {
        let problem = format!("`{}` is not accepted; accepted is 1 to {}", serve.max_connections, 1 << 20);
        return Err(config.wrong("serve.max_connections", problem));
    }
    if !(1024..=1 << 30).contains(max_request_bytes) {
        let problem = format!("`{max_request_bytes}` is not accepted; accepted is 1024 to {}", 1 << 30);
        return Err(config.wrong("serve.max_request_bytes", problem));
    }
    if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(request_timeout) {
        let problem = format!("{request_timeout:?} is not accepted; accepted is 10 ms to 1 h");
        return Err(config.wrong("serve.request_timeout", problem));
    }
    if serve.drain_timeout > Duration::from_secs(3600) {
        let problem = format!("{:?} is not accepted; accepted is 0 to 1 h", serve.drain_timeout);
        return Err(config.wrong("serve.drain_timeout", problem));
    }
    Ok(())
}

/// As a browser writes it: scheme, host, perhaps a port, and nothing else.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    matches!(scheme, "http" | "https") && !host.is_empty() && host.chars().all(is_host_sign)
}

const fn is_host_sign(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']')
}

/// The file of certificates, if it looks like one.
pub(super) fn certificates(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let pem = std::fs::read(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    let is_pem = pem.windows(27).any(|window| window == b"-----BEGIN CERTIFICATE-----");
    if is_pem { Ok(pem) } else { Err(format!("`{shown}` has no certificate in it; accepted is a PEM file")) }
}

/// The address, with the database in it.
pub(super) fn engine_url(config: &Config) -> Result<StoreUrl, ConfigError> {
    let (url, shown) = (config.store.expose(), &config.store);
    if shown.to_string() == url && url.contains(&format!(":{HIDDEN}@")) {
        let problem =
            format!("`{shown}` has its password hidden; accepted is the address with the password itself");
        return Err(config.wrong("store", problem));
    }
    let invalid = |error: Error| match error {
        Error::InvalidUrl { url, reason } => {
            config.wrong("store", format!("`{url}` is not accepted: {reason}"))
        }
        other => config.located("", other),
    };
    stores::check_url(url, &StoreOptions::default()).map_err(invalid)?;
    let Some(database) = config.database else { return Ok(config.store.clone()) };
    let (url, within) = stores::with_database(url, database).ok_or_else(|| {
        let problem =
            format!("{database} is not accepted: the engine at `{shown}` has no databases; accepted is none");
        config.wrong("database", problem)
    })?;
    if let Some(within) = within.filter(|within| *within != database) {
        let problem = format!(
            "{database} is not accepted: the address `{}` names database {within}; accepted is the one or the other",
            without_password(config.store.expose())
        );
        return Err(config.wrong("database", problem));
    }
    stores::check_url(&url, &StoreOptions::default()).map_err(invalid)?;
    Ok(StoreUrl::new(url))
}
