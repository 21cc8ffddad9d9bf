//! Tokens: who an attempt is, unguessably.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task;

use crate::hex;
use crate::key::escape::{Escaped, unescape};

/// The identity of one attempt: 128 random bits, then a readable owner.
///
/// The whole text is the token, and the whole text is what an engine stores and compares. Whoever has it can release
/// the lease, so its `Debug` hides the random part, and there is no `Display`.
///
/// Its form is `<32 hex digits>@<host>:<pid>:<label>`, optionally followed by `:<task>:<since>` (a task number or
/// nothing, and milliseconds since 1970 by the owner's wall clock; both only for people to read).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(Arc<str>);

/// Random part of a token: 16 bytes as hex digits.
const RANDOM_DIGITS: usize = 32;

impl Token {
    /// Takes a token's whole text, as a store reads it back.
    ///
    /// Managers make new ones themselves; a token that is made any other way is only as strong as its maker.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// A new one. `owner` is `host:pid:`, escaped.
    ///
    /// By hand, because there is one for every attempt, and formatting it takes longer than all else that is done for one.
    pub(crate) fn made(
        random: u128,
        owner: &str,
        label: &str,
        task: Option<task::Id>,
        since_ms: u64,
    ) -> Self {
        let mut text = Text::default();
        text.hex(random);
        text.push(b"@");
        text.push(owner.as_bytes());
        if !label.is_empty() {
            let mut escaped = String::new();
            let _ = Escaped(&mut escaped).write_str(label);
            text.push(escaped.as_bytes());
        }
        text.push(b":");
        if let Some(task) = task {
            // Writing into it does not fail.
            let _ = write!(text, "{task}");
        }
        text.push(b":");
        text.decimal(since_ms);
        Self::from_text(text.as_str())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The readable part, if this is a token that Clinch made.
    pub fn owner(&self) -> Option<Owner> {
        let (random, owner) = self.0.split_once('@')?;
        if random.len() != RANDOM_DIGITS || !random.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut fields = owner.split(':');
        let host = unescape(fields.next()?)?;
        let pid = fields.next()?.parse().ok()?;
        let label = fields.next().and_then(unescape).filter(|label| !label.is_empty());
        let task = fields.next().and_then(|task| task.parse().ok());
        let since = fields.next().and_then(|ms| ms.parse().ok()).and_then(|ms| {
            // A hostile value may hold any number; a sum out of range is just "not known".
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
        });
        Some(Owner { host, pid, label, task, since })
    }
}

/// The text of a token while it is made: most fit on the stack.
struct Text {
    short: [u8; 128],
    len: usize,
    /// All of it, once it is longer.
    long: Vec<u8>,
}

impl Default for Text {
    fn default() -> Self {
        Self { short: [0; 128], len: 0, long: Vec::new() }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl Text {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        match self.short.get_mut(self.len..self.len + bytes.len()) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            _ => self.push_long(bytes),
        }
    }

    #[cold]
    fn push_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    fn hex(&mut self, number: u128) {
        let mut digits = [0; RANDOM_DIGITS];
        for (byte, digits) in number.to_be_bytes().into_iter().zip(digits.chunks_exact_mut(2)) {
            digits.copy_from_slice(&hex::digits(byte));
        }
        self.push(&digits);
    }

    #[expect(clippy::cast_possible_truncation, reason = "what is cut is below a hundred")]
    fn decimal(&mut self, mut number: u64) {
        let (mut digits, mut first) = ([0; 20], 20);
        while number >= 100 {
            first -= 2;
            let two = (number % 100) as u8;
            number /= 100;
            digits[first] = b'0' + two / 10;
            digits[first + 1] = b'0' + two % 10;
        }
        if number >= 10 {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        first -= 1;
        digits[first] = b'0' + number as u8;
        self.push(&digits[first..]);
    }

    fn as_str(&self) -> &str {
        let bytes = if self.long.is_empty() { &self.short[..self.len] } else { &self.long };
        // It is made of nothing but texts.
        str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner() {
            Some(owner) => write!(f, "Token(…@{owner})"),
            None => f.write_str("Token(…)"),
        }
    }
}

/// Who made an attempt, for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Owner {
    /// The machine.
    pub host: String,
    /// The process on it.
    pub pid: u32,
    /// What the caller calls itself.
    pub label: Option<String>,
    /// The tokio task that asked, by its number inside that process.
    pub task: Option<u64>,
    /// When it asked, by that machine's wall clock. For people only; no decision rests on it.
    pub since: Option<SystemTime>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.pid)?;
        if let Some(task) = self.task {
            write!(f, " task {task}")?;
        }
        match &self.label {
            Some(label) => write!(f, " ({label})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn owner_is_read_back() {
        let token = Token::from_text(format!("{RANDOM}@web%3A1:77:nightly%20job:5:1700000000123"));
        let owner = token.owner().unwrap();
        assert_eq!((owner.host.as_str(), owner.pid, owner.task), ("web:1", 77, Some(5)));
        assert_eq!(owner.label.as_deref(), Some("nightly job"));
        assert_eq!(owner.since, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)));
        assert_eq!(owner.to_string(), "web:1:77 task 5 (nightly job)");
    }

    #[test]
    fn what_is_made_is_read_back() {
        for (since, label) in
            [(0, ""), (9, "a"), (10, "nightly job"), (u64::MAX >> 11, "ü:%{}"), (1, &"long ".repeat(12))]
        {
            let token = Token::made(0x0123_4567_89ab_cdef << 40, "web%3A1:77:", label, None, since);
            assert!(
                token.as_str().starts_with("0000000123456789abcdef0000000000@web%3A1:77:"),
                "{}",
                token.as_str()
            );
            let owner = token.owner().unwrap();
            assert_eq!((owner.host.as_str(), owner.pid, owner.task), ("web:1", 77, None));
            assert_eq!(owner.label.as_deref().unwrap_or_default(), label);
            assert_eq!(owner.since, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(since)));
        }
    }

    #[test]
    fn foreign_values_have_no_owner_and_never_panic() {
        for text in
            ["", "abc", "@", "@h:1:", &format!("{RANDOM}@"), &format!("{RANDOM}@h:x:"), "uuid-1:2@h:1:"]
        {
            assert_eq!(Token::from_text(text).owner(), None, "{text}");
        }
        let odd = Token::from_text(format!("{RANDOM}@h:1:%zz:?:{}", u64::MAX));
        assert_eq!(odd.owner().map(|o| (o.label, o.task)), Some((None, None)));
    }

    #[test]
    fn debug_hides_the_secret() {
        let token = Token::from_text(format!("{RANDOM}@h:1:"));
        assert_eq!(format!("{token:?}"), "Token(…@h:1)");
        assert_eq!(format!("{:?}", Token::from_text("secret")), "Token(…)");
    }
}
