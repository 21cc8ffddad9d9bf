//! Addresses in the form that Redis clients take.

use std::fmt::Write as _;
use std::path::Path;

/// `scheme://user:password@host:port/db`.
pub(crate) fn tcp(
    scheme: &str,
    host: &str,
    port: u16,
    db: u32,
    user: Option<&str>,
    password: Option<&str>,
) -> String {
    let credentials = match (user, password) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", escaped(user.unwrap_or_default())),
        (user, Some(password)) => format!("{}:{}@", escaped(user.unwrap_or_default()), escaped(password)),
    };
    let db = if db == 0 { String::new() } else { db.to_string() };
    format!("{scheme}://{credentials}{host}:{port}/{db}")
}

/// `redis+unix:///path?pass=password`.
pub(crate) fn unix(socket: &Path, password: Option<&str>) -> String {
    let query = password.map(|password| format!("?pass={}", escaped(password))).unwrap_or_default();
    format!("redis+unix://{}{query}", socket.display())
}

/// Percent-encodes everything but the characters that never have a meaning in an address.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_escaped_and_left_out_when_absent() {
        assert_eq!(tcp("redis", "127.0.0.1", 1, 0, None, None), "redis://127.0.0.1:1/");
        assert_eq!(tcp("redis", "h", 1, 3, None, Some("a/b@c")), "redis://:a%2Fb%40c@h:1/3");
        assert_eq!(tcp("rediss", "h", 1, 0, Some("u"), Some("p")), "rediss://u:p@h:1/");
        assert_eq!(unix(Path::new("/d/s"), Some("p w")), "redis+unix:///d/s?pass=p%20w");
    }
}
