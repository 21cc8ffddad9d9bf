//! How keys and channels are named in Redis.

use crate::key::Key;
use crate::lease::{ClaimKey, Space};

/// The names under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The prefix with its separator, or nothing.
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let separator = if prefix.is_empty() { "" } else { ":" };
        Self { prefix: format!("{prefix}{separator}") }
    }

    /// `P:lock:K`: the plain string whose value is the token.
    pub(super) fn key(&self, on: &ClaimKey) -> String {
        format!("{}{}:{}", self.prefix, on.space.word(), on.key)
    }

    /// The channel on which a release of this key is published. The braces make a Cluster hash exactly the text of the
    /// key, unless that has a hash tag of its own.
    pub(super) fn channel(&self, on: &ClaimKey) -> String {
        let key = self.key(on);
        if on.key.has_hash_tag() {
            format!("{}wake:{key}", self.prefix)
        } else {
            format!("{}wake:{{{key}}}", self.prefix)
        }
    }

    /// The channel on which force-releases are published.
    pub(super) fn revocations(&self) -> String {
        format!("{}revoked", self.prefix)
    }

    /// What a `SCAN` matches to find all keys under the prefix.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 1);
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }

    /// Which claim a Redis key is about; `None` for keys that are none of ours.
    pub(super) fn parse(&self, key: &str) -> Option<ClaimKey> {
        let (word, key) = key.strip_prefix(&self.prefix)?.split_once(':')?;
        let space = [Space::Lock, Space::Duplicate].into_iter().find(|space| space.word() == word)?;
        Some(ClaimKey { space, key: Key::new(key).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(key: &str) -> ClaimKey {
        ClaimKey::lock(Key::new(key).unwrap())
    }

    /// Proves: L6
    #[test]
    fn engine_keys_are_prefix_word_and_business_key() {
        assert_eq!(Names::new("shop").key(&on("order:42")), "shop:lock:order:42");
        assert_eq!(Names::new("").key(&on("order:42")), "lock:order:42");
        assert_eq!(Names::new("clinch").channel(&on("a")), "clinch:wake:{clinch:lock:a}");
        assert_eq!(Names::new("clinch").channel(&on("{u}:a")), "clinch:wake:clinch:lock:{u}:a");
    }

    #[test]
    fn keys_are_read_back() {
        for prefix in ["", "shop", "a:b"] {
            let names = Names::new(prefix);
            assert_eq!(names.parse(&names.key(&on("order:42"))), Some(on("order:42")));
        }
        assert_eq!(Names::new("shop").parse("other:lock:a"), None);
        assert_eq!(Names::new("shop").parse("shop:fence:a"), None);
    }

    #[test]
    fn a_prefix_with_signs_of_patterns_matches_only_itself() {
        assert_eq!(Names::new("a*[b]?").pattern(), "a\\*\\[b\\]\\?:*");
    }
}
