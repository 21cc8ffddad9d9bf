//! What a manager, its guards and its background task share.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::background::Background;
use super::breaker::Breaker;
use super::closed::Closed;
use super::complaints::Complaints;
use super::due::DueQueue;
use super::handle::{self, Handles, Holds};
use super::held::{Held, Window};
use super::line::Lines;
use super::options::Strategy;
use super::plan::Conditions;
use super::release::Releases;
use super::renew::Renewals;
use super::sources::Sources;
use super::tally::Tally;
use super::wall::Wall;
use crate::key::escape::Escaped;
use crate::lease::{Attempt, Fence, Maker, Token};
use crate::stamp::Stamp;
use crate::store::{Capabilities, Effect, ErrorKind, Store, StoreError, StoreFuture};
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::telemetry::{self, Telemetry};

/// What is added to the relative allowance for drift: Redis counts in milliseconds and rounds.
const LEAST_DRIFT: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Core {
    pub(super) store: Arc<dyn Store>,
    /// What it can do, which does not change.
    pub(super) can: Capabilities,
    /// Whether an acquire ends by itself within twice the time of a call.
    pub(super) limited: bool,
    /// Whether the engine is in this process, and stands still with it.
    in_process: bool,
    /// Whether nobody else uses the store.
    pub(super) owns_store: bool,
    pub(super) sources: Sources,
    pub(super) max_ttl: Duration,
    pub(super) call_timeout: Duration,
    pub(super) runtime: Option<Handle>,
    pub(super) lines: Lines,
    pub(super) closed: Closed,
    pub(super) releases: Arc<Releases>,
    pub(super) renewals: Arc<Renewals>,
    /// Leases that are being passed on, until they can be no more.
    pub(super) passed: DueQueue<Arc<Held>>,
    pub(super) background: Background,
    pub(super) closing: Closing,
    pub(super) breaker: Breaker,
    pub(super) telemetry: Telemetry,
    pub(super) complaints: Complaints,
    /// What to do when the engine fails, unless a call says otherwise.
    pub(super) default_strategy: Strategy,
    /// The highest fence that this manager has seen, on whatever key: fences rise with the engine's clock, so one floor for
    /// all keys costs nothing and needs no memory.
    fence_floor: AtomicU64,
    /// Attempts that are under way.
    pub(super) attempts: Tally,
    /// By how many of those that guards have.
    pub(super) holds: Holds,
    /// By which guards and looks hold it, as long as there are managers.
    pub(super) handles: OnceLock<handle::Known>,
    wall: Wall,
    /// As it stands in tokens.
    maker: &'static Maker,
}

impl Core {
    pub(super) fn new(
        (store, owns_store): (Arc<dyn Store>, bool),
        sources: Sources,
        max_ttl: Duration,
        call_timeout: Duration,
        default_strategy: Strategy,
        runtime: Option<Handle>,
        host: &str,
    ) -> Self {
        let releases = Arc::new(Releases::default());
        let mut owner = String::new();
        // Writing into a `String` does not fail.
        let _ = write!(Escaped(&mut owner), "{host}");
        let _ = write!(owner, ":{}:", std::process::id());
        Self {
            can: store.capabilities(),
            in_process: store.at_once().is_some(),
            limited: store.call_limit().is_some_and(|limit| limit <= call_timeout),
            store: telemetry::measured(store, call_timeout),
            owns_store,
            sources,
            max_ttl,
            call_timeout,
            runtime,
            lines: Lines::new(releases.clone()),
            closed: Closed::default(),
            releases,
            renewals: Arc::default(),
            passed: DueQueue::default(),
            background: Background::default(),
            closing: Closing::default(),
            breaker: Breaker::default(),
            telemetry: Telemetry::default(),
            complaints: Complaints::default(),
            default_strategy,
            fence_floor: AtomicU64::new(0),
            attempts: Tally::default(),
            holds: Holds::default(),
            handles: OnceLock::new(),
            wall: Wall::default(),
            maker: Maker::named(owner),
        }
    }

    /// What holds for the wishes of a guard of this name, where they have none of their own.
    pub(super) fn conditions<'a>(&'a self, guard: Option<&'a str>) -> Conditions<'a> {
        Conditions { max_ttl: self.max_ttl, can: self.can, telemetry: &self.telemetry, guard }
    }

    /// A token that nobody else has and nobody can guess.
    pub(super) fn new_token(&self, label: Option<&str>) -> Token {
        self.new_token_at(Stamp::now(), label)
    }

    /// The same for one who has just looked at the clock.
    pub(super) fn new_token_at(&self, now: Stamp, label: Option<&str>) -> Token {
        let (random, task) = (self.sources.random_u128(), self.sources.task());
        let since_ms = self.wall.ms(now, &self.sources);
        match label {
            None if self.in_process => Token::unwritten(random, self.maker, task, since_ms),
            _ => Token::made(random, self.maker, label.unwrap_or_default(), task, since_ms),
        }
    }

    /// The clock that does not stop when the machine sleeps, where the engine does not either.
    pub(super) fn boot_now(&self) -> Option<Duration> {
        if self.in_process { None } else { self.sources.boot_now() }
    }

    pub(super) fn fence_floor(&self) -> Fence {
        Fence::new(self.fence_floor.load(Ordering::Acquire))
    }

    pub(super) fn saw_fence(&self, fence: Option<Fence>) {
        if let Some(fence) = fence {
            self.fence_floor.fetch_max(fence.get(), Ordering::AcqRel);
        }
    }

    /// Takes a step, and once more where the connection failed under it: it may have died long ago, while it was idle.
    /// Both together have the time of one call.
    ///
    /// For steps that do no harm twice; attempts have a longer breath of their own.
    pub(super) async fn once_more<'a, T>(
        &self,
        step: impl Fn() -> StoreFuture<'a, T>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        match step().await {
            Ok(value) => Ok(value),
            Err(error) => self.once_more_after(error, began, step).await.0,
        }
    }

    /// The second time, after the first one began then and failed. Says whether a call of it that was not answered may have
    /// been carried out.
    pub(super) async fn once_more_after<T, F>(
        &self,
        error: StoreError,
        began: Instant,
        step: impl Fn() -> F,
    ) -> (Result<T, StoreError>, bool)
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let limit = began + self.call_timeout;
        let unknown = |error: &StoreError| error.effect() == Effect::Unknown;
        let doubtful = unknown(&error);
        if error.kind() != ErrorKind::Unavailable {
            return (Err(error), doubtful);
        }
        let answer = timeout_at(limit, step()).await.unwrap_or_else(|_| {
            let message = format!("no answer in time, after the connection had failed: {}", error.message());
            Err(StoreError::unknown(ErrorKind::Timeout, message))
        });
        let doubtful = doubtful || answer.as_ref().is_err_and(unknown);
        (answer, doubtful)
    }

    /// Until when a lease counts that was sent at `sent_at`: its TTL from before the send, minus drift.
    pub(super) fn window(&self, lease: &Attempt, sent_at: Instant, boot_at: Option<Duration>) -> Window {
        // The engine counts from when it got the request, which the time limit bounds, and may be a little slow.
        let engine_from = sent_at + self.call_timeout + lease.longest_ttl().saturating_sub(lease.ttl());
        self.window_of(lease.ttl(), sent_at, boot_at, engine_from)
    }

    /// The same for so long from then on, where the engine began to count at `engine_from` at the latest.
    pub(super) fn window_of(
        &self,
        ttl: Duration,
        since: Instant,
        boot_at: Option<Duration>,
        engine_from: Instant,
    ) -> Window {
        self.window_from(ttl, Stamp::of(since), boot_at, Stamp::of(engine_from))
    }

    #[inline]
    pub(super) fn window_from(
        &self,
        ttl: Duration,
        since: Stamp,
        boot_at: Option<Duration>,
        engine_from: Stamp,
    ) -> Window {
        let allowance = if self.can.same_clock { Duration::ZERO } else { ttl / 100 + LEAST_DRIFT };
        let valid = ttl.saturating_sub(allowance);
        Window {
            valid_until: since.after(valid),
            boot_until: boot_at.map(|at| at + valid),
            engine_until: engine_from.after(ttl).after(allowance),
            allowance,
        }
    }
}

/// Whether the manager was shut down.
#[derive(Debug, Default)]
pub(super) struct Closing {
    closed: AtomicBool,
    changed: Notify,
}

impl Closing {
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }
}

/// The managers of a core. When they and all guards are gone, the background task finishes what is queued and ends.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) handles: Handles,
}

impl Life {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        let handles = Handles::new(core);
        // It fails where it was set before, and each handle is as good as the other.
        let _ = core.handles.set(handles.known());
        Self { handles }
    }
}

impl Core {
    /// How many guards are alive, while there are managers.
    pub(super) fn guards(&self) -> usize {
        self.handles.get().map_or(0, handle::Known::guards)
    }
}
