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
        hex(&self.0)
    }

    /// Its first 128 bits, as 32 hex digits: short enough for a key, long enough that nobody meets a collision by
    /// accident.
    pub fn short(self) -> String {
        hex(&self.0[..16])
    }
}

/// At most 32 bytes as hex digits.
pub(in crate::submit) fn hex(bytes: &[u8]) -> String {
    let mut digits = [0; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&crate::hex::digits(*byte));
    }
    let digits = &digits[..(2 * bytes.len()).min(64)];
    // They are ASCII.
    str::from_utf8(digits).unwrap_or_default().to_owned()
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
