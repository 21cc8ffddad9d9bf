//! The address of a client, seen through the proxies that the application trusts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::header::FORWARDED;
use http::{Extensions, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer, Serialize};

use super::forwarded::{forwarded_for, node, split_last};
use super::identity::{Identify, Sender};
use crate::error::Error;
use crate::submit::Identity;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The other end of a connection, for servers other than axum's: put it into the extensions of every request. A server
/// behind a Unix socket, where there is no address, puts one there that stands for its proxy (`127.0.0.1:0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub SocketAddr);

/// The peer's address, IPv4 as such.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let told = extensions.get().map(|PeerAddress(address)| *address);
    #[cfg(feature = "axum")]
    let told =
        told.or_else(|| extensions.get().map(|axum::extract::ConnectInfo::<SocketAddr>(address)| *address));
    told.map(|address| address.ip().to_canonical())
}

/// The header in which the trusted proxies say for whom they ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, which most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as RFC 7239 has it.
    Forwarded,
}

/// Proxies whose word is taken: addresses and networks.
///
/// In a configuration file they are a list: `trusted_proxies = ["10.0.0.0/8", "2001:db8::1"]`. An IPv4 network in IPv6
/// clothes (`::ffff:10.0.0.0/104`) is that IPv4 network; an IPv6 network never has IPv4 addresses in it, however wide it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Reads addresses (`192.0.2.1`, which is a network of one) and networks (`10.0.0.0/8`).
    ///
    /// # Errors
    /// [`Error::InvalidOption`] of `trusted_proxies` for the first that is neither.
    pub fn parse<P: AsRef<str>>(proxies: impl IntoIterator<Item = P>) -> Result<Self, Error> {
        proxies.into_iter().map(|proxy| network(proxy.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Networks that were read already.
impl From<Vec<IpNet>> for TrustedProxies {
    fn from(networks: Vec<IpNet>) -> Self {
        Self(networks.into_iter().map(canonical).collect())
    }
}

impl<'de> Deserialize<'de> for TrustedProxies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(Vec::<String>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn network(text: &str) -> Result<IpNet, Error> {
    let text = text.trim();
    match text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address))) {
        Ok(network) => Ok(canonical(network)),
        Err(_) => Err(Error::option(
            "trusted_proxies",
            &format!("`{text}`"),
            "accepted are addresses and networks, such as 192.0.2.1, 10.0.0.0/8, 2001:db8::1 or fd00::/8",
        )),
    }
}

/// IPv4 as such, and no bits behind the prefix.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network.trunc() else { return network.trunc() };
    let v4 = v6.network().to_ipv4_mapped();
    let of_v4 = |address: Ipv4Addr| Ipv4Net::new(address, v6.prefix_len().checked_sub(96)?).ok();
    v4.and_then(of_v4).map_or(IpNet::V6(v6), IpNet::V4)
}

/// The step that takes all who come from one address for one.
///
/// The address is that of the [peer](Sender::peer). Only if the peer is a trusted proxy, the header counts in which it says
/// for whom it asks: read from the right, over all its lines, past all addresses that are trusted proxies themselves, to the
/// first that is not. If all are, it is the leftmost. What stands further left was written by the client and may be a lie;
/// it is never looked at. A part that is no address (`unknown`, `_hidden`, an empty one, rubbish) ends the walk, and the
/// client is whoever sent it on, the last good address.
///
/// **Exactly one header is read**, the one that is [configured](Self::header): a proxy writes one of the two and passes the
/// other on as the client sent it, so the one that it does not write must not count. Trust only proxies that append to
/// that header or replace it.
///
/// An IPv6 address counts as a whole: a client that has a whole network can change it at will.
///
/// ```
/// use clinch::http::{ClientAddress, ForwardedHeader, TrustedProxies};
///
/// let proxies = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::1"])?;
/// let step = ClientAddress::behind(proxies).header(ForwardedHeader::Forwarded);
/// # let _ = step;
/// let error = TrustedProxies::parse(["10.0.0.0/33"]).unwrap_err().to_string();
/// assert!(error.starts_with("invalid trusted_proxies: `10.0.0.0/33`; accepted are addresses and networks"));
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct ClientAddress {
    trusted: TrustedProxies,
    header: ForwardedHeader,
}

impl ClientAddress {
    /// The peer's address, whatever the headers say.
    pub fn new() -> Self {
        Self::default()
    }

    /// The address of the client behind these proxies, as `X-Forwarded-For` gives it unless told otherwise.
    pub fn behind(proxies: impl Into<TrustedProxies>) -> Self {
        Self { trusted: proxies.into(), header: ForwardedHeader::default() }
    }

    /// The header that the proxies write.
    pub const fn header(mut self, header: ForwardedHeader) -> Self {
        self.header = header;
        self
    }

    /// The address itself, for those who want it for something else as well; `None` if there is no peer.
    pub fn of(&self, sender: &Sender<'_>) -> Option<IpAddr> {
        let peer = sender.peer()?;
        Some(if self.trusted.contains(peer) { self.behind_peer(peer, sender.headers()) } else { peer })
    }

    /// Walks from a trusted peer towards the client.
    fn behind_peer(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut nearest = peer;
        let name = if self.header == ForwardedHeader::Forwarded { FORWARDED } else { X_FORWARDED_FOR };
        for line in headers.get_all(name).iter().rev() {
            let mut rest = Some(line.as_bytes());
            while let Some(parts) = rest {
                let (before, last) = self.split_last(parts);
                let Some(address) = self.address(last) else { return nearest };
                nearest = address;
                if !self.trusted.contains(address) {
                    return nearest;
                }
                rest = before;
            }
        }
        nearest
    }

    fn split_last<'a>(&self, line: &'a [u8]) -> (Option<&'a [u8]>, &'a [u8]) {
        match self.header {
            ForwardedHeader::Forwarded => split_last(line),
            ForwardedHeader::XForwardedFor => match line.iter().rposition(|byte| *byte == b',') {
                Some(at) => (Some(&line[..at]), &line[at + 1..]),
                None => (None, line),
            },
        }
    }

    fn address(&self, element: &[u8]) -> Option<IpAddr> {
        match self.header {
            ForwardedHeader::Forwarded => forwarded_for(element),
            ForwardedHeader::XForwardedFor => node(element.trim_ascii()),
        }
    }
}

impl Identify for ClientAddress {
    fn identify(&self, sender: &Sender<'_>) -> Option<Identity> {
        Some(Identity::address(self.of(sender)?))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TRUSTED: [&str; 5] =
        ["10.0.0.0/8", "192.0.2.7", "2001:db8:aaaa::/48", "::ffff:172.16.0.0/108", "fd00::1"];

    fn seen(step: &ClientAddress, peer: &str, lines: &[(&'static str, &[u8])]) -> String {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(*name, HeaderValue::from_bytes(line).unwrap());
        }
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress(SocketAddr::new(peer.parse().unwrap(), 4711)));
        step.of(&Sender::new(&headers, &extensions, &|_| None)).unwrap().to_string()
    }

    fn behind(header: ForwardedHeader) -> ClientAddress {
        ClientAddress::behind(TrustedProxies::parse(TRUSTED).unwrap()).header(header)
    }

    fn x_forwarded_for(peer: &str, lines: &[&[u8]]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        seen(&behind(ForwardedHeader::XForwardedFor), peer, &lines)
    }

    fn forwarded(lines: &[&[u8]]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
        seen(&behind(ForwardedHeader::Forwarded), "10.0.0.1", &lines)
    }

    /// Proves: D3
    #[test]
    fn what_an_untrusted_peer_writes_changes_nothing() {
        let forged: &[(&'static str, &[u8])] = &[
            ("x-forwarded-for", b"198.51.100.1, 10.0.0.2"),
            ("forwarded", b"for=198.51.100.1"),
            ("x-real-ip", b"198.51.100.1"),
        ];
        for step in
            [ClientAddress::new(), behind(ForwardedHeader::XForwardedFor), behind(ForwardedHeader::Forwarded)]
        {
            for peer in ["203.0.113.9", "192.0.2.8", "2001:db8:bbbb::1", "11.0.0.0"] {
                assert_eq!(seen(&step, peer, forged), peer);
            }
        }
        // Without proxies to trust, nobody is one.
        assert_eq!(seen(&ClientAddress::new(), "10.0.0.1", forged), "10.0.0.1");
    }

    /// Proves: D3
    #[test]
    fn the_client_is_the_first_from_the_right_who_is_not_trusted() {
        for (lines, client) in [
            (&[] as &[&[u8]], "10.0.0.1"),
            (&[b"203.0.113.9"], "203.0.113.9"),
            (&[b"198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            (&[b"203.0.113.9, 10.0.0.3,192.0.2.7\t,  10.0.0.2"], "203.0.113.9"),
            (&[b"198.51.100.1", b"203.0.113.9", b"10.0.0.3, 10.0.0.2"], "203.0.113.9"),
            (&[b"198.51.100.1, 203.0.113.9", b"10.0.0.2"], "203.0.113.9"),
            // All trusted: the leftmost.
            (&[b"10.0.0.4, 10.0.0.3", b"10.0.0.2"], "10.0.0.4"),
            // Ports, brackets, IPv6, IPv4 in its clothes.
            (&[b"203.0.113.9:8080"], "203.0.113.9"),
            (&[b"[2001:db8::9]:8080"], "2001:db8::9"),
            (&[b"[2001:db8::9]"], "2001:db8::9"),
            (&[b"2001:DB8:0::9"], "2001:db8::9"),
            (&[b"::ffff:203.0.113.9"], "203.0.113.9"),
            (&[b"[::ffff:203.0.113.9]:1, ::ffff:10.0.0.2"], "203.0.113.9"),
            (&[b"203.0.113.9, 172.16.1.1"], "203.0.113.9"),
            (&[b"203.0.113.9, 2001:db8:aaaa:1::2, fd00::1"], "203.0.113.9"),
        ] {
            assert_eq!(x_forwarded_for("10.0.0.1", lines), client, "{lines:?}");
        }
        assert_eq!(x_forwarded_for("::ffff:10.0.0.1", &[b"203.0.113.9"]), "203.0.113.9");
        assert_eq!(x_forwarded_for("::ffff:203.0.113.1", &[b"198.51.100.1"]), "203.0.113.1");
    }

    /// Proves: D3
    #[test]
    fn the_walk_ends_at_what_is_no_address() {
        let stops: [&[u8]; 22] = [
            b"",
            b" ",
            b"unknown",
            b"_hidden",
            b"localhost",
            b"203.0.113.9:",
            b"203.0.113.9:x",
            b"203.0.113.9:65536",
            b"203.0.113.9:+80",
            b"203.0.113.256",
            b"203.0.113.9/32",
            b"203.0.113",
            b"0x7f000001",
            b"[2001:db8::9",
            b"[2001:db8::9]80",
            b"[203.0.113.9]",
            b"2001:db8::9]:80",
            b"fe80::1%eth0",
            b"\"203.0.113.9\"",
            b"203.0.113.9 203.0.113.9",
            b"\xff\xfe",
            "２０３.0.113.9".as_bytes(),
        ];
        for stop in stops {
            let line = [b"198.51.100.1, ", stop].concat();
            assert_eq!(x_forwarded_for("10.0.0.1", &[&line]), "10.0.0.1", "{stop:?}");
            let line = [b"198.51.100.1, ", stop, b", 10.0.0.3, 10.0.0.2"].concat();
            assert_eq!(x_forwarded_for("10.0.0.1", &[&line]), "10.0.0.3", "{stop:?}");
            assert_eq!(
                x_forwarded_for("10.0.0.1", &[b"198.51.100.1", stop, b"10.0.0.2"]),
                "10.0.0.2",
                "{stop:?}"
            );
        }
        // To the left of the client, anything may stand.
        for rubbish in stops {
            let line = [rubbish, b",203.0.113.9"].concat();
            assert_eq!(x_forwarded_for("10.0.0.1", &[&line]), "203.0.113.9");
        }
    }

    /// Proves: D3
    #[test]
    fn forwarded_is_read_as_rfc_7239_has_it() {
        for (line, client) in [
            (b"for=203.0.113.9" as &[u8], "203.0.113.9"),
            (b"For=\"203.0.113.9:47011\"", "203.0.113.9"),
            (b"for=203.0.113.9:_port", "203.0.113.9"),
            (b"for=\"[2001:db8::9]:80\";proto=https;by=203.0.113.43", "2001:db8::9"),
            (b"proto=http; FOR=\"[2001:db8::9]\" ;by=_x;", "2001:db8::9"),
            (b"for=198.51.100.1, for=203.0.113.9 , for=10.0.0.2;by=10.0.0.1", "203.0.113.9"),
            (b"for=203.0.113.9;host=\"a,b;for=198.51.100.1\"", "203.0.113.9"),
            (b"for=203.0.113.9;host=\"a\\\"b, for=198.51.100.1\"", "203.0.113.9"),
            (b"for=203.0.113.9;host=\"a\\\\\", for=10.0.0.2", "203.0.113.9"),
            (b"for=\"\\203.0.113.9\"", "203.0.113.9"),
            // Marks of the client's that have no partner swallow nothing of what the proxy wrote.
            (b"for=198.51.100.1;x=\", for=203.0.113.9", "203.0.113.9"),
            (b"for=198.51.100.1;x=\", for=\"[2001:db8::9]:80\"", "2001:db8::9"),
            (b"\\\", for=203.0.113.9;host=\"a\"", "203.0.113.9"),
            (b"\xff\xfe, for=203.0.113.9", "203.0.113.9"),
        ] {
            assert_eq!(forwarded(&[line]), client, "{}", line.escape_ascii());
        }
        for stop in [
            b"" as &[u8],
            b"for=unknown",
            b"for=_hidden",
            b"for=\"_hidden:80\"",
            b"for=",
            b"for",
            b"by=203.0.113.9",
            b"for=203.0.113.9;for=203.0.113.8",
            b"for=\"203.0.113.9",
            b"for=203.0.113.9\"",
            b"for=\"203.0.113.9\"x",
            b"for=\"203.0.113.9\\",
            b"203.0.113.9",
            b"for=203.0.113.9 for=1",
            b"for=\"\xff\"",
        ] {
            assert_eq!(forwarded(&[b"for=198.51.100.1", stop]), "10.0.0.1", "{}", stop.escape_ascii());
            let lines: [&[u8]; 3] = [b"for=198.51.100.1", stop, b"for=10.0.0.3, for=10.0.0.2"];
            assert_eq!(forwarded(&lines), "10.0.0.3", "{}", stop.escape_ascii());
        }
    }

    #[test]
    fn only_the_configured_header_is_read() {
        let both: &[(&'static str, &[u8])] =
            &[("forwarded", b"for=198.51.100.1"), ("x-forwarded-for", b"203.0.113.9")];
        assert_eq!(seen(&behind(ForwardedHeader::XForwardedFor), "10.0.0.1", both), "203.0.113.9");
        assert_eq!(seen(&behind(ForwardedHeader::Forwarded), "10.0.0.1", both), "198.51.100.1");
        assert_eq!(seen(&behind(ForwardedHeader::XForwardedFor), "10.0.0.1", &both[..1]), "10.0.0.1");
        assert_eq!(seen(&behind(ForwardedHeader::Forwarded), "10.0.0.1", &both[1..]), "10.0.0.1");
    }

    #[test]
    fn long_headers_are_read_to_the_same_end() {
        let trusted = b"10.0.0.2,".repeat(1_100);
        assert_eq!(x_forwarded_for("10.0.0.1", &[b"203.0.113.9", &trusted[..9_899]]), "203.0.113.9");
        let forged = b"198.51.100.1, ".repeat(750);
        let line = [&forged, b"203.0.113.9".as_slice()].concat();
        assert_eq!(x_forwarded_for("10.0.0.1", &[&line]), "203.0.113.9");
        let line = [b"\"\\".repeat(5_000).as_slice(), b",for=203.0.113.9"].concat();
        assert_eq!(forwarded(&[&line]), "203.0.113.9");
        for byte in [b'"', b'\\', b',', b';', b'=', b'[', b':', 0xff] {
            assert_eq!(forwarded(&[&[byte; 10_000]]), "10.0.0.1");
            assert_eq!(x_forwarded_for("10.0.0.1", &[&[byte; 10_000]]), "10.0.0.1");
        }
    }

    #[test]
    fn an_address_is_one_identity_and_none_without_a_peer() {
        let (headers, mut extensions) = (HeaderMap::new(), Extensions::new());
        let step = ClientAddress::new();
        assert_eq!(step.identify(&Sender::new(&headers, &extensions, &|_| None)), None);
        #[cfg(feature = "axum")]
        {
            let peer: SocketAddr = "[::ffff:203.0.113.1]:80".parse().unwrap();
            extensions.insert(axum::extract::ConnectInfo(peer));
            let known = step.identify(&Sender::new(&headers, &extensions, &|_| None));
            assert_eq!(known, Some(Identity::new("address", "203.0.113.1")));
        }
        extensions.insert(PeerAddress("203.0.113.2:80".parse().unwrap()));
        let known = step.identify(&Sender::new(&headers, &extensions, &|_| None));
        assert_eq!(known, Some(Identity::new("address", "203.0.113.2")));
    }

    #[test]
    fn proxies_are_read_from_a_configuration() {
        let read = serde_json::from_value::<TrustedProxies>(serde_json::json!(TRUSTED)).unwrap();
        assert_eq!(read, TrustedProxies::parse(TRUSTED).unwrap());
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            serde_json::json!([
                "10.0.0.0/8",
                "192.0.2.7/32",
                "2001:db8:aaaa::/48",
                "172.16.0.0/12",
                "fd00::1/128"
            ])
        );
        assert_eq!(TrustedProxies::from(vec!["::ffff:10.1.2.3/104".parse().unwrap()]).0, read.0[..1]);
        for wrong in ["", "10.0.0.0/33", "10.0.0", "proxy.example", "10.0.0.1:80", "2001:db8::/129", "[::1]"]
        {
            let error = TrustedProxies::parse(["10.0.0.1", wrong]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("invalid trusted_proxies: `{wrong}`; accepted are")),
                "{error}"
            );
            let error =
                serde_json::from_value::<TrustedProxies>(serde_json::json!([wrong])).unwrap_err().to_string();
            assert!(error.contains("invalid trusted_proxies"), "{error}");
        }
        // The widest IPv6 network trusts no IPv4 peer, whatever the socket calls it.
        let all_v6 = ClientAddress::behind(TrustedProxies::parse(["::/0"]).unwrap());
        let forged: &[(&'static str, &[u8])] = &[("x-forwarded-for", b"198.51.100.1")];
        assert_eq!(seen(&all_v6, "::ffff:203.0.113.1", forged), "203.0.113.1");
    }
}
