//! The console's token: made at the start, or configured.

use std::fmt;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::super::problem::Problem;

/// The fewest characters of a configured token.
pub(in crate::serve) const LEAST_LENGTH: usize = 16;

/// What a request has to show. Compared by its hash and in constant time, so that nothing is learnt from how long it takes.
#[derive(Clone)]
pub(in crate::serve) struct AccessToken {
    hash: blake3::Hash,
    /// For requests to ourselves.
    header: HeaderValue,
    /// Known to nobody yet.
    is_new: bool,
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

impl AccessToken {
    /// A new one: 128 random bits.
    pub(in crate::serve) fn random() -> Self {
        let text = format!("{:032x}", rand::random::<u128>());
        // Hexadecimal digits are always a header.
        let header = HeaderValue::try_from(format!("Bearer {text}"));
        let header = header.unwrap_or_else(|_| HeaderValue::from_static(""));
        Self::made(&text, header, true)
    }

    /// One that was configured.
    pub(in crate::serve) fn configured(text: &str) -> Result<Self, String> {
        let odd = |c: char| !c.is_ascii_graphic();
        let header = HeaderValue::try_from(format!("Bearer {text}"));
        match header {
            Ok(header) if text.len() >= LEAST_LENGTH && !text.contains(odd) => {
                Ok(Self::made(text, header, false))
            }
            _ => Err(format!(
                "the console's token cannot be used; accepted is at least {LEAST_LENGTH} printable ASCII characters without blanks"
            )),
        }
    }

    fn made(text: &str, mut header: HeaderValue, is_new: bool) -> Self {
        header.set_sensitive(true);
        Self { hash: blake3::hash(text.as_bytes()), header, is_new }
    }

    /// The token itself, if nobody can know it yet.
    pub(in crate::serve) fn to_print(&self) -> Option<&str> {
        self.header.to_str().ok().filter(|_| self.is_new)?.strip_prefix("Bearer ")
    }

    /// As a header of a request to ourselves.
    pub(in crate::serve) const fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Whether the request shows it.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let refused = |kind, detail| Err(Problem::new(StatusCode::UNAUTHORIZED, kind, detail));
        let Some(shown) = headers.get(header::AUTHORIZATION) else {
            return refused(
                "token-required",
                "this needs the console's token: `Authorization: Bearer <token>`",
            );
        };
        let bytes = shown.as_bytes();
        let shown = match bytes.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest,
            _ => &[],
        };
        // blake3's comparison takes the same time wherever the two differ.
        if blake3::hash(shown.trim_ascii()) == self.hash {
            return Ok(());
        }
        refused(
            "token-refused",
            "this is not the console's token; it was printed when `clinch serve` started, or is configured",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn only_the_token_itself_opens() {
        let token = AccessToken::configured("a-long-enough-token").unwrap();
        assert!(token.is_shown(&shown("Bearer a-long-enough-token")).is_ok());
        assert!(token.is_shown(&shown("bearer  a-long-enough-token")).is_ok());
        for value in [
            "",
            "Bearer ",
            "Bearer",
            "a-long-enough-token",
            "Bearer a-long-enough-toke",
            "Basic a-long-enough-token",
        ] {
            assert!(token.is_shown(&shown(value)).is_err(), "{value}");
        }
        assert!(token.is_shown(&HeaderMap::new()).is_err());
    }

    #[test]
    fn two_new_ones_differ_and_hide() {
        let (one, other) = (AccessToken::random(), AccessToken::random());
        let text = one.to_print().unwrap();
        assert_eq!(text.len(), 32);
        assert_ne!(Some(text), other.to_print());
        assert!(!format!("{one:?} {:?}", one.header()).contains(text));
    }

    #[test]
    fn a_configured_one_is_never_printed_and_never_weak() {
        assert_eq!(AccessToken::configured("a-long-enough-token").unwrap().to_print(), None);
        for text in
            ["", "short", "with a blank in it, long", "not-ascii-ähhhhhhhhhhhhh", "line\nbreak-long-enough"]
        {
            let problem = AccessToken::configured(text).unwrap_err();
            assert!(text.is_empty() || !problem.contains(text), "{problem}");
        }
    }
}
