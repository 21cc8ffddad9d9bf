//! Tokens: who an attempt is, unguessably.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::key::escape::unescape;

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
