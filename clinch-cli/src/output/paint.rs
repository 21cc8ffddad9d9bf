//! The few colours there are.

/// What a text stands out by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Paint {
    /// The text, in this colour.
    pub(crate) fn on(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
