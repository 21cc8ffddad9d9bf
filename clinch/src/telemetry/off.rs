//! The interface without the feature `metrics`: nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::words::{Attempted, Lost, Released, Renewed};
use crate::store::Store;

/// Whether anything is.
pub(crate) const MEASURES: bool = false;

/// Nobody looks.
pub(crate) const LOOK_EVERY: Option<Duration> = None;

pub(crate) fn measured(store: Arc<dyn Store>, _: Duration) -> Arc<dyn Store> {
    store
}

#[derive(Debug, Default)]
pub(crate) struct Telemetry(());

impl Telemetry {
    pub(crate) const fn meter(&self, _: &str) -> Meter {
        Meter
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Meter;

impl Meter {
    pub(crate) const fn guard(&self) -> Option<&str> {
        None
    }

    pub(crate) const fn attempted(&self, _: Attempted, _: Instant) {}

    pub(crate) const fn attempted_at_once(&self, _: Attempted) {}

    pub(crate) const fn waiting(&self) -> Waiting {
        Waiting
    }

    pub(crate) const fn released(&self, _: Released) {}

    pub(crate) const fn renewed(&self, _: Renewed) {}

    pub(crate) const fn lost(&self, _: Lost) {}

    pub(crate) const fn leaked(&self) {}

    pub(crate) const fn wakeup_missed(&self) {}

    pub(crate) const fn request(&self) {}

    pub(crate) const fn duplicate(&self) {}

    pub(crate) const fn shadowed(&self) {}

    pub(crate) const fn replayed(&self) {}

    pub(crate) const fn late_release(&self) {}

    pub(crate) const fn visit(&self, _: Stopwatch) -> Visit {
        Visit
    }
}

#[derive(Debug)]
pub(crate) struct Waiting;

#[derive(Debug)]
pub(crate) struct Hold;

/// What is measured of a guard while it has a lease.
#[derive(Debug, Default)]
pub(crate) struct Measured(());

impl Measured {
    pub(crate) const fn of(_: Meter) -> Self {
        Self(())
    }

    pub(crate) const fn take(&mut self) -> Option<(Meter, Hold)> {
        Some((Meter, Hold))
    }
}

impl Hold {
    pub(crate) const fn ends(self, _: Duration, _: Duration) {}
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch;

impl Stopwatch {
    pub(crate) const fn start() -> Self {
        Self
    }
}

#[derive(Debug)]
pub(crate) struct Visit;

impl Visit {
    pub(crate) const fn meter(&self) -> &Meter {
        &Meter
    }

    pub(crate) const fn begins(&mut self, _: Stopwatch) {}

    pub(crate) const fn admitted(&mut self) {}

    pub(crate) const fn done(&mut self) {}
}

#[derive(Debug, Default)]
pub(crate) struct BreakerGauge;

impl BreakerGauge {
    pub(crate) const fn set(&self, _: bool) {}
}
