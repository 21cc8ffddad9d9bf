//! Tokens: who an attempt is, unguessably.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use once_cell::race::OnceBox;
use tokio::task;

use super::maker::Maker;
use crate::hex;
use crate::key::escape::{Escaped, unescape};

/// The identity of one attempt: 128 random bits, then a readable owner.
///
/// The whole text is the token, and the whole text is what an engine stores and compares. Whoever has it can release
/// the lease, so its `Debug` hides the random part, and there is no `Display`.
///
/// Its form is `<32 hex digits>@<host>:<pid>:<label>`, optionally followed by `:<task>:<since>` (a task number or
/// nothing, and milliseconds since 1970 by the owner's wall clock; both only for people to read).
#[derive(Clone)]
pub struct Token(Form);

#[derive(Clone)]
enum Form {
    Text(Arc<str>),
    /// What the text is made of. An engine in this process needs no text.
    Numbers(Numbers),
}

struct Numbers {
    /// As two, which need not be aligned as one.
    random: [u64; 2],
    maker: &'static Maker,
    task: Option<task::Id>,
    since_ms: u64,
    /// Made by the first who reads it.
    text: OnceBox<Box<str>>,
}

impl Clone for Numbers {
    fn clone(&self) -> Self {
        Self { text: OnceBox::new(), ..*self }
    }
}

impl Numbers {
    fn as_str(&self) -> &str {
        let made = || {
            let random = u128::from(self.random[0]) << 64 | u128::from(self.random[1]);
            let text = Text::of(random, self.maker.as_str(), "", self.task, self.since_ms);
            Box::new(text.as_str().into())
        };
        self.text.get_or_init(made)
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self.random == other.random
            && std::ptr::eq(self.maker, other.maker)
            && (self.task, self.since_ms) == (other.task, other.since_ms)
    }
}

/// Two are the same if their texts are, however they came about.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Numbers(one), Form::Numbers(other)) => one == other,
            _ => self.as_str() == other.as_str(),
        }
    }
}

impl Eq for Token {}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Random part of a token: 16 bytes as hex digits.
const RANDOM_DIGITS: usize = 32;

impl Token {
    /// Takes a token's whole text, as a store reads it back.
    ///
    /// Managers make new ones themselves; a token that is made any other way is only as strong as its maker.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(Form::Text(text.into()))
    }

    /// A new one.
    pub(crate) fn made(
        random: u128,
        maker: &'static Maker,
        label: &str,
        task: Option<task::Id>,
        since_ms: u64,
    ) -> Self {
        Self::from_text(Text::of(random, maker.as_str(), label, task, since_ms).as_str())
    }

    /// The same for an engine that compares tokens without reading them: its text is made only if somebody asks for it.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
    pub(crate) fn unwritten(
        random: u128,
        maker: &'static Maker,
        task: Option<task::Id>,
        since_ms: u64,
    ) -> Self {
        let random = [(random >> 64) as u64, random as u64];
        Self(Form::Numbers(Numbers { random, maker, task, since_ms, text: OnceBox::new() }))
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Text(text) => text,
            Form::Numbers(numbers) => numbers.as_str(),
        }
    }

    /// The readable part, if this is a token that Clinch made.
    pub fn owner(&self) -> Option<Owner> {
        let (random, owner) = self.as_str().split_once('@')?;
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
    /// By hand, because there is one for every attempt, and formatting it takes longer than all else that is done for one.
    fn of(random: u128, owner: &str, label: &str, task: Option<task::Id>, since_ms: u64) -> Self {
        let mut text = Self::default();
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
        text
    }

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
    use std::hash::BuildHasher;

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
            let maker = Maker::named("web%3A1:77:".to_owned());
            let token = Token::made(0x0123_4567_89ab_cdef << 40, maker, label, None, since);
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

    /// Whether its text was made or not, a token is the same to everybody who has it.
    #[test]
    fn a_token_without_text_is_the_one_with_it() {
        let maker = Maker::named("web:1:".to_owned());
        assert!(std::ptr::eq(maker, Maker::named("web:1:".to_owned())));
        let (one, other) =
            (Token::unwritten(7 << 64 | 9, maker, None, 1), Token::unwritten(8, maker, None, 1));
        let written = Token::made(7 << 64 | 9, maker, "", None, 1);
        assert_eq!(one.clone(), one);
        assert_ne!(one, other);
        assert_eq!(one, written);
        assert_eq!(written, one);
        assert_eq!(one.as_str(), written.as_str());
        assert_eq!(one.cmp(&written), Ordering::Equal);
        assert_eq!(one.cmp(&other), one.as_str().cmp(other.as_str()));
        let hash = |token: &Token| {
            std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(token)
        };
        assert_eq!(hash(&one), hash(&written));
        assert_eq!(format!("{:?}", Token::unwritten(7, maker, None, 1)), "Token(…@web:1)");
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
