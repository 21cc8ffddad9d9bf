//! Queries and forms: `a=1&b=2`.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// The text with a blank for every `+`, as [`fields`] wants it. Once for all fields, so that none needs a copy for it.
pub(super) fn blanks(raw: &[u8]) -> Cow<'_, [u8]> {
    if raw.contains(&b'+') {
        raw.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()
    } else {
        raw.into()
    }
}

/// The fields in the order in which they stand, decoded to bytes: a lossy decoder would make one of `%FF` and `%FE`.
/// Empty pieces are left out.
pub(super) fn fields(raw: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    // Most have none, and then nothing need be decoded.
    let escapes = raw.contains(&b'%');
    raw.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()).map(move |piece| {
        let equals = piece.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&piece[..at], &piece[at + 1..]),
            None => (piece, &[][..]),
        };
        if escapes {
            (percent_decode(name).into(), percent_decode(value).into())
        } else {
            (name.into(), value.into())
        }
    })
}
