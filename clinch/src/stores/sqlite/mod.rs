//! The SQLite engine: a file, for all processes of one machine, with no server at all.
//!
//! It promises the whole port: every step is one transaction, so it is atomic whenever a process dies, and the rules in it
//! are the very ones of the memory engine. Time is the machine's own clock, which nobody sets and which goes on while the
//! machine sleeps; a lease ends with the boot of the machine, a record does not. Waiters and revocations are heard of from
//! other processes within milliseconds. SQLite blocks, so a thread of the store's own talks to it; calls wait for it within
//! their time limit and never block the runtime.
//!
//! What it cannot promise (file systems that machines share, a wall clock that jumps where there is no other clock) is
//! written in `docs/guarantees.md`.

mod address;
mod busy;
mod clock;
mod diagnose;
mod error;
mod open;
mod session;
mod site;
mod statements;
mod steps;
mod sweep;
mod table;
mod ticket;
mod watch;
mod worker;

use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use self::address::{Address, File};
use self::error::Fault;
use self::session::{Kind, Tx};
use self::site::Site;
use self::ticket::Ticket;
use self::watch::Watch;
use self::worker::{Answer, Worker};
use super::in_flight::Purpose;
use super::rules::steps::serves;
use super::{StoreOptions, with_record};
use crate::lease::{Attempt, ClaimKey, Holder, Record, Token};
use crate::stamp::Stamp;
use crate::store::{
    About, Capabilities, Cursor, Diagnosis, Effect, ErrorKind, Page, Release, Renewal, Revocations, Store,
    StoreAnswers, StoreError, StoreFuture, Verdict, Wakeups,
};

/// How many leases one transaction renews or takes: few enough that other processes are not kept out for long.
const BATCH: usize = 128;

/// A store in a SQLite file, which any number of processes of one machine share.
///
/// Usually made by [`LockManager::connect`](crate::LockManager::connect) with `sqlite:///path/to/file.db`. It has a thread of
/// its own, which ends when the store is closed or dropped.
///
/// ```
/// use std::sync::Arc;
/// use clinch::{LockManager, stores::{StoreOptions, sqlite::SqliteStore}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("clinch-{}.db", std::process::id()));
/// let store = SqliteStore::open(&path, &StoreOptions::default()).await?;
/// let manager = LockManager::builder().store(Arc::new(store)).build()?;
/// # let _ = manager;
/// # for end in ["", "-wal", "-shm"] {
/// #     let _ = std::fs::remove_file(format!("{}{end}", path.display()));
/// # }
/// # Ok(())
/// # }
/// ```
pub struct SqliteStore {
    site: Arc<Site>,
    watch: Arc<Watch>,
    worker: Worker,
    lane: Arc<Lane>,
}

/// By which an attempt remembers that it went to this store and was not answered.
#[derive(Debug)]
struct Lane;

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("file", &self.site.path).finish_non_exhaustive()
    }
}

/// The scheme's entry.
pub(super) fn connect<'a>(url: &'a str, options: &'a StoreOptions) -> StoreFuture<'a, Arc<dyn Store>> {
    Box::pin(async move { Ok(Arc::new(SqliteStore::connect(url, options).await?) as Arc<dyn Store>) })
}

/// What can be told of an address without opening the file.
#[cfg(feature = "config")]
pub(super) fn check(url: &str, _options: &StoreOptions) -> Result<(), StoreError> {
    address::parse(url).map(|_| ())
}

impl SqliteStore {
    /// Opens the file that `url` names: `sqlite:///absolute/path.db` or `sqlite:relative/path.db`. One that is not there is
    /// made; with `?mode=rw` at the end, as SQLite's own addresses have it, that is an error, and so is one of 0 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that cannot be used, [`ErrorKind::Unavailable`] for a file that must be there and is
    /// not, and otherwise as [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Safe: a file that was made stays, and is empty.
    pub async fn connect(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_at(address::parse(url)?, options).await
    }

    /// Opens the file, and makes it if there is none (mode 0600; its directory, if there is none, 0700).
    ///
    /// # Errors
    /// None of them has changed a file that was there. [`ErrorKind::Config`] for a path that cannot be used or is on a file
    /// system that machines share, [`ErrorKind::Protocol`] for a file that is no database, is damaged, belongs to something
    /// else or to a newer version, [`ErrorKind::ReadOnly`], [`ErrorKind::Auth`] and [`ErrorKind::Full`] for what the file
    /// system refuses, [`ErrorKind::Busy`] if it stays locked for the connect limit.
    ///
    /// # Cancel safety
    /// Safe: a file that was made stays, and is empty.
    pub async fn open(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_at(Address { path: path.as_ref().to_owned(), file: File::Made }, options).await
    }

    async fn open_at(mut address: Address, options: &StoreOptions) -> Result<Self, StoreError> {
        let config = |reason: String| StoreError::not_applied(ErrorKind::Config, reason);
        options.check().map_err(|error| config(error.to_string()))?;
        address.path = std::path::absolute(&address.path)
            .map_err(|error| config(format!("{} is no path: {error}", address.path.display())))?;
        let (site, watch) = (Arc::new(Site::new(address, options.prefix.clone())), Arc::new(Watch::new()));
        let worker = Worker::new(site.clone(), watch.clone(), options.max_in_flight, options.call_timeout);
        let limit = options.connect_timeout;
        worker.run_within(limit, Purpose::Other, Kind::Read, Arc::default(), |_| Ok(())).await?;
        Ok(Self { site, watch, worker, lane: Arc::new(Lane) })
    }

    async fn run<T: Send + 'static>(
        &self,
        purpose: Purpose,
        kind: Kind,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Answer<T>, StoreError> {
        self.worker.run(purpose, kind, Arc::default(), work).await
    }

    /// Acquires attempts that are all served, in one transaction.
    async fn acquire_served<A: Borrow<Attempt>>(
        &self,
        attempts: &[A],
        owned: Vec<Arc<Attempt>>,
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut sending = Sending { attempts, ticket: Arc::default(), lane: &self.lane, answered: false };
        let answer = self.worker.run(Purpose::Other, Kind::Write, sending.ticket.clone(), move |tx| {
            owned.iter().map(|attempt| steps::acquire(tx, attempt)).collect::<Result<Vec<_>, _>>()
        });
        let answer = answer.await;
        // An error that says "not applied" is an answer too.
        sending.answered = answer.as_ref().err().is_none_or(|error| error.effect() == Effect::NotApplied);
        Ok(answer?.answer)
    }

    async fn acquire_batch(&self, attempts: &[Arc<Attempt>]) -> Vec<Result<Verdict, StoreError>> {
        let refused: Vec<_> = attempts.iter().map(|attempt| serves(attempt).err()).collect();
        let served: Vec<_> = attempts
            .iter()
            .zip(&refused)
            .filter(|(_, refused)| refused.is_none())
            .map(|(a, _)| a.clone())
            .collect();
        let answers = match &served[..] {
            [] => Ok(Vec::new()),
            _ => self.acquire_served(&served, served.clone()).await,
        };
        let mut verdicts = answers.as_ref().map_or(&[][..], Vec::as_slice).iter();
        let verdict = |refused: Option<StoreError>| match (refused, &answers) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(error.clone()),
            (None, Ok(_)) => verdicts.next().cloned().ok_or_else(unanswered),
        };
        refused.into_iter().map(verdict).collect()
    }

    async fn renew_batch(&self, leases: &[Arc<Attempt>]) -> Vec<Result<Renewal, StoreError>> {
        let owned = leases.to_vec();
        let answer = self.run(Purpose::Upkeep, Kind::Write, move |tx| {
            owned.iter().map(|lease| steps::renew(tx, lease)).collect::<Result<Vec<_>, _>>()
        });
        match answer.await {
            Err(error) => leases.iter().map(|_| Err(error.clone())).collect(),
            Ok(Answer { answer, began, .. }) => {
                let mut answers: Vec<_> =
                    answer.into_iter().map(|extended| Ok(renewal(extended, began))).collect();
                answers.resize_with(leases.len(), || Err(unanswered()));
                answers
            }
        }
    }

    /// Carries out a release or a completion.
    async fn end(
        &self,
        lease: &Attempt,
        kind: Kind,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<bool, Fault> + Send + 'static,
    ) -> Result<Release, StoreError> {
        let unanswered = lease.route().unanswered::<Lane>();
        // What went to this store before comes before it in the line.
        let conclusive = unanswered.iter().all(|(lane, _)| Arc::ptr_eq(lane, &self.lane));
        let answer = self.run(Purpose::Upkeep, kind, work).await?;
        lease.route().answered_over(&self.lane);
        Ok(Release { held: answer.answer, conclusive, woken: Some(answer.woken) })
    }
}

/// An attempt on its way: noted as sent when its step begins, whatever becomes of the call.
struct Sending<'a, A: Borrow<Attempt>> {
    attempts: &'a [A],
    ticket: Arc<Ticket>,
    lane: &'a Arc<Lane>,
    answered: bool,
}

impl<A: Borrow<Attempt>> Drop for Sending<'_, A> {
    fn drop(&mut self) {
        // Not begun: it never will, and nothing was sent.
        let Some(began) = self.ticket.give_up() else { return };
        for attempt in self.attempts {
            let attempt = attempt.borrow();
            attempt.sent_from(Stamp::of(began));
            if self.answered {
                attempt.route().answered_over(self.lane);
            } else {
                attempt.route().sending_over(self.lane);
            }
        }
    }
}

/// The same attempt, for the thread to have.
fn owned(attempt: &Attempt) -> Arc<Attempt> {
    let copy = Attempt::of(attempt.token().clone(), attempt.claims().to_vec().into());
    Arc::new(copy.with_patience(attempt.patience()))
}

const fn renewal(extended: bool, began: Instant) -> Renewal {
    if extended { Renewal::Extended { sent_at: began } } else { Renewal::Lost }
}

fn unanswered() -> StoreError {
    StoreError::unknown(ErrorKind::Protocol, "SQLite did not answer for every one of them")
}

impl Store for SqliteStore {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: true,
            permits: true,
            several: true,
            fences: true,
            fair: true,
            heirs: false,
            batches: true,
            records: true,
            wakeups: true,
            list: true,
            split_votes: false,
            same_clock: clock::SAME_CLOCK,
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            serves(attempt)?;
            let verdicts = self.acquire_served(&[attempt], vec![owned(attempt)]).await?;
            verdicts.into_iter().next().ok_or_else(unanswered)
        })
    }

    fn acquire_each<'a>(&'a self, attempts: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Verdict> {
        Box::pin(async move {
            join_all(attempts.chunks(BATCH).map(|some| self.acquire_batch(some))).await.concat()
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let owned = owned(lease);
            let answer = self.run(Purpose::Upkeep, Kind::Write, move |tx| steps::renew(tx, &owned)).await?;
            Ok(renewal(answer.answer, answer.began))
        })
    }

    fn renew_each<'a>(&'a self, leases: &'a [Arc<Attempt>]) -> StoreAnswers<'a, Renewal> {
        Box::pin(
            async move { join_all(leases.chunks(BATCH).map(|some| self.renew_batch(some))).await.concat() },
        )
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let owned = owned(lease);
            self.end(lease, Kind::Write, move |tx| steps::release(tx, &owned)).await
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            let on = with_record(lease)?.on().clone();
            let (token, record) = (lease.token().clone(), record.clone());
            let work = move |tx: &mut Tx<'_, '_>| steps::complete(tx, &on, &token, &record, ttl);
            self.end(lease, Kind::Durable, work).await
        })
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let wakeups = self.watch.wakeups(on, queued);
        self.worker.listen();
        wakeups
    }

    fn revocations(&self) -> Revocations {
        let revocations = self.watch.revocations();
        self.worker.listen();
        revocations
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(async move {
            let on = on.clone();
            Ok(self.run(Purpose::Other, Kind::Read, move |tx| steps::inspect(tx, &on)).await?.answer)
        })
    }

    fn list(&self, cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            Ok(self.run(Purpose::Other, Kind::Read, move |tx| steps::list(tx, cursor)).await?.answer)
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let (on, token) = (on.clone(), token.clone());
            Ok(self.run(Purpose::Upkeep, Kind::Write, move |tx| steps::revoke(tx, &on, &token)).await?.answer)
        })
    }

    /// Takes the write lock, too: whether locks can be had is what is asked.
    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async move {
            let started = Instant::now();
            self.run(Purpose::Other, Kind::Write, |_| Ok(())).await?;
            Ok(started.elapsed())
        })
    }

    fn about(&self) -> StoreFuture<'_, About> {
        Box::pin(async move {
            let mut about = About::new(self.ping().await?);
            about.version = Some(rusqlite::version().to_owned());
            Ok(about)
        })
    }

    fn diagnose(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(async move {
            let mut diagnosis = self.run(Purpose::Other, Kind::Read, diagnose::look).await?.answer;
            // Steps of their own: they take longer, or come to what is damaged; what is known already is not lost with them.
            let counted = self.run(Purpose::Other, Kind::Read, diagnose::count).await;
            diagnose::counted(counted.map(|counted| counted.answer), &mut diagnosis)?;
            let checked = self.run(Purpose::Other, Kind::Read, diagnose::check).await;
            diagnose::checked(checked.map(|checked| checked.answer), &mut diagnosis)?;
            Ok(diagnosis)
        })
    }

    fn close(&self) {
        self.worker.close();
    }
}
