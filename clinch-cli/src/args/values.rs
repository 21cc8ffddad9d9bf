//! Single values: what was typed becomes what is meant, or a sentence that says what is accepted.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clinch::{Key, KeyError, LockOptions};
use humantime::format_duration;

const TTL: [Duration; 2] = [LockOptions::MIN_TTL, LockOptions::MAX_TTL];
const WAIT: [Duration; 2] = [Duration::ZERO, LockOptions::MAX_WAIT];
const GRACE: [Duration; 2] = [Duration::ZERO, LockOptions::MAX_TTL];
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

pub(super) fn grace(text: &str) -> Result<Duration, String> {
    duration_in(text, GRACE)
}

pub(super) fn duration_in(text: &str, [least, most]: [Duration; 2]) -> Result<Duration, String> {
    let range = || format!("{} to {}", shown(least), shown(most));
    match humantime::parse_duration(text) {
        Ok(duration) if (least..=most).contains(&duration) => Ok(duration),
        Ok(_) => Err(format!("accepted is {}", range())),
        Err(_) => {
            Err(format!("accepted is a time with its unit, such as 500ms, 10s or 2m, from {}", range()))
        }
    }
}

/// A bound as people say it: 24 hours, and so many days, rather than a day, and a year and some hours.
fn shown(bound: Duration) -> String {
    const HOUR: u64 = 3600;
    let seconds = bound.as_secs();
    match seconds / HOUR {
        0 => format_duration(bound).to_string(),
        hours @ 1..=48 if seconds == hours * HOUR => format!("{hours}h"),
        hours if seconds == hours * HOUR && hours % 24 == 0 => format!("{}days", hours / 24),
        _ => format_duration(bound).to_string(),
    }
}

/// A whole number in a range.
pub(super) fn whole_in<N: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("accepted is a whole number from {} to {}", range.start(), range.end()))
}
