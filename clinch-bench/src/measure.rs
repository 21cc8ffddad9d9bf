//! What is measured, and how samples become figures.

use std::collections::BTreeMap;
use std::time::Duration;

use clinch_testkit::server::RedisServer;
use rustix::time::{ClockId, clock_gettime};

/// One round of one contender.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    pub(crate) took: Duration,
    /// Figures beyond the rate, by name; medians of them are shown.
    pub(crate) figures: BTreeMap<&'static str, f64>,
    /// Times whose percentiles are taken over all rounds together, by name.
    pub(crate) times: BTreeMap<&'static str, Vec<Duration>>,
    /// What went wrong, if something did that must not.
    pub(crate) wrong: Vec<String>,
}

impl Sample {
    pub(crate) fn new(operations: u64, took: Duration) -> Self {
        Self { operations, took, ..Self::default() }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}

/// CPU seconds that the server and this process have used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) server: f64,
    pub(crate) client: f64,
}

impl Cpu {
    pub(crate) fn now(server: &RedisServer) -> Self {
        let info = server.info("cpu");
        let seconds = |name| info.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        Self { server: seconds("used_cpu_user") + seconds("used_cpu_sys"), client: client_cpu() }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { server: self.server - before.server, client: self.client - before.client }
    }
}

/// CPU seconds of this process, all threads.
pub(crate) fn client_cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}

/// The middle one, and the least and the most.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else { return Self::default() };
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) };
        Self { least, median, most }
    }
}

/// The percentile of times, in milliseconds.
pub(crate) fn percentile(times: &mut [Duration], percent: f64) -> f64 {
    if times.is_empty() {
        return 0.0;
    }
    times.sort_unstable();
    let place = (times.len() - 1) as f64 * percent / 100.0;
    times[place.round() as usize].as_secs_f64() * 1e3
}
