//! The meters of guards: handles to the metrics of one guard name, made once and kept by the manager.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use super::names;
use super::resolved::Resolved;
use super::words::{Attempted, Lost, Released, Renewed};

/// Whether anything is measured.
pub(crate) const MEASURES: bool = true;

/// How often it is looked for guards that outlived their leases.
pub(crate) const LOOK_EVERY: Option<Duration> = Some(Duration::from_secs(1));

/// How many guard names are told apart in a process.
const MOST_NAMES: usize = 256;
/// What all others are called.
const OTHER: &str = "other";

/// The names that are told apart, in the whole process, because its recorder is the whole process's.
static NAMES: LazyLock<Mutex<HashSet<Arc<str>>>> = LazyLock::new(Mutex::default);

/// The name under which a guard is counted.
fn bounded(guard: &str) -> Arc<str> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(guard) {
        Some(name) => name.clone(),
        None if names.len() < MOST_NAMES => {
            let name: Arc<str> = guard.into();
            names.insert(name.clone());
            name
        }
        None => OTHER.into(),
    }
}

/// The meters of one manager's guards.
#[derive(Debug, Default)]
pub(crate) struct Telemetry(Resolved<RwLock<HashMap<Arc<str>, Meter>>>);

impl Telemetry {
    /// The meter of the guards of this name.
    pub(crate) fn meter(&self, guard: &str) -> Meter {
        let meters = self.0.get(|| {
            // So that it is there before it happens.
            gauge!(names::BREAKER_OPEN).increment(0.0);
            RwLock::default()
        });
        let known = meters.read().unwrap_or_else(PoisonError::into_inner).get(guard).cloned();
        known.unwrap_or_else(|| {
            let name = bounded(guard);
            let mut meters = meters.write().unwrap_or_else(PoisonError::into_inner);
            meters.entry(name.clone()).or_insert_with(|| Meter(Arc::new(Handles::new(name)))).clone()
        })
    }
}

/// The meter of the guards of one name. Clones are the same.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Handles>);

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.0.guard).finish()
    }
}

struct Handles {
    guard: Arc<str>,
    /// By outcome.
    attempts: Vec<Counter>,
    wait: Histogram,
    hold: Histogram,
    validity_left: Histogram,
    releases: Vec<Counter>,
    renewals: Vec<Counter>,
    lost: Vec<Counter>,
    leaked: Counter,
    wakeups_missed: Counter,
    held: Gauge,
    waiters: Gauge,
    requests: Counter,
    duplicates: Counter,
    shadowed: Counter,
    replays: Counter,
    late_releases: Counter,
    overhead: Histogram,
    guarded: Histogram,
}

impl Handles {
    fn new(guard: Arc<str>) -> Self {
        let name = || guard.clone();
        // All of them from the beginning: a rate needs a zero to rise from.
        let by = |metric: &'static str, label: &'static str, words: &[&'static str]| {
            words.iter().map(|word| counter!(metric, "guard" => name(), label => *word)).collect()
        };
        Self {
            attempts: by(names::ATTEMPTS, "outcome", Attempted::WORDS),
            wait: histogram!(names::WAIT_SECONDS, "guard" => name()),
            hold: histogram!(names::HOLD_SECONDS, "guard" => name()),
            validity_left: histogram!(names::VALIDITY_LEFT_RATIO, "guard" => name()),
            releases: by(names::RELEASES, "outcome", Released::WORDS),
            renewals: by(names::RENEWALS, "outcome", Renewed::WORDS),
            lost: by(names::LEASES_LOST, "cause", Lost::WORDS),
            leaked: counter!(names::GUARDS_LEAKED, "guard" => name()),
            wakeups_missed: counter!(names::WAKEUPS_MISSED, "guard" => name()),
            held: gauge!(names::GUARDS_HELD, "guard" => name()),
            waiters: gauge!(names::WAITERS, "guard" => name()),
            requests: counter!(names::REQUESTS, "guard" => name()),
            duplicates: counter!(names::DUPLICATES, "guard" => name()),
            shadowed: counter!(names::SHADOWED, "guard" => name()),
            replays: counter!(names::REPLAYS, "guard" => name()),
            late_releases: counter!(names::LATE_RELEASES, "guard" => name()),
            overhead: histogram!(names::GUARD_OVERHEAD_SECONDS, "guard" => name()),
            guarded: histogram!(names::GUARDED_REQUEST_SECONDS, "guard" => name()),
            guard,
        }
    }
}

impl Meter {
    /// The name under which it counts.
    pub(crate) fn guard(&self) -> Option<&str> {
        Some(&self.0.guard)
    }

    /// An attempt that began then has come to its outcome.
    /// The same of an attempt that ended in the moment in which it began.
    pub(crate) fn attempted_at_once(&self, outcome: Attempted) {
        self.attempted(outcome, Instant::now());
    }

    pub(crate) fn attempted(&self, outcome: Attempted, began: Instant) {
        self.0.attempts[outcome as usize].increment(1);
        self.0.wait.record(began.elapsed());
    }

    /// Somebody waits as long as what is returned is there.
    pub(crate) fn waiting(&self) -> Waiting {
        self.0.waiters.increment(1.0);
        Waiting(self.clone())
    }

    /// A guard is made.
    pub(crate) fn hold(&self) -> Hold {
        self.0.held.increment(1.0);
        Hold { meter: self.clone(), since: Instant::now() }
    }

    pub(crate) fn released(&self, outcome: Released) {
        self.0.releases[outcome as usize].increment(1);
    }

    pub(crate) fn renewed(&self, outcome: Renewed) {
        self.0.renewals[outcome as usize].increment(1);
    }

    pub(crate) fn lost(&self, cause: Lost) {
        self.0.lost[cause as usize].increment(1);
    }

    pub(crate) fn leaked(&self) {
        self.0.leaked.increment(1);
    }

    pub(crate) fn wakeup_missed(&self) {
        self.0.wakeups_missed.increment(1);
    }

    pub(crate) fn request(&self) {
        self.0.requests.increment(1);
    }

    pub(crate) fn duplicate(&self) {
        self.0.duplicates.increment(1);
    }

    pub(crate) fn shadowed(&self) {
        self.0.shadowed.increment(1);
    }

    pub(crate) fn replayed(&self) {
        self.0.replays.increment(1);
    }

    pub(crate) fn late_release(&self) {
        self.0.late_releases.increment(1);
    }

    /// A request comes to the guard.
    pub(crate) fn visit(&self, since: Stopwatch) -> Visit {
        Visit { meter: self.clone(), came: since.0, admitted: None, done: None }
    }
}

/// Somebody waits.
#[derive(Debug)]
pub(crate) struct Waiting(Meter);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiters.decrement(1.0);
    }
}

/// A guard that is alive.
#[derive(Debug)]
pub(crate) struct Hold {
    meter: Meter,
    since: Instant,
}

/// What is measured of a guard while it has a lease.
#[derive(Debug, Default)]
pub(crate) struct Measured(Option<(Meter, Hold)>);

impl Measured {
    pub(crate) fn of(meter: Meter) -> Self {
        let hold = meter.hold();
        Self(Some((meter, hold)))
    }

    pub(crate) const fn take(&mut self) -> Option<(Meter, Hold)> {
        self.0.take()
    }
}

impl Hold {
    /// It is given up, with so much of its TTL left.
    pub(crate) fn ends(self, left: Duration, ttl: Duration) {
        self.meter.0.validity_left.record(left.div_duration_f64(ttl).clamp(0.0, 1.0));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.meter.0.held.decrement(1.0);
        self.meter.0.hold.record(self.since.elapsed());
    }
}

/// When something began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

/// A request at a guard. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    meter: Meter,
    came: Instant,
    admitted: Option<Instant>,
    done: Option<Instant>,
}

impl Visit {
    pub(crate) const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// It began only then.
    pub(crate) const fn begins(&mut self, since: Stopwatch) {
        self.came = since.0;
    }

    /// Its work begins.
    pub(crate) fn admitted(&mut self) {
        self.admitted = Some(Instant::now());
    }

    /// Its work is done; what comes now is the guard's own.
    pub(crate) fn done(&mut self) {
        self.done = Some(Instant::now());
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let now = Instant::now();
        let whole = now - self.came;
        let work = self.admitted.map_or(Duration::ZERO, |admitted| self.done.unwrap_or(now) - admitted);
        self.meter.0.guarded.record(whole);
        self.meter.0.overhead.record(whole.saturating_sub(work));
    }
}

/// Whether a manager's engine is not asked now.
#[derive(Debug, Default)]
pub(crate) struct BreakerGauge(Mutex<Option<Gauge>>);

impl BreakerGauge {
    pub(crate) fn set(&self, open: bool) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gauge) = shown.take() {
            gauge.decrement(1.0);
        }
        if open {
            let gauge = gauge!(names::BREAKER_OPEN);
            gauge.increment(1.0);
            *shown = Some(gauge);
        }
    }
}

impl Drop for BreakerGauge {
    fn drop(&mut self) {
        self.set(false);
    }
}
