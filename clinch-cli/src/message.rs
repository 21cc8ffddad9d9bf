//! What clinch itself says: one line each, on stderr, `clinch: …`, without colours.

use std::io::{self, Write};

/// Says one line on stderr. Nobody listening is no reason to fail.
pub(crate) fn say(text: &str) {
    // In one write, so that it does not mix with what the command writes.
    let line = format!("clinch: {}\n", one_line(text));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Prints a text that was asked for.
pub(crate) fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Arguments and answers of servers may hold anything; in a log, a message is one line, and harmless.
fn one_line(text: &str) -> String {
    text.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_harmless_line() {
        assert_eq!(one_line("a\r\nb\x1b[31mc\n"), "a b [31mc");
    }
}
