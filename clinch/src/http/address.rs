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
        Some(Identity::new("address", self.of(sender)?.to_string()))
    }
}
