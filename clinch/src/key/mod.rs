//! What callers lock: a validated [`Key`], and [`KeyTemplate`]s that build keys from values.
//!
//! This module promises that a [`Key`] which exists is fit for every engine: it is not empty, not longer than
//! [`MAX_KEY_BYTES`], free of control characters, and its braces cannot disturb how Redis Cluster picks a slot.
//! It also promises that two different lists of values never make the same key from one template.

pub(crate) mod escape;
pub(crate) mod hash;
mod template;
mod text;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

pub use template::{KeyTemplate, TemplateError};
use text::{Short, Text};

/// The longest key in bytes, the engine's own prefix not counted.
pub const MAX_KEY_BYTES: usize = 512;

/// What the caller names: `order:42`.
///
/// A key is checked when it is made and cheap to clone. It may carry **one** complete, non-empty hash tag of its own
/// (`{user:1}:cart`), which on Redis Cluster decides the slot; any other brace is refused.
///
/// ```
/// use clinch::Key;
///
/// let key = Key::new("order:42")?;
/// assert_eq!(key.as_str(), "order:42");
/// assert!(Key::new("").is_err());
/// assert!(Key::new("order:{42").is_err());
/// # Ok::<(), clinch::KeyError>(())
/// ```
#[derive(Clone)]
pub struct Key {
    text: Text,
    /// Of the text, the same in this whole process.
    hash: u64,
}

impl Key {
    /// Checks `key` and takes it.
    ///
    /// # Errors
    /// [`KeyError`] if it is empty, longer than [`MAX_KEY_BYTES`], holds a control character, or holds a brace that is
    /// not part of one complete, non-empty hash tag.
    pub fn new(key: impl AsRef<str>) -> Result<Self, KeyError> {
        let key = key.as_ref();
        let Some(short) = Short::of(key) else {
            check(key)?;
            return Ok(Self { text: Text::long(key), hash: hash::of_long(key) });
        };
        if !short.is_plain() {
            check(key)?;
        }
        Ok(Self { hash: hash::of_short(short.len, &short.words), text: short.into() })
    }

    /// The key as it was written.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// Its hash in this process.
    pub(crate) const fn hashed(&self) -> u64 {
        self.hash
    }

    /// Whether the key carries a hash tag of its own.
    pub fn has_hash_tag(&self) -> bool {
        self.as_str().contains('{')
    }
}

/// The bytes of which keys are made that need no closer look: what can be seen of ASCII, but for braces.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b'{' | b'}');
        byte += 1;
    }
    plain
};

fn check(key: &str) -> Result<(), KeyError> {
    if key.is_empty() {
        return Err(KeyError::Empty);
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(KeyError::TooLong { bytes: key.len() });
    }
    // Most are of nothing else.
    if key.bytes().all(|byte| PLAIN[usize::from(byte)]) {
        return Ok(());
    }
    if let Some((at, character)) = key.char_indices().find(|(_, c)| c.is_control()) {
        return Err(KeyError::Control { at, code: character.into() });
    }
    check_braces(key)
}

/// Accepts no brace at all, or exactly one `{…}` with something in it.
fn check_braces(text: &str) -> Result<(), KeyError> {
    let mut braces = text.char_indices().filter(|(_, c)| matches!(c, '{' | '}'));
    match (braces.next(), braces.next(), braces.next()) {
        (None, ..) => Ok(()),
        (Some((open, '{')), Some((close, '}')), None) if close > open + 1 => Ok(()),
        (Some((_, '{')), Some((_, '}')), Some((at, _))) | (Some((at, _)), ..) => {
            Err(KeyError::StrayBrace { at })
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.as_str())
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is empty.
    #[error("the key is empty; give 1 to {MAX_KEY_BYTES} bytes")]
    Empty,
    /// The key is too long.
    #[error(
        "the key has {bytes} bytes; at most {MAX_KEY_BYTES} are allowed (hash long values before they enter a key)"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The key holds a control character.
    #[error(
        "the key holds the control character U+{code:04X} at byte {at}; control characters are not allowed"
    )]
    Control {
        /// The byte at which it stands.
        at: usize,
        /// Its code point.
        code: u32,
    },
    /// The key holds a brace that is not part of one complete, non-empty hash tag.
    #[error(
        "the key has a stray brace at byte {at}; either no brace, or exactly one non-empty `{{tag}}` is allowed \
         (values that may hold braces go through a KeyTemplate, which escapes them)"
    )]
    StrayBrace {
        /// The byte at which it stands.
        at: usize,
    },
    /// A template could not make a key.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// What the manager's methods take as a key: a [`Key`], or a text that is checked on the way in.
pub trait IntoKey {
    /// Makes the key.
    ///
    /// # Errors
    /// [`KeyError`] where the text is not a key.
    fn into_key(self) -> Result<Key, KeyError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self.clone())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

/// The result of a template, so that `manager.lock(template.key(…), …)` needs no `?` of its own.
impl IntoKey for Result<Key, KeyError> {
    fn into_key(self) -> Result<Key, KeyError> {
        self
    }
}

impl TryFrom<&str> for Key {
    type Error = KeyError;

    fn try_from(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl std::str::FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_keys_are_taken_as_written() {
        for text in ["order:42", "a", "日本:注文", "with blank", "{user:1}:cart", "cart:{user:1}"] {
            assert_eq!(Key::new(text).map(|k| k.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn bad_keys_are_refused_with_their_reason() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::new("x".repeat(513)), Err(KeyError::TooLong { bytes: 513 }));
        assert!(Key::new("x".repeat(512)).is_ok());
        assert_eq!(Key::new("a\nb"), Err(KeyError::Control { at: 1, code: 10 }));
        for (text, at) in
            [("a{b", 1), ("a}b", 1), ("{}", 0), ("{a}{b}", 3), ("{{a}}", 0), ("}a{", 0), ("{a}b}", 4)]
        {
            assert_eq!(Key::new(text), Err(KeyError::StrayBrace { at }), "{text}");
        }
    }
}
