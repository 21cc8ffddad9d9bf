//! What became of those who came to a guard, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::telemetry::Meter;

/// What became of those who came to the guards of a service since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GuardCounts {
    /// Who came to a guard that is enabled.
    pub requests: u64,
    /// Who was let in by the engine.
    pub admitted: u64,
    /// Who was refused as a duplicate.
    pub duplicates: u64,
    /// Who was refused because somebody else had the lock.
    pub denied_by_lock: u64,
    /// Who was refused because all permits were taken.
    pub denied_by_limit: u64,
    /// Who was refused because the engine failed.
    pub engine_failures: u64,
    /// Who ran unprotected because the engine failed ([`Strategy::Proceed`](crate::Strategy::Proceed)).
    pub unprotected: u64,
    /// Who would have been refused, and was let through because of shadow mode.
    pub shadowed: u64,
    /// Who was answered with a stored result.
    pub replayed: u64,
    /// Releases that were not answered in time, or failed. They go on in the background.
    pub late_releases: u64,
}

/// One kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Request,
    Admitted,
    Duplicate,
    DeniedByLock,
    DeniedByLimit,
    EngineFailure,
    Unprotected,
    Shadowed,
    Replayed,
    LateRelease,
}

/// Threads that count at the same time must not write to the same place, so there are several; each thread has one of them.
#[derive(Debug)]
pub(crate) struct Counts([Arc<Stripe>; STRIPES]);

const STRIPES: usize = 8;

/// What some of the threads counted. On cache lines of its own, with the number of those who have it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Stripe([AtomicU64; 10]);

impl Default for Counts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Arc::default()))
    }
}

impl Stripe {
    /// Counts it here, and by the meter of its guard. What became of attempts is counted by the meter where it happens, in the
    /// manager.
    pub(crate) fn count(&self, event: Event, meter: &Meter) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Request => meter.request(),
            Event::Duplicate => meter.duplicate(),
            Event::Shadowed => meter.shadowed(),
            Event::Replayed => meter.replayed(),
            Event::LateRelease => meter.late_release(),
            Event::Admitted
            | Event::DeniedByLock
            | Event::DeniedByLimit
            | Event::EngineFailure
            | Event::Unprotected => {}
        }
    }
}

impl Counts {
    /// Where this thread counts.
    pub(crate) fn here(&self) -> &Arc<Stripe> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static HERE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
        }
        // A thread that is ending counts anywhere.
        &self.0[HERE.try_with(|here| *here).unwrap_or_default()]
    }

    pub(crate) fn snapshot(&self) -> GuardCounts {
        let of = |event: Event| -> u64 {
            self.0.iter().map(|stripe| stripe.0[event as usize].load(Ordering::Relaxed)).sum()
        };
        GuardCounts {
            requests: of(Event::Request),
            admitted: of(Event::Admitted),
            duplicates: of(Event::Duplicate),
            denied_by_lock: of(Event::DeniedByLock),
            denied_by_limit: of(Event::DeniedByLimit),
            engine_failures: of(Event::EngineFailure),
            unprotected: of(Event::Unprotected),
            shadowed: of(Event::Shadowed),
            replayed: of(Event::Replayed),
            late_releases: of(Event::LateRelease),
        }
    }
}
