//! The texts in which proxies say for whom they ask: `X-Forwarded-For`, and `Forwarded` as RFC 7239 has it.
//!
//! All of it works from the right. The left of such a header comes from the client, and nothing that it writes there (a
//! quotation mark without its partner, say) may change how the part is read that the proxy appended.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The last element of a `Forwarded` line, and what stands before it, if there is a comma.
pub(super) fn split_last(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            // From the right, a mark with a backslash before it is inside a quoted string for certain only if that
            // backslash is not itself the second of a pair.
            b'"' if !(quoted && is_escaped(line, at)) => quoted = !quoted,
            b',' if !quoted => return (Some(&line[..at]), &line[at + 1..]),
            _ => {}
        }
    }
    (None, line)
}

/// Whether an odd number of backslashes stands before this place.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in `for=` of one element, if the element is well formed, has exactly one `for`, and that is an address.
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element.trim_ascii();
    let mut found = None;
    loop {
        rest = rest.trim_ascii_start();
        // The grammar allows for nothing between two semicolons.
        if !rest.is_empty() && rest[0] != b';' {
            let equals = rest.iter().position(|byte| *byte == b'=')?;
            let name = &rest[..equals];
            let (value, after) = value(&rest[equals + 1..])?;
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
            rest = after.trim_ascii_start();
        }
        match rest.split_first() {
            None => return node(&found?),
            Some((b';', after)) => rest = after,
            Some(_) => return None,
        }
    }
}

/// A token or a quoted string at the start of this text, and what follows it. Addresses are taken without quotation marks
/// too, as many proxies write them.
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| b"; \t\"".contains(byte)).unwrap_or(text.len());
        return Some((Cow::Borrowed(&text[..end]), &text[end..]));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((Cow::Owned(value), &quoted[at + 1..])),
            b'\\' => value.push(*bytes.next()?.1),
            _ => value.push(*byte),
        }
    }
    None
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`, `2001:db8::1`. IPv4
/// in IPv6 clothes is IPv4.
pub(super) fn node(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        (port.is_empty() || is_port(port.strip_prefix(':')?)).then_some(IpAddr::V6(address))?
    } else if let Ok(address) = text.parse() {
        address
    } else {
        let (address, port) = text.rsplit_once(':')?;
        is_port(port).then(|| address.parse::<Ipv4Addr>().ok())?.map(IpAddr::V4)?
    };
    Some(address.to_canonical())
}

/// A number, or a name that hides it, which RFC 7239 allows.
fn is_port(port: &str) -> bool {
    let hidden = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match port.strip_prefix('_') {
        Some(name) => hidden(name),
        None => port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok(),
    }
}
