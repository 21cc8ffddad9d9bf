//! The fingerprint itself.

use std::fmt;

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
        self.to_string()
    }

    /// Its first 128 bits, as 32 hex digits: short enough for a key, long enough that nobody meets a collision by
    /// accident.
    pub fn short(self) -> String {
        let mut hex = self.to_hex();
        hex.truncate(32);
        hex
    }
}

/// All of it, as 64 hex digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
