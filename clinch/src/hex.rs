//! Bytes as hex digits, without the detour of formatting: keys, tokens and fingerprints are made for every attempt.

/// The two digits of a byte, in lower case.
pub(crate) const fn digits(byte: u8) -> [u8; 2] {
    [digit(byte >> 4), digit(byte & 15)]
}

/// Without a table, so that many are made at a time.
const fn digit(four_bits: u8) -> u8 {
    four_bits + if four_bits < 10 { b'0' } else { b'a' - 10 }
}
