//! The last minutes, a point a second, for the console's charts. Reading some counters once a second costs next to nothing, so
//! it goes on also while nobody watches, and a console that is opened has something to show.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch::telemetry::{ATTEMPTS, ENGINE_CALL_SECONDS, HOLD_SECONDS};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::buckets::Counted;
use super::recorder::{Labels, Recorder};
use crate::serve::connections::{Phase, Phases};

const EVERY: Duration = Duration::from_secs(1);

/// How many points are kept: three minutes.
const KEPT: usize = 180;

/// Calls that carry leases. The console's own looking is not among them.
const CARRYING: [&str; 6] = ["acquire", "acquire_each", "renew", "renew_each", "release", "complete"];

/// What happened in one second: rates, and the mean time of a call to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(in crate::serve) struct Pulse {
    acquired: f64,
    duplicates: f64,
    denied: f64,
    /// `None` if there was no call.
    call_us: Option<f64>,
}

/// How long leases were held since the beginning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::serve) struct Hold {
    /// Upper bounds, in seconds.
    bounds: &'static [f64],
    /// One more than there are bounds.
    counts: Vec<u64>,
    mean_s: f64,
}

/// What had been counted at one moment.
#[derive(Debug)]
struct Totals {
    at: Instant,
    acquired: u64,
    duplicates: u64,
    denied: u64,
    calls: Counted,
}

/// The last minutes.
#[derive(Debug)]
pub(in crate::serve) struct Pulses {
    recorder: Arc<Recorder>,
    history: Mutex<VecDeque<Pulse>>,
    /// Fires with every point.
    last: watch::Sender<Option<Pulse>>,
}

impl Pulses {
    pub(in crate::serve) fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, history: Mutex::default(), last: watch::Sender::new(None) }
    }

    /// Every point from now on. Whoever is too slow for one gets the next.
    pub(in crate::serve) fn watch(&self) -> watch::Receiver<Option<Pulse>> {
        self.last.subscribe()
    }

    /// The points so far, the oldest first.
    pub(in crate::serve) fn history(&self) -> Vec<Pulse> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// How long leases were held.
    pub(in crate::serve) fn hold(&self) -> Hold {
        let counted = self.recorder.counted(HOLD_SECONDS, |_| true);
        let mean_s = mean(&counted).unwrap_or(0.0);
        Hold { bounds: counted.bounds, counts: counted.counts, mean_s }
    }

    /// Measures, until the server drains.
    pub(in crate::serve) async fn run(&self, mut phases: Phases) {
        let measuring = async {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            let mut before = self.totals();
            loop {
                ticks.tick().await;
                let now = self.totals();
                self.note(pulse(&before, &now));
                before = now;
            }
        };
        tokio::select! {
            biased;
            () = phases.reached(Phase::Draining) => {}
            () = measuring => {}
        }
    }

    fn note(&self, pulse: Pulse) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == KEPT {
            history.pop_front();
        }
        history.push_back(pulse);
        drop(history);
        self.last.send_replace(Some(pulse));
    }

    fn totals(&self) -> Totals {
        let attempts =
            |outcomes: &[&str]| self.recorder.sum(ATTEMPTS, |labels| is(labels, "outcome", outcomes));
        Totals {
            at: Instant::now(),
            acquired: attempts(&["acquired"]),
            duplicates: attempts(&["duplicate"]),
            denied: attempts(&["denied_by_lock", "denied_by_limit"]),
            calls: self.recorder.counted(ENGINE_CALL_SECONDS, |labels| is(labels, "operation", &CARRYING)),
        }
    }
}

fn is(labels: &Labels, name: &str, values: &[&str]) -> bool {
    labels.iter().any(|(label, value)| label == name && values.contains(&value.as_str()))
}

#[expect(clippy::cast_precision_loss, reason = "for charts")]
fn pulse(before: &Totals, now: &Totals) -> Pulse {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let calls = now.calls.total().saturating_sub(before.calls.total());
    let took = (now.calls.sum - before.calls.sum).max(0.0);
    Pulse {
        acquired: rate(before.acquired, now.acquired),
        duplicates: rate(before.duplicates, now.duplicates),
        denied: rate(before.denied, now.denied),
        call_us: (calls > 0).then(|| took / calls as f64 * 1e6),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for charts")]
fn mean(counted: &Counted) -> Option<f64> {
    let total = counted.total();
    (total > 0).then(|| counted.sum / total as f64)
}

#[cfg(test)]
mod tests {
    use metrics::{counter, histogram, with_local_recorder};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rates_are_of_the_last_second_and_calls_without_those_that_only_look() {
        let recorder = Arc::new(Recorder::default());
        let pulses = Pulses::new(recorder.clone());
        let before = pulses.totals();
        tokio::time::advance(Duration::from_secs(2)).await;
        with_local_recorder(&recorder, || {
            counter!(ATTEMPTS, "guard" => "a", "outcome" => "acquired").increment(4);
            counter!(ATTEMPTS, "guard" => "b", "outcome" => "acquired").increment(2);
            counter!(ATTEMPTS, "guard" => "a", "outcome" => "duplicate").increment(10);
            counter!(ATTEMPTS, "guard" => "a", "outcome" => "denied_by_limit").increment(1);
            histogram!(ENGINE_CALL_SECONDS, "operation" => "acquire").record(0.002);
            histogram!(ENGINE_CALL_SECONDS, "operation" => "list").record(5.0);
            histogram!(HOLD_SECONDS, "guard" => "a").record(1.5);
        });
        let pulse = pulse(&before, &pulses.totals());
        assert_eq!((pulse.acquired, pulse.duplicates, pulse.denied), (3.0, 5.0, 0.5));
        assert!((pulse.call_us.unwrap() - 2000.0).abs() < 1e-6);
        let hold = pulses.hold();
        assert_eq!((hold.counts.iter().sum::<u64>(), hold.mean_s), (1, 1.5));
    }

    #[test]
    fn the_past_is_bounded() {
        let pulses = Pulses::new(Arc::default());
        for _ in 0..KEPT + 5 {
            pulses.note(Pulse { acquired: 1.0, duplicates: 0.0, denied: 0.0, call_us: None });
        }
        assert_eq!(pulses.history().len(), KEPT);
    }
}
