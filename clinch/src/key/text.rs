//! The text of a key: a short one needs no memory of its own, and is copied without counting who has it.

use std::sync::Arc;

/// The most bytes that need no memory of their own.
const SHORT: usize = 22;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Text {
    /// Behind its end there is nothing but zeros, so that texts are equal where all of it is.
    Short {
        len: u8,
        bytes: [u8; SHORT],
    },
    Long(Arc<str>),
}

/// The bytes of a short text, some of them twice: with its length they say which text it is.
pub(super) type Words = [u64; 3];

/// Stands where a text has no more bytes: one that needs no closer look.
const FILLER: u8 = b'.';

/// A short text, as what is to be known of it for a key.
pub(super) struct Short {
    pub(super) len: u8,
    pub(super) words: Words,
    bytes: [u8; SHORT],
}

impl Short {
    /// If it is short, and not empty. It is read in few and large pieces, and never as what was just written.
    pub(super) fn of(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let len = u8::try_from(text.len()).ok()?;
        let mut bytes = [0; SHORT];
        let mut words = [u64::from_le_bytes([FILLER; 8]); 3];
        if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
            words[0] = u64::from_le_bytes(*first);
            words[1] = u64::from_le_bytes(*last);
            bytes[..8].copy_from_slice(first);
            if let Some(middle) = text[8..].first_chunk::<8>() {
                words[2] = u64::from_le_bytes(*middle);
                bytes[8..16].copy_from_slice(middle);
            }
            bytes.get_mut(text.len() - 8..text.len())?.copy_from_slice(last);
        } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            let (low, high) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            words[0] = u64::from(low) | u64::from(high) << 32;
            bytes[..4].copy_from_slice(first);
            bytes[text.len() - 4..text.len()].copy_from_slice(last);
        } else {
            let (first, middle, last) = (*text.first()?, text[text.len() / 2], *text.last()?);
            words[0] = u64::from_le_bytes([first, middle, last, FILLER, FILLER, FILLER, FILLER, FILLER]);
            bytes[0] = first;
            bytes[text.len() / 2] = middle;
            bytes[text.len() - 1] = last;
        }
        Some(Self { len, words, bytes })
    }

    /// Whether all of it can be seen, is ASCII, and no brace.
    pub(super) fn is_plain(&self) -> bool {
        self.words.iter().fold(0, |odd, word| odd | not_plain(*word)) == 0
    }
}

/// Something, if one of eight bytes is not plain. (Of these well-known tricks each finds out whether there is such a byte, by the
/// highest bits of bytes; which one it is they do not always tell.)
const fn not_plain(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHEST: u64 = ONES << 7;
    const fn all(byte: u8) -> u64 {
        ONES * byte as u64
    }
    const fn less_than(word: u64, byte: u8) -> u64 {
        word.wrapping_sub(all(byte)) & !word
    }
    let beyond_ascii = word;
    let delete = word.wrapping_add(ONES);
    let blank_or_control = less_than(word, b'!');
    let opening = less_than(word ^ all(b'{'), 1);
    let closing = less_than(word ^ all(b'}'), 1);
    (beyond_ascii | delete | blank_or_control | opening | closing) & HIGHEST
}

impl From<Short> for Text {
    fn from(short: Short) -> Self {
        Self::Short { len: short.len, bytes: short.bytes }
    }
}

impl Text {
    pub(super) fn long(text: &str) -> Self {
        Self::Long(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            // It was made of a text.
            Self::Short { len, bytes } => str::from_utf8(&bytes[..usize::from(*len)]).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Short::of(text).map_or_else(|| Text::long(text), Text::from)
    }

    #[test]
    fn a_text_comes_back_as_it_was_and_is_equal_to_itself_alone() {
        let lengths: Vec<_> =
            (1..=40).map(|len| "abcdefghijklmnopqrstuvwxyz".repeat(2)[..len].to_owned()).collect();
        let others = [
            "a",
            "b",
            "aa",
            "order:42",
            "order:4",
            "日本:注文",
            &"x".repeat(22),
            &"x".repeat(23),
            &"ü".repeat(11),
        ];
        let texts: Vec<_> = lengths.iter().map(String::as_str).chain(others).collect();
        for (at, one) in texts.iter().enumerate() {
            assert_eq!(text(one).as_str(), *one);
            for (other_at, other) in texts.iter().enumerate() {
                assert_eq!(text(one) == text(other), one == other, "{one} {other}");
                let (Some(short), Some(other_short)) = (Short::of(one), Short::of(other)) else { continue };
                let same = (short.len, short.words) == (other_short.len, other_short.words);
                assert_eq!(same, one == other, "{at} {other_at}");
            }
        }
        assert!(Short::of("").is_none());
        assert!(Short::of(&"x".repeat(22)).is_some() && Short::of(&"x".repeat(23)).is_none());
        assert_eq!(size_of::<Text>(), 24);
    }

    /// At every place of texts of every length.
    #[test]
    fn what_is_plain_is_found_out_by_the_word() {
        for len in 1..=SHORT {
            for place in 0..len {
                for byte in 0..=127_u8 {
                    let mut bytes = vec![b'a'; len];
                    bytes[place] = byte;
                    let plain = byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
                    let short = Short::of(str::from_utf8(&bytes).unwrap()).unwrap();
                    assert_eq!(short.is_plain(), plain, "{len} {place} {byte}");
                }
            }
        }
        assert!(!Short::of("é").unwrap().is_plain());
        assert!(!Short::of("order:é:42").unwrap().is_plain());
    }
}
