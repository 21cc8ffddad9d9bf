//! Origins: which page a request comes from.

use std::fmt;
use std::str::FromStr;

/// Scheme, name and port of a page, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct Origin {
    scheme: String,
    /// With the port, unless it is the scheme's own.
    host: String,
}

impl Origin {
    /// Whether a page of this origin came from this host. (We speak plain HTTP; a proxy in front of us may speak HTTPS.)
    pub(super) fn is_of(&self, host: &str) -> bool {
        let own = if self.scheme == "https" { ":443" } else { ":80" };
        let host = host.to_ascii_lowercase();
        matches!(self.scheme.as_str(), "http" | "https")
            && self.host == host.strip_suffix(own).unwrap_or(&host)
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let accepted =
            || format!("`{text}` is no origin; accepted is for instance https://clinch.example:8443");
        let text = text.to_ascii_lowercase();
        let (scheme, host) = text.split_once("://").ok_or_else(accepted)?;
        let own = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return Err(accepted()),
        };
        let odd = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '@' | '*');
        if host.is_empty() || host.contains(odd) {
            return Err(accepted());
        }
        let host = host.strip_suffix(own).unwrap_or(host);
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned() })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_page_or_not() {
        for (origin, host, same) in [
            ("http://localhost:4747", "localhost:4747", true),
            ("http://LOCALHOST:4747", "localhost:4747", true),
            ("https://clinch.example", "clinch.example:443", true),
            ("http://clinch.example:80", "clinch.example", true),
            ("http://localhost:3000", "localhost:4747", false),
            ("http://localhost", "localhost:4747", false),
            ("http://evil.example", "localhost:4747", false),
        ] {
            assert_eq!(origin.parse::<Origin>().unwrap().is_of(host), same, "{origin} {host}");
        }
    }

    #[test]
    fn what_is_no_origin() {
        for text in
            ["", "null", "*", "localhost:4747", "http://", "http://a/", "http://u@a", "file:///x", "ftp://a"]
        {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
