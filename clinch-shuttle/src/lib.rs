//! Clinch's memory store and manager under many schedules, for `scripts/shuttle`; empty without `--cfg shuttle`.
//!
//! What runs is the real code. Its locks, atomics, notifications and background tasks are `shuttle`'s (`clinch/src/sync.rs`),
//! which picks at each of them who goes on: by chance, or by priorities that change at a few places (PCT). Every schedule
//! comes of a seed, and one that fails is printed, to be run again.
//!
//! All threads of a schedule are one thread of the machine. The clock is tokio's and stands still unless a scenario moves it,
//! and nobody polls, so that no timer comes to the help of a call that was lost: who hangs is reported as a dead lock, or
//! while the clock goes on as one who takes too many steps.
//!
//! # The bound
//! 31 scenarios of 2 to 5 threads, besides the background task and the sweeper of each manager and store, the main thread
//! and where it is needed the clock; 1 to 3 rounds for each thread. Each scenario runs under 1,000 schedules by chance and
//! as many by priorities with a depth of 3. Four planted bugs are found within that. What is not tried: orders of memory
//! that are weaker than sequential consistency; tokio's own primitives, which are one step each; scopes, because a tokio
//! task-local belongs to the thread of the machine; telemetry; engines behind a wire, of which `Manner::Slow` has only the delays.
#![cfg(shuttle)]
#![allow(clippy::expect_used, clippy::panic, reason = "what fails here is a test")]

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Plain, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use clinch::LockManager;
use clinch::store::Store;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, MaxSteps, Runner};
use tokio::runtime::{self, Runtime};

mod engine;

pub use engine::{Engine, Manner};

/// How many schedules of each kind a scenario is run under unless `CLINCH_SHUTTLE_ITERATIONS` says otherwise.
pub const ITERATIONS: usize = 1_000;
/// At how many places of a schedule PCT changes priorities, at the most.
pub const DEPTH: usize = 3;
/// What no schedule of a scenario comes near to; who runs in circles does.
const MOST_STEPS: usize = 100_000;
/// Longer than any scenario takes by its clock.
pub const TTL: Duration = Duration::from_secs(60);

/// Runs the scenario under that many schedules by chance, and as many by priorities.
///
/// # Panics
/// If one of them fails.
pub fn check(scenario: impl Fn() + Send + Sync + 'static) {
    let iterations = number("CLINCH_SHUTTLE_ITERATIONS").unwrap_or(ITERATIONS);
    let scenario = Arc::new(scenario);
    if let Some(schedule) = std::env::var_os("CLINCH_SHUTTLE_REPLAY") {
        return run(ReplayScheduler::new_from_file(schedule).expect("a file with a schedule"), scenario);
    }
    run(RandomScheduler::new_from_seed(seed(), iterations), scenario.clone());
    run(PctScheduler::new_from_seed(seed(), DEPTH, iterations), scenario);
}

/// Runs a scenario with a planted bug in it until a schedule fails, and says how it failed.
///
/// # Panics
/// If none of [`ITERATIONS`] of each kind does.
pub fn find(scenario: impl Fn() + Send + Sync + 'static) -> String {
    let scenario = Arc::new(scenario);
    let by_chance = RandomScheduler::new_from_seed(seed(), ITERATIONS);
    let by_priorities = PctScheduler::new_from_seed(seed(), DEPTH, ITERATIONS);
    let found = failure(by_chance, scenario.clone()).or_else(|| failure(by_priorities, scenario));
    found.unwrap_or_else(|| panic!("{ITERATIONS} schedules of each kind did not find the planted bug"))
}

/// How the scenario failed, if it did.
fn failure(
    scheduler: impl Scheduler + 'static,
    scenario: Arc<impl Fn() + Send + Sync + 'static>,
) -> Option<String> {
    let failure = std::panic::catch_unwind(AssertUnwindSafe(|| run(scheduler, scenario))).err()?;
    let text = failure.downcast_ref::<String>().cloned();
    Some(text.or_else(|| failure.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
}

fn number<T: FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

fn seed() -> u64 {
    number("CLINCH_SHUTTLE_SEED").unwrap_or(1)
}

thread_local! {
    static RUNTIME: Cell<Option<&'static Runtime>> = const { Cell::new(None) };
}

fn run(scheduler: impl Scheduler + 'static, scenario: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    // The futures of a manager are larger than shuttle expects of a thread.
    config.stack_size = 0x4_0000;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    // It warns that all atomics are sequentially consistent, which is one of the bounds that are stated.
    config.silence_warnings = true;
    // Entered around the whole run, for the clock and its timers; no task of ours runs on it. It is never dropped: a schedule
    // that failed leaves timers behind, and they would wake tasks that are no more.
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime: &'static Runtime = Box::leak(Box::new(runtime.expect("a runtime for its clock")));
    RUNTIME.set(Some(runtime));
    let _entered = runtime.enter();
    Runner::new(scheduler, config).run(move || scenario());
}

/// Moves the clock. Only one thread of a schedule does so.
///
/// # Panics
/// Outside of a schedule.
pub fn advance(by: Duration) {
    let runtime = RUNTIME.get().expect("within a schedule");
    runtime.block_on(tokio::time::advance(by));
}

/// A thread that moves the clock on and on, a millisecond at a time, until it is dropped.
#[derive(Debug)]
pub struct Clock {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    /// Starts it.
    pub fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let over = done.clone();
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                advance(Duration::from_millis(1));
                // Says that it waits for the others: by priorities alone it would run for ever.
                thread::yield_now();
            }
        });
        Self { done, thread: Some(thread) }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the clock");
        }
    }
}

/// Runs the future on this thread of the schedule.
pub fn block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(clinch::attentive(future))
}

/// A thread of the schedule that runs the future.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || block_on(future))
}

/// Waits for all of them.
///
/// # Panics
/// If one of them did.
pub fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    // All are started before one is waited for, also where the iterator starts them.
    let threads: Vec<_> = threads.into_iter().collect();
    threads.into_iter().map(|thread| thread.join().expect("a thread of the schedule")).collect()
}

/// Lets everybody else go on, in the middle of a future.
pub async fn pause() {
    let mut paused = false;
    poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A manager on this store that does the same in every run of a schedule.
///
/// # Panics
/// Never: its settings are valid.
pub fn manager(store: &Arc<impl Store>, number: u64) -> LockManager {
    let builder = LockManager::builder().sources(clinch::Sources::seeded(number)).host("here");
    builder.store(store.clone()).build().expect("valid settings")
}

/// A place in which at most so many may be at a time.
#[derive(Debug)]
pub struct Room {
    inside: AtomicUsize,
    most: usize,
    visits: Plain,
}

impl Room {
    /// A room for so many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { inside: AtomicUsize::new(0), most, visits: Plain::new(0) })
    }

    /// Goes in and out again; anybody may go on in between.
    ///
    /// # Panics
    /// If it is full.
    pub fn visit(&self) {
        self.visits.fetch_add(1, Relaxed);
        let before = self.inside.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.most, "{} inside where {} may be", before + 1, self.most);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether nobody is in.
    pub fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// How often somebody was in.
    pub fn visits(&self) -> usize {
        self.visits.load(Relaxed)
    }
}
