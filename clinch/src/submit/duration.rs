//! Times as people write them in configuration: `"5s"`, `"1m 30s"`, `"250ms"`.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

const ACCEPTED: &str = "a time with its unit, such as \"250ms\", \"5s\" or \"1m 30s\"";

struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ACCEPTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text)
            .map_err(|error| E::custom(format!("`{text}` is no time ({error}); accepted is {ACCEPTED}")))
    }
}

pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*time))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Text)
}
