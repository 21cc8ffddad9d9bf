//! Single values: what was typed becomes what is meant, or a sentence that says what is accepted.

use std::time::Duration;

use clinch::{Key, KeyError, LockOptions};
use humantime::format_duration;

const TTL: [Duration; 2] = [LockOptions::MIN_TTL, LockOptions::MAX_TTL];
const WAIT: [Duration; 2] = [Duration::ZERO, LockOptions::MAX_WAIT];
pub(super) const LABEL_BYTES: usize = LockOptions::MAX_LABEL_BYTES;

pub(super) fn key(text: &str) -> Result<Key, KeyError> {
    Key::new(text)
}

pub(super) fn label(text: &str) -> Result<String, String> {
    if text.len() > LABEL_BYTES || text.contains(char::is_control) {
        return Err(format!("accepted is at most {LABEL_BYTES} bytes without control characters"));
    }
    Ok(text.to_owned())
}

pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    duration_in(text, TTL)
}

pub(super) fn wait(text: &str) -> Result<Duration, String> {
    duration_in(text, WAIT)
}

pub(super) fn duration_in(text: &str, [least, most]: [Duration; 2]) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < least || duration > most {
        return Err(format!("accepted is {} to {}", format_duration(least), format_duration(most)));
    }
    Ok(duration)
}
