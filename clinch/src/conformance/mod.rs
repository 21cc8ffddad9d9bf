//! The suite that every store passes: each promise of the port ([`crate::store`]) as a test.
//!
//! It is for whoever writes a [`Store`](crate::store::Store). Say how to connect to the engine, and get one named test
//! per promise:
//!
//! ```
//! use std::sync::Arc;
//! use clinch::conformance::Harness;
//! use clinch::store::{Store, StoreFuture};
//! use clinch::stores::memory::MemoryStore; // your own, here
//!
//! #[derive(Default)]
//! struct Mine(MemoryStore);
//!
//! impl Harness for Mine {
//!     fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
//!         Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Store>) })
//!     }
//! }
//!
//! clinch::conformance_tests!(Mine::default());
//!
//! // The same from a program:
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let report = clinch::conformance::run(&Mine::default()).await;
//! println!("{report}");
//! report.assert_passed();
//! # }
//! ```
//!
//! # What is run
//! [`PROMISES`] is the list. A promise that rests on a capability runs for the stores that claim it
//! ([`Capabilities`](crate::store::Capabilities)), and what a store does *not* claim is tested to be refused cleanly.
//! What needs a value that no store writes (another client's lock, a key of another type) runs if the [`Harness`] can
//! put it there. Everything else is skipped, and the report says why.
//!
//! # What it needs
//! - `connect` gives a **new** connection to the **same** engine each time: the suite plays several processes.
//! - Every test takes keys of its own, so tests may run at the same time and on an engine that is in use. What they
//!   leave behind expires within half a minute. Some hold up to 300 leases at a time.
//! - Expiry is waited for: about half a second a test on a real clock, nothing on tokio's paused one. A machine that
//!   stalls does not fail a store; the suite notices and asks again with longer leases. [`Pace`] sets all times.
//!
//! # Adding a promise
//! A documented `async fn` in the file of its step or capability, and its line in the list in `promise.rs`. A new
//! capability is a file, and a [`Need`].

mod acquire;
mod batches;
mod case;
mod connection;
mod expiry;
mod fair;
mod fences;
mod foreign;
mod harness;
mod heirs;
mod inspect;
mod list;
mod permits;
mod promise;
mod records;
mod refusal;
mod release;
mod renew;
mod report;
mod revoke;
mod several;
mod shared;
mod wakeups;

use futures_util::stream::{self, StreamExt as _};

pub use harness::{Harness, Pace, Staged};
pub use promise::{Need, PROMISES, Promise};
pub use report::{Checked, Failure, Outcome, Report};

/// Runs every promise, [as many at once](Pace::at_once) as the harness says, and reports on all of them.
///
/// # Cancel safety
/// Safe: what is left in the engine expires within half a minute.
pub async fn run(harness: &dyn Harness) -> Report {
    let checks = PROMISES
        .iter()
        .map(|promise| async move { Checked { promise, outcome: promise.check(harness).await } });
    Report::new(stream::iter(checks).buffered(harness.pace().at_once.max(1)).collect().await)
}

/// Runs one promise, by its name as [`Promise`] displays it: what [`conformance_tests!`](crate::conformance_tests)
/// calls. A skipped promise is said on standard error and counts as kept.
///
/// # Errors
/// Why the promise is not kept, or that there is no such promise.
///
/// # Cancel safety
/// Safe: what is left in the engine expires within half a minute.
#[expect(
    clippy::print_stderr,
    reason = "it runs inside tests, which have no other way to say that they were skipped"
)]
pub async fn run_one(harness: &dyn Harness, name: &str) -> Result<(), Failure> {
    let Some(promise) = PROMISES.iter().find(|promise| promise.to_string() == name) else {
        return Err(Failure::new(format!("there is no promise called {name}")));
    };
    match promise.check(harness).await {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(why) => {
            eprintln!("skipped: {why}");
            Ok(())
        }
        Outcome::Failed(failure) => Err(failure),
    }
}

/// Makes one named test of every promise, for the store behind a [`Harness`](crate::conformance::Harness).
///
/// The expression makes the harness; it is evaluated once a test, in an `async fn`, so it may `.await`. The tests are
/// `#[tokio::test]` unless other attributes stand before the expression:
///
/// ```
/// # use std::sync::Arc;
/// # use clinch::{conformance::Harness, store::{Store, StoreFuture}, stores::memory::MemoryStore};
/// # #[derive(Default)]
/// # struct Mine(MemoryStore);
/// # impl Harness for Mine {
/// #     fn connect(&self) -> StoreFuture<'_, Arc<dyn Store>> {
/// #         Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Store>) })
/// #     }
/// # }
/// mod on_a_paused_clock {
///     use super::Mine;
///     clinch::conformance_tests!(#[tokio::test(start_paused = true)] Mine::default());
/// }
///
/// mod on_several_threads {
///     use super::Mine;
///     clinch::conformance_tests!(#[tokio::test(flavor = "multi_thread")] Mine::default());
/// }
/// # fn main() {}
/// ```
///
/// The crate that uses it needs tokio with its features `macros` and `rt` among its dev-dependencies. Once a module:
/// the tests sit in modules named for the groups of promises.
#[macro_export]
macro_rules! conformance_tests {
    ($(#[$attribute:meta])+ $harness:expr $(,)?) => {
        #[cfg(test)]
        async fn clinch_conformance_harness() -> impl $crate::conformance::Harness {
            $harness
        }

        $crate::__clinch_promises!([$crate::__clinch_promise_tests] [$(#[$attribute])+]);
    };
    // The second arm: an expression may begin with attributes, so it would match the other form too.
    ($harness:expr $(,)?) => {
        $crate::conformance_tests!(#[tokio::test] $harness);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __clinch_promise_tests {
    ($attributes:tt $($group:ident { $($name:ident: $needs:tt,)* })*) => {$(
        #[cfg(test)]
        mod $group {$(
            $crate::__clinch_promise_test!($attributes $group $name);
        )*}
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __clinch_promise_test {
    ([$(#[$attribute:meta])+] $group:ident $name:ident) => {
        $(#[$attribute])+
        async fn $name() -> Result<(), $crate::conformance::Failure> {
            let harness = super::clinch_conformance_harness().await;
            $crate::conformance::run_one(&harness, concat!(stringify!($group), "::", stringify!($name))).await
        }
    };
}
