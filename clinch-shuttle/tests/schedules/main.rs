//! Scenarios, each under many schedules. See `clinch_shuttle` for how, and `scripts/shuttle` for the command.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what fails here is a test")]

mod locks;
mod places;
mod planted;
mod processes;
mod releases;
mod steps;

use std::sync::Arc;

use clinch::{LockManager, LockOptions};
use clinch_shuttle::{Engine, Room, TTL, block_on};
use tokio::sync::Notify;

/// Waits as long as it takes, and never polls: who is not called or woken is found to hang, also while the clock goes on.
fn waits() -> LockOptions {
    LockOptions::new(TTL).wait(TTL).retry_interval(TTL)
}

/// Takes the lock so often, visits the room under it and lets it go, by `release` or by `drop`.
async fn visit(locks: LockManager, options: LockOptions, room: Arc<Room>, rounds: usize, releases: bool) {
    for _ in 0..rounds {
        let guard = locks.lock("a", options.clone()).await.unwrap();
        room.visit();
        if releases {
            assert!(guard.release().await.unwrap(), "nobody else may have given it back");
        } else {
            drop(guard);
        }
    }
}

/// The future's value, unless `cancel` comes first: then it is dropped.
async fn unless<T>(cancel: Arc<Notify>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = cancel.notified() => None,
        value = future => Some(value),
    }
}

/// At the end nobody holds anything, and the managers know that.
fn all_is_given_back(managers: &[LockManager], engine: &Engine) {
    for locks in managers {
        let left = block_on(locks.shutdown(TTL));
        assert!(left.is_clean(), "{left:?}");
    }
    assert_eq!(engine.memory().len(), 0, "held after a clean shutdown");
}
