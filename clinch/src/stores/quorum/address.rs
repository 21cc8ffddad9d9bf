//! The address of several servers.

use std::time::Duration;

use crate::store::{ErrorKind, StoreError};

const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
const ACCEPTED: &str = "accepted is `redis+quorum://[user:password@]host1[:port],host2[:port],host3[:port][/database][?max_ttl=60s]`, \
                        with three to nine different servers";

/// What an address says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The address of each server, and its name as it may be shown.
    pub(super) nodes: Vec<(String, String)>,
    pub(super) max_ttl: Duration,
}

impl Address {
    /// # Errors
    /// [`ErrorKind::Config`], without the password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let wrong = |what: &str| StoreError::not_applied(ErrorKind::Config, format!("{what}; {ACCEPTED}"));
        let (scheme, rest) = url.split_once("+quorum://").ok_or_else(|| wrong("not such an address"))?;
        // A password may hold any sign, hosts may not.
        let hosts = rest.rfind('@').map_or(0, |at| at + 1);
        let (credentials, rest) = rest.split_at(hosts);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Vec<&str> = hosts.split(',').collect();
        if !(3..=9).contains(&hosts.len()) {
            return Err(wrong("too few servers, or too many"));
        }
        for (i, host) in hosts.iter().enumerate() {
            if host.is_empty() {
                return Err(wrong("a server without a name"));
            }
            if hosts[..i].contains(host) {
                return Err(wrong("the same server twice"));
            }
        }
        let node = |host: &&str| (format!("{scheme}://{credentials}{host}/{database}"), (*host).to_owned());
        Ok(Self { nodes: hosts.iter().map(node).collect(), max_ttl: max_ttl(query)? })
    }
}

fn max_ttl(query: &str) -> Result<Duration, StoreError> {
    let mut max_ttl = DEFAULT_MAX_TTL;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let value = pair.strip_prefix("max_ttl=").and_then(duration);
        let accepted =
            |ttl: &Duration| (Duration::from_secs(1)..=Duration::from_secs(7 * 86_400)).contains(ttl);
        max_ttl = value.filter(accepted).ok_or_else(|| {
            let reason = "the only parameter is `max_ttl`, from `1s` to `168h`";
            StoreError::not_applied(ErrorKind::Config, reason)
        })?;
    }
    Ok(max_ttl)
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3600)?),
        _ => return None,
    })
}

/// The address with this database in it, and the one that it names already, if it does.
#[cfg(feature = "config")]
pub(crate) fn with_database(url: &str, database: u32) -> Option<(String, Option<u32>)> {
    let (scheme, rest) = url.split_once("://")?;
    let hosts = rest.rfind('@').map_or(0, |at| at + 1);
    let (credentials, rest) = rest.split_at(hosts);
    let (rest, query) = rest.split_once('?').map_or((rest, String::new()), |(r, q)| (r, format!("?{q}")));
    let (hosts, named) = rest.split_once('/').unwrap_or((rest, ""));
    Some((format!("{scheme}://{credentials}{hosts}/{database}{query}"), named.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_each_server_with_the_same_credentials() {
        let parsed = Address::parse("redis+quorum://u:p@/?w@a:1,b,[::1]:3/2?max_ttl=5m").unwrap();
        let urls: Vec<_> = parsed.nodes.iter().map(|(url, _)| url.as_str()).collect();
        assert_eq!(urls, ["redis://u:p@/?w@a:1/2", "redis://u:p@/?w@b/2", "redis://u:p@/?w@[::1]:3/2"]);
        assert_eq!(parsed.max_ttl, Duration::from_secs(300));
        let plain = Address::parse("rediss+quorum://a,b,c").unwrap();
        assert_eq!((plain.max_ttl, plain.nodes[2].0.as_str()), (DEFAULT_MAX_TTL, "rediss://c/"));
    }

    #[test]
    fn what_is_wrong_with_an_address_is_told() {
        for (rest, what) in [
            ("a,b", "too few servers"),
            ("a,b,c,d,e,f,g,h,i,j", "or too many"),
            ("a,b,b", "the same server twice"),
            ("a,,b", "without a name"),
            ("a,b,c?ttl=1s", "the only parameter is `max_ttl`"),
            ("a,b,c?max_ttl=60", "the only parameter is `max_ttl`"),
            ("a,b,c?max_ttl=1ms", "from `1s`"),
        ] {
            let error = Address::parse(&format!("redis+quorum://u:secret@{rest}")).unwrap_err();
            assert!(error.message().contains(what), "{rest}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[cfg(feature = "config")]
    #[test]
    fn a_database_is_put_into_an_address() {
        let put = |url| with_database(url, 3).unwrap();
        let url = "redis+quorum://u:p/w@a:1,b,c";
        assert_eq!(put(url), (format!("{url}/3"), None));
        assert_eq!(put(&format!("{url}/7?max_ttl=9s")), (format!("{url}/3?max_ttl=9s"), Some(7)));
    }
}
