//! Where a manager gets what is different every time: random numbers, the wall clock, task numbers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::clock;
use crate::sync::{Mutex, PoisonError};

/// Everything by which two runs of a manager could differ, apart from time itself, which is tokio's.
///
/// [`Sources::system`] is what production uses. [`Sources::seeded`] makes a manager on a paused clock repeat itself
/// exactly, which is what simulations need; never use it elsewhere, because its tokens can be predicted.
#[derive(Debug, Clone)]
pub struct Sources(Kind);

#[derive(Debug, Clone)]
enum Kind {
    System,
    Seeded(Arc<Mutex<StdRng>>),
}

impl Sources {
    /// The thread's cryptographically secure generator, seeded by the operating system; the system's wall clock;
    /// tokio's task numbers.
    pub const fn system() -> Self {
        Self(Kind::System)
    }

    /// A generator with this seed, a wall clock that stands still, no boot clock, no task numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(Kind::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))))
    }

    /// 128 random bits.
    pub(super) fn random_u128(&self) -> u128 {
        match &self.0 {
            Kind::System => rand::rng().random(),
            Kind::Seeded(rng) => rng.lock().unwrap_or_else(PoisonError::into_inner).random(),
        }
    }

    /// `base` times a random factor between 1 and 1.5.
    pub(super) fn jittered(&self, base: Duration) -> Duration {
        let draw = |rng: &mut dyn Rng| rng.random_range(0.0..0.5);
        let more = match &self.0 {
            Kind::System => draw(&mut rand::rng()),
            Kind::Seeded(rng) => draw(&mut *rng.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        base.saturating_add(base.mul_f64(more))
    }

    /// The time since 1970, for people; `None` where it stands still.
    pub(super) fn wall(&self) -> Option<Duration> {
        match self.0 {
            Kind::System => {
                Some(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
            }
            Kind::Seeded(_) => None,
        }
    }

    /// The clock that does not stop when the machine sleeps.
    pub(super) fn boot_now(&self) -> Option<Duration> {
        match self.0 {
            Kind::System => clock::boot_now(),
            Kind::Seeded(_) => None,
        }
    }

    /// The tokio task that is running, for people.
    pub(super) fn task(&self) -> Option<tokio::task::Id> {
        match self.0 {
            Kind::System => tokio::task::try_id(),
            Kind::Seeded(_) => None,
        }
    }
}
