//! What this server is called.

use std::net::{Ipv6Addr, SocketAddr};

/// The values of `Host` that are served.
#[derive(Debug)]
pub(in crate::serve) struct Hosts {
    port: u16,
    /// Names and addresses that need our port.
    local: Vec<String>,
    /// Names with a port, or without one for any port.
    configured: Vec<String>,
    /// Every address: one that was typed as a number cannot have been made to point here.
    addresses: bool,
}

impl Hosts {
    pub(super) fn new(address: SocketAddr, configured: &[String]) -> Self {
        let mut local = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        let own = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        if address.ip().is_loopback() && !local.contains(&own) {
            local.push(own);
        }
        Self {
            port: address.port(),
            local,
            configured: configured.iter().map(|host| host.to_ascii_lowercase()).collect(),
            addresses: !address.ip().is_loopback(),
        }
    }

    pub(super) fn accepts(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let (name, port) = split(&host);
        let Some(name) = name else { return false };
        let ours = port == Some(self.port) || (port.is_none() && self.port == 80);
        (ours && self.local.iter().any(|local| local == name))
            || self.configured.iter().any(|known| *known == host || known == name)
            || (self.addresses && is_address(name))
    }

    /// What is accepted, in words.
    pub(super) fn accepted(&self) -> String {
        let port = self.port;
        let mut names: Vec<_> = self.local.iter().map(|name| format!("{name}:{port}")).collect();
        if self.addresses {
            names.push("an IP address".to_owned());
        }
        names.extend(self.configured.iter().cloned());
        names.join(", ")
    }
}

/// Name and port. The name is `None` where this is no host at all.
fn split(host: &str) -> (Option<&str>, Option<u16>) {
    let colon = host.rfind(':').filter(|at| !host[*at..].contains(']'));
    let (name, port) = match colon {
        Some(at) => match host[at + 1..].parse() {
            Ok(port) => (&host[..at], Some(port)),
            Err(_) => return (None, None),
        },
        None => (host, None),
    };
    (Some(name).filter(|name| !name.is_empty()), port)
}

fn is_address(name: &str) -> bool {
    match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()),
        None => name.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(address: &str, configured: &[&str]) -> Hosts {
        let configured: Vec<_> = configured.iter().map(|host| (*host).to_owned()).collect();
        Hosts::new(address.parse().unwrap(), &configured)
    }

    #[test]
    fn on_loopback_only_this_machines_own_names_with_the_port() {
        let hosts = hosts("127.0.0.1:4747", &[]);
        for host in ["localhost:4747", "127.0.0.1:4747", "[::1]:4747", "LocalHost:4747"] {
            assert!(hosts.accepts(host), "{host}");
        }
        for host in [
            "",
            ":4747",
            "localhost",
            "localhost:80",
            "localhost:",
            "localhost:4747:4747",
            "evil.example:4747",
            "localhost.evil.example:4747",
            "127.0.0.1.evil.example:4747",
            "10.0.0.1:4747",
            "localhost:4747@evil.example",
            "[::1]",
            "[::1:4747",
        ] {
            assert!(!hosts.accepts(host), "{host}");
        }
    }

    #[test]
    fn elsewhere_addresses_and_configured_names() {
        let hosts = hosts("0.0.0.0:4747", &["Clinch.example", "other.example:8443"]);
        for host in [
            "10.0.0.1:4747",
            "192.168.0.7",
            "[fd00::1]:4747",
            "localhost:4747",
            "clinch.example",
            "clinch.example:8080",
            "other.example:8443",
        ] {
            assert!(hosts.accepts(host), "{host}");
        }
        for host in ["evil.example", "other.example", "other.example:80", "[nonsense]:4747"] {
            assert!(!hosts.accepts(host), "{host}");
        }
    }

    #[test]
    fn the_default_port_is_left_out_of_a_name() {
        assert!(hosts("127.0.0.1:80", &[]).accepts("localhost"));
    }
}
