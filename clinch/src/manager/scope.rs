//! Scopes: who may enter a lock again.
//!
//! A scope is the identity of a request. It travels with the task, over every `.await`, and into other tasks that were given
//! it; never by thread. Inside it, a [`reentrant`](crate::LockOptions::reentrant) lock on what the scope already holds
//! succeeds at once, without a call and without a second permit, and the last guard out gives it back.

use std::cell::Cell;
use std::fmt;
#[cfg(feature = "http")]
use std::pin::Pin;
use std::sync::{Arc, Weak};
#[cfg(feature = "http")]
use std::task::{Context, Poll};

#[cfg(feature = "http")]
use super::LockManager;
use super::core::Core;
use super::guard::Holding;
use super::held::Held;
use super::plan::Plan;
use crate::error::Error;
use crate::lease::{Claim, ClaimKey, Mode};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, Notify, PoisonError};

tokio::task_local! {
    static CURRENT: Scope;
}

/// Who may enter a lock again: the identity of a request. Made by [`LockManager::scope`](crate::LockManager::scope); clones
/// are the same scope.
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

struct Inner {
    id: u64,
    core: Weak<Core>,
    /// The scope around it, which may be another manager's.
    around: Option<Scope>,
    /// How many futures run for which it was opened, or that go on with its work. Once there is none, it has ended.
    running: AtomicUsize,
    /// What the scope holds.
    holdings: Mutex<Vec<Taken>>,
    changed: Notify,
}

/// A lease that was taken in a scope. The lease is known apart from its guards: looking at it must not keep it.
struct Taken {
    on: ClaimKey,
    holding: Weak<Holding>,
    held: Weak<Held>,
    pass: u32,
}

impl Taken {
    /// How it holds the key, if it still does.
    fn mode(&self) -> Option<Mode> {
        let held = self.held.upgrade()?;
        held.mode_on(&self.on).filter(|_| !held.remaining_for(self.pass).is_zero())
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("id", &self.0.id).field("ended", &self.has_ended()).finish()
    }
}

impl Scope {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self::of(Arc::downgrade(core))
    }

    fn of(core: Weak<Core>) -> Self {
        Self(Arc::new(Inner {
            id: next_id(),
            core,
            around: CURRENT.try_with(Self::clone).ok(),
            running: AtomicUsize::new(1),
            holdings: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// The innermost scope of this manager that this task is in.
    pub(super) fn current(core: &Arc<Core>) -> Option<Self> {
        let mut scope = CURRENT.try_with(Self::clone).ok();
        while let Some(here) = scope {
            if std::ptr::eq(here.0.core.as_ptr(), Arc::as_ptr(core)) {
                return Some(here);
            }
            scope = here.0.around.clone();
        }
        None
    }

    /// Runs a future in this scope: for tasks that work for the same request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use clinch::{LockManager, LockOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), clinch::Error> {
    /// # let locks = LockManager::memory();
    /// let again = LockOptions::new(Duration::from_secs(10)).reentrant();
    /// locks.scope(async {
    ///     let _outer = locks.lock("order:42", again.clone()).await?;
    ///     let (scope, locks) = (locks.current_scope().expect("this is one"), locks.clone());
    ///     let helper = tokio::spawn(async move {
    ///         scope.enter(async { locks.lock("order:42", again).await.map(|inner| inner.is_valid()) }).await
    ///     });
    ///     assert!(helper.await.expect("does not panic")?);
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As that of the future.
    pub async fn enter<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// Whether the future is done or gone for which it was opened. A re-entrant lock that is asked for in it after that is
    /// an error.
    pub fn has_ended(&self) -> bool {
        self.0.running.load(Ordering::Acquire) == 0
    }

    /// Runs the future for which the scope was opened.
    pub(super) async fn run<F: Future>(self, future: F) -> F::Output {
        let _running = Running(self.clone());
        self.enter(future).await
    }

    /// A new scope of this manager, for a future that is polled by hand in it.
    #[cfg(feature = "http")]
    pub(crate) fn to_be_opened(locks: &LockManager) -> ToBeOpened {
        ToBeOpened(Arc::downgrade(&locks.core))
    }

    /// The scope that this task is in, with those around it, for a future that goes on with its work in another task: it has
    /// not ended before that is done. Nothing outside of a scope, or if it has ended already.
    #[cfg(feature = "http")]
    pub(crate) fn going_on() -> GoingOn {
        let innermost = CURRENT.try_with(Self::clone).ok();
        let chain = std::iter::successors(innermost.clone(), |scope| scope.0.around.clone());
        GoingOn { _running: chain.filter_map(Self::one_more).collect(), innermost }
    }

    /// One more future runs in it, unless it has ended: an end is for good.
    #[cfg(feature = "http")]
    fn one_more(self) -> Option<Running> {
        let add = |running: usize| (running > 0).then_some(running + 1);
        self.0.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Running(self))
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    fn holdings(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.0.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease was taken in the scope.
    pub(super) fn took(&self, holding: &Arc<Holding>) {
        let mut holdings = self.holdings();
        holdings.retain(|taken| taken.holding.strong_count() > 0);
        let claims = holding.held().claims();
        // Most scopes ever have one, and a list makes room for four.
        holdings.reserve_exact(claims.len());
        holdings.extend(claims.iter().map(|claim| Taken {
            on: claim.on().clone(),
            holding: Arc::downgrade(holding),
            held: Arc::downgrade(holding.held()),
            pass: holding.pass(),
        }));
        drop(holdings);
        self.0.changed.notify_waiters();
    }

    /// The lease of the scope that stands for this claim, an exclusive one also for a shared one; and whether the scope has
    /// it shared where it is wanted exclusively.
    fn covering(&self, claim: &Claim, reentrant: bool) -> (Option<Arc<Holding>>, bool) {
        let holdings = self.holdings();
        let mut upgrade = false;
        for taken in holdings.iter().filter(|taken| taken.on == *claim.on()) {
            match (taken.mode(), claim.mode()) {
                (Some(Mode::Shared), Mode::Exclusive) => upgrade |= taken.holding.strong_count() > 0,
                (Some(_), _) if reentrant => {
                    if let Some(holding) = taken.holding.upgrade() {
                        return (Some(holding), upgrade);
                    }
                }
                _ => {}
            }
        }
        (None, upgrade)
    }

    /// The lease of the scope that is all that the plan wants, if there is one.
    ///
    /// # Errors
    /// What would make the scope wait for itself for ever.
    pub(super) fn cover(&self, plan: &Plan) -> Result<Option<Arc<Holding>>, Error> {
        if self.holdings().is_empty() && !plan.options.reentrant {
            return Ok(None);
        }
        let mut covers: Vec<Option<Arc<Holding>>> = Vec::with_capacity(plan.claims.len());
        for claim in plan.claims.iter() {
            let (covering, upgrade) = self.covering(claim, plan.options.reentrant);
            if upgrade {
                let reason = "the scope holds it shared and asks for it exclusively; release the shared lock first, or take \
                              the exclusive one from the beginning";
                return Err(Error::SelfDeadlock { key: claim.on().key.clone(), reason });
            }
            covers.push(covering);
        }
        let whole = covers[0].clone();
        let all = covers.iter().all(|cover| match (cover, &whole) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        });
        // A second permit is no harm where there are several; anything else would be waited for by its own holder.
        let stuck = |(claim, cover): &(&Claim, &Option<Arc<Holding>>)| {
            let alone = !matches!(claim.mode(), Mode::Permit { of } if of.get() > 1);
            cover.is_some() && alone
        };
        if !all && let Some((claim, _)) = plan.claims.iter().zip(&covers).find(stuck) {
            let reason = "the scope holds it, and asks for it together with what it does not hold; take all of it in the \
                          outer lock";
            return Err(Error::SelfDeadlock { key: claim.on().key.clone(), reason });
        }
        let whole = whole.filter(|_| all);
        let unfenced = |holding: &Arc<Holding>| {
            holding.held().fence(0, holding.pass()).is_none() && !holding.held().is_degraded()
        };
        if plan.options.fenced && whole.as_ref().is_some_and(unfenced) {
            let reason =
                "the scope holds it without a fence and asks for one; ask for the fence in the outer lock";
            return Err(Error::SelfDeadlock { key: plan.key().clone(), reason });
        }
        if plan.options.reentrant && self.has_ended() {
            return Err(Error::ScopeEnded { key: plan.key().clone() });
        }
        Ok(whole)
    }

    /// Waits until the scope has all that the plan wants, because another task of the scope took it.
    pub(super) async fn covered(&self, plan: &Plan) -> Result<Arc<Holding>, Error> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if let Some(holding) = self.cover(plan)? {
                return Ok(holding);
            }
            changed.await;
        }
    }
}

/// Another number for each scope of the process. A thread takes many at a time, so that threads do not wait for each other here.
fn next_id() -> u64 {
    const MANY: u64 = 256;
    // For the life of the process, and so none of a schedule's.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local! {
        static OWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    let own = OWN.try_with(|own| {
        let (mut next, mut end) = own.get();
        if next == end {
            next = NEXT.fetch_add(MANY, Ordering::Relaxed);
            end = next + MANY;
        }
        own.set((next + 1, end));
        next
    });
    // A thread that is ending has none of its own any more.
    own.unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A future that runs in the scope. The last one that is done, or dropped, ends it.
struct Running(Scope);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A scope that is to be opened where its future is first polled: only then it is known what is around it.
#[cfg(feature = "http")]
pub(crate) struct ToBeOpened(Weak<Core>);

#[cfg(feature = "http")]
impl ToBeOpened {
    pub(crate) fn open(&mut self) -> Opened {
        Opened(Running(Scope::of(std::mem::take(&mut self.0))))
    }
}

/// A scope that was opened. It ends when this is dropped, unless something goes on in it.
#[cfg(feature = "http")]
pub(crate) struct Opened(Running);

#[cfg(feature = "http")]
impl Opened {
    /// Polls a future in it.
    pub(crate) fn poll<F: Future + ?Sized>(
        &self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        CURRENT.sync_scope(self.0.0.clone(), || future.poll(context))
    }

    /// Drops a future in it. Never panics, not even where the thread is ending.
    pub(crate) fn drop<F: Future>(&self, future: F) {
        drop(CURRENT.scope(self.0.0.clone(), future));
    }
}

/// The scope of a future that goes on in another task.
#[cfg(feature = "http")]
pub(crate) struct GoingOn {
    innermost: Option<Scope>,
    _running: Vec<Running>,
}

#[cfg(feature = "http")]
impl GoingOn {
    /// Runs that future.
    pub(crate) async fn run<F: Future>(self, future: F) -> F::Output {
        match &self.innermost {
            Some(scope) => scope.enter(future).await,
            None => future.await,
        }
    }
}
