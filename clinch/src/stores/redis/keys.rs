//! How keys and channels are named in Redis.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use crate::key::Key;
use crate::lease::{ClaimKey, Space};

/// How many digits of a token it is known by where others may read them: enough to be its own, and too little to release with.
const OWN_DIGITS: usize = 16;

/// The beginning of a token.
pub(super) type Digits = [u8; OWN_DIGITS];

/// What the channel of force-releases is called under the prefix.
const REVOKED: &str = "revoked";

/// The names under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The prefix with its separator, or nothing.
    prefix: String,
    listener: Arc<Listener>,
}

/// What a store that has attempts in queues goes by there.
#[derive(Debug)]
struct Listener {
    name: String,
    /// From when on it counts when it asked.
    epoch: Instant,
}

/// Names of what belongs to one key: what they have in common is put together once.
pub(super) struct AroundQueue<'a> {
    prefix: &'a str,
    /// The key, in its braces.
    of: String,
    /// How long each of the braces is.
    braces: usize,
}

/// What a name is put together of.
type Parts<'a> = [&'a str; 3];

impl AroundQueue<'_> {
    /// As [`Names::key`].
    pub(super) fn key(&self) -> &str {
        self.of.get(self.braces..self.of.len() - self.braces).unwrap_or(&self.of)
    }

    pub(super) fn queue(&self) -> Parts<'_> {
        [self.prefix, "queue:", &self.of]
    }

    /// The hash beside it.
    pub(super) fn queued(&self) -> Parts<'_> {
        [self.prefix, "queued:", &self.of]
    }

    /// As [`Names::writer`].
    pub(super) fn writer(&self) -> Parts<'_> {
        [self.prefix, "writer:", &self.of]
    }

    /// As [`Names::channel`].
    pub(super) fn channel(&self) -> Parts<'_> {
        [self.prefix, "wake:", &self.of]
    }

    /// How long all of them are together, or a little less.
    pub(super) fn length(&self) -> usize {
        4 * (self.prefix.len() + 8 + self.of.len()) + self.of.len()
    }
}

/// The braces around a key in the name of what belongs to it.
fn braces(on: &ClaimKey) -> (&'static str, &'static str) {
    if on.key.has_hash_tag() { ("", "") } else { ("{", "}") }
}

/// One text of several.
pub(super) fn joined<const N: usize>(texts: [&str; N]) -> String {
    let mut joined = String::with_capacity(texts.iter().map(|text| text.len()).sum());
    texts.into_iter().for_each(|text| joined.push_str(text));
    joined
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let separator = if prefix.is_empty() { "" } else { ":" };
        let name = format!("{:016x}", rand::rng().random::<u64>());
        let listener = Arc::new(Listener { name, epoch: Instant::now() });
        Self { prefix: format!("{prefix}{separator}"), listener }
    }

    /// `P:lock:K`, `P:dup:K`, `P:idem:K`: the plain string whose value is the token, or in the last two `done:`, the token,
    /// a line feed and the record. `P:sem:K`: the sorted set of holders.
    pub(super) fn key(&self, on: &ClaimKey) -> String {
        joined(self.key_parts(on))
    }

    /// What that is put together of.
    pub(super) fn key_parts<'a>(&'a self, on: &'a ClaimKey) -> [&'a str; 4] {
        [&self.prefix, on.space.word(), ":", on.key.as_str()]
    }

    /// `P:word:{P:lock:K}`: what belongs to a key. The braces make a Cluster hash exactly the text of the key, unless that
    /// has a hash tag of its own.
    fn beside(&self, word: &str, on: &ClaimKey) -> String {
        joined(self.parts_beside(word, on))
    }

    fn parts_beside<'a>(&'a self, word: &'a str, on: &'a ClaimKey) -> [&'a str; 9] {
        let (open, close) = braces(on);
        let (prefix, space, key) = (self.prefix.as_str(), on.space.word(), on.key.as_str());
        [prefix, word, ":", open, prefix, space, ":", key, close]
    }

    /// The names that a key's queue takes.
    pub(super) fn around_queue(&self, on: &ClaimKey) -> AroundQueue<'_> {
        let ((open, close), prefix) = (braces(on), self.prefix.as_str());
        let of = joined([open, prefix, on.space.word(), ":", on.key.as_str(), close]);
        AroundQueue { prefix, of, braces: open.len() }
    }

    /// The sorted set of a lock's readers.
    pub(super) fn readers(&self, on: &ClaimKey) -> String {
        self.beside("shared", on)
    }

    /// The note on who comes next: the writer that new readers let go first, or the heir.
    pub(super) fn writer(&self, on: &ClaimKey) -> String {
        self.beside("writer", on)
    }

    /// The record of the last fence.
    pub(super) fn fence(&self, on: &ClaimKey) -> String {
        self.beside("fence", on)
    }

    /// The queue, and the hash beside it.
    pub(super) fn queue(&self, on: &ClaimKey) -> [String; 2] {
        [self.beside("queue", on), self.beside("queued", on)]
    }

    /// The channel on which a release of this key is published.
    pub(super) fn channel(&self, on: &ClaimKey) -> String {
        joined(self.channel_parts(on))
    }

    /// What that is put together of.
    pub(super) fn channel_parts<'a>(&'a self, on: &'a ClaimKey) -> [&'a str; 9] {
        self.parts_beside("wake", on)
    }

    /// What this store's attempts in queues are told by.
    pub(super) fn listener(&self) -> &str {
        &self.listener.name
    }

    /// The moment, as it is sent with an attempt that enters a queue and comes back with the news that its turn has come.
    pub(super) fn asked_now(&self) -> u64 {
        self.listener.epoch.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// The moment that came back, if it was one.
    pub(super) fn asked_at(&self, micros: u64) -> Option<Instant> {
        let at = self.listener.epoch.checked_add(Duration::from_micros(micros))?;
        Some(at).filter(|at| *at <= Instant::now())
    }

    /// The channel on which this store is told which of its attempts in the key's queue has its turn: the key's channel, and
    /// behind it what is of this length.
    pub(super) fn turns(&self, on: &ClaimKey) -> (String, usize) {
        let ((open, close), prefix) = (braces(on), self.prefix.as_str());
        let (space, key, listener) = (on.space.word(), on.key.as_str(), self.listener());
        let turns = joined([prefix, "wake:", open, prefix, space, ":", key, close, ":", listener]);
        let shared = turns.len() - 1 - listener.len();
        (turns, shared)
    }

    /// What a token is known by on that channel.
    pub(super) fn digits(token: &[u8]) -> Digits {
        let mut digits = [0; OWN_DIGITS];
        digits.iter_mut().zip(token).for_each(|(digit, byte)| *digit = *byte);
        digits
    }

    /// The channel on which force-releases are published.
    pub(super) fn revocations(&self) -> String {
        joined([&self.prefix, REVOKED])
    }

    /// Whether a channel is that one.
    pub(super) fn is_of_revocations(&self, channel: &str) -> bool {
        channel.strip_prefix(self.prefix.as_str()) == Some(REVOKED)
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
        let spaces = [Space::Lock, Space::Duplicate, Space::Permit, Space::Idempotency];
        let space = spaces.into_iter().find(|space| space.word() == word)?;
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
    fn what_belongs_to_a_key_is_named_after_it() {
        let names = Names::new("shop");
        assert_eq!(names.readers(&on("a")), "shop:shared:{shop:lock:a}");
        assert_eq!(names.writer(&on("a")), "shop:writer:{shop:lock:a}");
        assert_eq!(names.fence(&on("{u}:a")), "shop:fence:shop:lock:{u}:a");
        assert_eq!(names.queue(&on("a")), ["shop:queue:{shop:lock:a}", "shop:queued:{shop:lock:a}"]);
        assert_eq!(Names::digits(b"00112233445566778899aabbccddeeff@h:1:"), *b"0011223344556677");
        assert_eq!(Names::digits(b"short"), *b"short\0\0\0\0\0\0\0\0\0\0\0");
        assert_ne!(names.listener(), Names::new("shop").listener());
        assert!(names.is_of_revocations(&names.revocations()) && !names.is_of_revocations("shop:a:revoked"));
    }

    /// However names are put together, they are the same.
    #[test]
    fn the_names_around_a_queue_are_those_of_the_key() {
        for (prefix, key) in [("shop", "a"), ("shop", "{u}:a"), ("", "a")] {
            let (names, on) = (Names::new(prefix), on(key));
            let around = names.around_queue(&on);
            assert_eq!(around.key(), names.key(&on));
            assert_eq!([joined(around.queue()), joined(around.queued())], names.queue(&on));
            assert_eq!(joined(around.writer()), names.writer(&on));
            assert_eq!(joined(around.channel()), names.channel(&on));
            let (turns, shared) = names.turns(&on);
            assert_eq!(turns, format!("{}:{}", names.channel(&on), names.listener()));
            assert_eq!(turns[..shared], names.channel(&on));
        }
    }

    /// A moment comes back as one that was not later, and what is not one yet as none.
    #[test]
    fn a_moment_comes_back() {
        let names = Names::new("shop");
        let asked = names.asked_now();
        assert!(names.asked_at(asked).is_some_and(|at| at <= Instant::now()));
        assert_eq!(names.asked_at(asked + 3_600_000_000), None);
        assert_eq!(names.asked_at(u64::MAX), None);
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
