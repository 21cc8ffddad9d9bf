//! Clinch, as its documentation shows it.

use std::time::Duration;

use clinch::{Limit, LockGuard, LockManager, LockOptions};

use super::{Locks, Pending, TTL, Taken};

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Fenced,
    /// The engine's queue, first come first served; never passed on inside the process.
    Fair,
    /// One of so many permits.
    Permit(u32),
}

pub(crate) struct Clinch {
    locks: LockManager,
    way: Way,
}

struct Guard(LockGuard);

impl Clinch {
    pub(crate) async fn connect(url: String, way: Way) -> Self {
        Self { locks: LockManager::connect(&url).await.expect("the server runs"), way }
    }

    fn limit(&self, key: &str) -> Option<Limit> {
        match self.way {
            Way::Permit(of) => Some(self.locks.limit(key, of).expect("a valid limit")),
            _ => None,
        }
    }
}

impl Locks for Clinch {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        let options = LockOptions::new(TTL).wait(wait);
        let options = match self.way {
            Way::Plain | Way::Permit(_) => options,
            Way::Fenced => options.fenced(),
            Way::Fair => options.fair(),
        };
        let limit = self.limit(key);
        Box::pin(async move {
            let taken = match limit {
                Some(limit) => limit.try_acquire(options).await,
                None => self.locks.try_lock(key, options).await,
            };
            taken.expect("the server answers").map(|guard| Box::new(Guard(guard)) as Box<dyn Taken>)
        })
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let released = self.0.release().await.expect("the server answers");
            assert!(released, "a lease of {TTL:?} was lost");
        })
    }
}
