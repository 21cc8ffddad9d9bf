//! The fingerprint itself.

use std::fmt;
use std::ops::Deref;

use crate::hex::digits;

/// What a submission is known by: 256 bits that are the same exactly when the submissions are.
///
/// It is a plain hash without a secret: whoever sees it and guesses the submission can tell that the guess is right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// All of it, as 64 hex digits.
    pub fn to_hex(self) -> String {
        let digits = self.0.map(digits);
        // They are ASCII.
        str::from_utf8(digits.as_flattened()).unwrap_or_default().to_owned()
    }

    /// Its first 128 bits, as 32 hex digits: short enough for a key, long enough that nobody meets a collision by
    /// accident.
    pub fn short(self) -> String {
        str::to_owned(&Short::of(&self.0))
    }
}

/// 128 bits as 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short([[u8; 2]; 16]);

impl Short {
    /// The first 128 of these bits.
    pub(in crate::submit) fn of(bytes: &[u8; 32]) -> Self {
        Self(std::array::from_fn(|at| digits(bytes[at])))
    }
}

impl Deref for Short {
    type Target = str;

    fn deref(&self) -> &str {
        // They are ASCII.
        str::from_utf8(self.0.as_flattened()).unwrap_or_default()
    }
}

/// All of it, as 64 hex digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
