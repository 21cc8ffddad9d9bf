//! Bytes as hex digits, without the detour of formatting: keys, tokens and fingerprints are made for every attempt.

/// The two digits of a byte, in lower case.
pub(crate) const fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}
