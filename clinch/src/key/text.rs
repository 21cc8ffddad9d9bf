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

impl Text {
    pub(super) fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match (u8::try_from(text.len()), bytes.get_mut(..text.len())) {
            (Ok(len), Some(room)) => {
                room.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(text.into()),
        }
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

    #[test]
    fn a_text_comes_back_as_it_was_and_is_equal_to_itself_alone() {
        let texts =
            ["a", "order:42", "order:4", "日本:注文", &"x".repeat(22), &"x".repeat(23), &"ü".repeat(11)];
        for one in texts {
            assert_eq!(Text::new(one).as_str(), one);
            for other in texts {
                assert_eq!(Text::new(one) == Text::new(other), one == other, "{one} {other}");
            }
        }
        assert_eq!(size_of::<Text>(), 24);
    }
}
