//! Times as people read them.

use std::time::{Duration, SystemTime};

/// A time span, to two units or three digits: `1h 5m`, `29.8s`, `340ms`, `870µs`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = |[(big, big_unit), (small, small_unit)]: [(u64, &str); 2]| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit} {small}{small_unit}"),
    };
    match seconds {
        0 if duration.as_millis() == 0 => format!("{}µs", duration.as_micros()),
        0 if duration.as_millis() < 10 => format!("{:.1}ms", duration.as_secs_f64() * 1000.0),
        0 => format!("{}ms", duration.as_millis()),
        // Cut, not rounded: 60.0s is no time that is left of a minute.
        1..60 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        60..3600 => units([(seconds / 60, "m"), (seconds % 60, "s")]),
        3600..86_400 => units([(seconds / 3600, "h"), (seconds % 3600 / 60, "m")]),
        _ => units([(seconds / 86_400, "d"), (seconds % 86_400 / 3600, "h")]),
    }
}

/// A point in time, in UTC: `2026-03-01T12:00:00Z`. One that lies outside of the years people use is only called so.
pub(crate) fn stamp(time: SystemTime) -> String {
    // The year 9999 is the last that the format has; beyond it, formatting fails.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    if (SystemTime::UNIX_EPOCH..=last).contains(&time) {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        "an impossible time".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (1, "1.0ms"),
            (340, "340ms"),
            (29_870, "29.8s"),
            (59_999, "59.9s"),
            (60_000, "1m"),
            (3_900_000, "1h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
        assert_eq!(span(Duration::from_micros(87)), "87µs");
    }

    #[test]
    fn stamps_never_fail() {
        assert_eq!(stamp(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00Z");
        let far = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(u64::MAX)).unwrap();
        assert_eq!(stamp(far), "an impossible time");
    }
}
