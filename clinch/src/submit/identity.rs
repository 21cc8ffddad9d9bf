//! Who submits: an identity, and how it becomes part of a key.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::Fingerprint;
use super::fingerprint::Short;

const ADDRESS: &str = "address";
/// What is hashed in a place that needs no allocation.
const SHORT: usize = 128;

/// Who submits. What it is made of may be a secret (a token, a session id), so it is never shown and never stored: only a
/// hash of it enters a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    kind: Cow<'static, str>,
    value: Vec<u8>,
}

impl Identity {
    /// Somebody who is known by `value`, in the sense of `kind` (`token`, `user`, …). The same value in another sense is
    /// somebody else.
    pub fn new(kind: impl Into<Cow<'static, str>>, value: impl Into<Vec<u8>>) -> Self {
        Self { kind: kind.into(), value: value.into() }
    }

    /// A user, by the id that the application verified.
    pub fn user(id: impl Into<Vec<u8>>) -> Self {
        Self::new("user", id)
    }

    /// Nobody in particular: all who cannot be told apart.
    pub fn anonymous() -> Self {
        Self::new("anonymous", Vec::new())
    }

    /// Somebody who is known by no more than the address of the client.
    pub fn address(address: IpAddr) -> Self {
        Self::new(ADDRESS, address.to_string())
    }

    /// In what sense the value is meant.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// Without its value.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.kind)
    }
}

/// How identities become parts of keys: by plain BLAKE3, or by BLAKE3 with a key that the whole fleet shares. Never by a key
/// of one process: two instances must make the same of the same user.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Option<[u8; 32]>);

impl Hasher {
    /// Derives the key from a secret of any length.
    pub(crate) fn keyed(secret: &[u8]) -> Self {
        Self(Some(blake3::derive_key("clinch 2026-11-16 identities in keys", secret)))
    }

    /// What stands for this text in this sense.
    pub(crate) fn hash(&self, kind: &str, value: &[u8]) -> Short {
        // In one piece: what is short needs no hasher that can be fed.
        let (length, kind) = ((kind.len() as u64).to_le_bytes(), kind.as_bytes());
        let (start, end) = (length.len() + kind.len(), length.len() + kind.len() + value.len());
        let (mut short, long);
        let text = if end <= SHORT {
            short = [0; SHORT];
            short[..length.len()].copy_from_slice(&length);
            short[length.len()..start].copy_from_slice(kind);
            short[start..end].copy_from_slice(value);
            &short[..end]
        } else {
            long = [&length, kind, value].concat();
            &*long
        };
        let hash = self.0.as_ref().map_or_else(|| blake3::hash(text), |key| blake3::keyed_hash(key, text));
        Short::of(hash.as_bytes())
    }

    /// What stands for parameters. With a key it is keyed as well: parameters can be guessed as easily as users.
    pub(crate) fn params(&self, fingerprint: &Fingerprint) -> Short {
        match self.0 {
            Some(_) => self.hash("params", fingerprint.to_hex().as_bytes()),
            None => Short::of(fingerprint.as_bytes()),
        }
    }

    pub(crate) fn identity(&self, identity: &Identity) -> Short {
        self.hash(&identity.kind, &identity.value)
    }
}

/// Without its key.
impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Hasher(with a key)" } else { "Hasher(plain)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: D3
    #[test]
    fn the_same_user_is_the_same_in_every_process_and_only_there() {
        let (plain, keyed) = (Hasher::default(), Hasher::keyed(b"fleet"));
        let user = Identity::user("42");
        assert_eq!(plain.identity(&user), Hasher::default().identity(&user));
        assert_eq!(keyed.identity(&user), Hasher::keyed(b"fleet").identity(&user));
        assert_ne!(plain.identity(&user), keyed.identity(&user));
        assert_ne!(keyed.identity(&user), Hasher::keyed(b"other").identity(&user));
        assert_ne!(plain.identity(&user), plain.identity(&Identity::new("token", "42")));
        assert_ne!(plain.hash("ab", b"c"), plain.hash("a", b"bc"));
        assert_eq!(format!("{user:?} {keyed:?}"), "Identity(user) Hasher(with a key)");
    }
}
