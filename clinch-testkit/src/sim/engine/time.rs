//! The engine's own clock.

use std::time::Duration;

/// An instant by the engine's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineTime {
    micros: i128,
}

const MILLION: i128 = 1_000_000;

impl EngineTime {
    /// The instant at which everybody else's clock has run for so long, by a clock that is so many millionths faster.
    pub fn of(elapsed: Duration, drift_ppm: i64) -> Self {
        let micros = i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX / MILLION / 2);
        Self { micros: micros * (MILLION + i128::from(drift_ppm)) / MILLION }
    }

    /// The same instant by everybody else's clock.
    pub(in crate::sim) fn elapsed(self, drift_ppm: i64) -> Duration {
        let micros = self.micros * MILLION / (MILLION + i128::from(drift_ppm));
        Duration::from_micros(micros.try_into().unwrap_or_default())
    }

    /// The same instant by a clock that was set by so much.
    #[must_use]
    pub(in crate::sim) fn set_by(self, micros: i64) -> Self {
        Self { micros: self.micros + i128::from(micros) }
    }

    /// Microseconds since the clock began: what fences are made of.
    pub fn micros(self) -> u64 {
        self.micros.try_into().unwrap_or_default()
    }

    /// So much later, in whole milliseconds, as engines count.
    #[must_use]
    pub fn after(self, ttl: Duration) -> Self {
        let millis = i128::try_from(ttl.as_millis()).unwrap_or(i128::from(u64::MAX));
        Self { micros: self.micros + millis * 1000 }
    }

    /// So much earlier.
    #[must_use]
    pub(in crate::sim) fn before(self, time: Duration) -> Self {
        Self { micros: self.micros - i128::try_from(time.as_micros()).unwrap_or_default() }
    }

    /// How much later this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros((self.micros - earlier.micros).try_into().unwrap_or_default())
    }
}
