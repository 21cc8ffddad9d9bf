//! What is measured: each figure is one kind of work, done over and over for a time.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use clinch::{Error, Key, LockManager, LockOptions, Strategy};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::histogram::Histogram;

/// How long a lease may outlive a bench that was killed.
const TTL: Duration = Duration::from_secs(10);

/// How long a turn is waited for at most.
const WAIT: Duration = Duration::from_secs(10);

/// How many permits there are, and for each of them how many that want one.
pub(super) const PERMITS: NonZeroU32 = NonZeroU32::new(4).unwrap();
const WANTS_EACH: u32 = 4;

/// Where it is measured, and with what.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// As two processes would have them; of an engine inside the process, the same twice.
    managers: [&'a LockManager; 2],
    keys: &'a Keys,
    concurrency: u32,
    ttl: Duration,
    /// The most permits that were held at a time. All of it runs on one thread.
    most_permits: Cell<u32>,
}

/// Keys that nobody else uses.
#[derive(Debug)]
pub(super) struct Keys {
    run: String,
}

impl Keys {
    pub(super) fn new() -> Self {
        let nanos =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Self { run: format!("{nanos:x}-{}", std::process::id()) }
    }

    fn key(&self, name: &str, number: u32) -> Result<Key, Error> {
        Ok(Key::new(format!("clinch-bench:{}:{name}:{number}", self.run))?)
    }

    /// All that are used by so many tasks.
    pub(super) fn all(&self, concurrency: u32) -> Result<Vec<Key>, Error> {
        let locks = (0..concurrency).map(|number| self.key("lock", number));
        locks.chain([self.key("turn", 0), self.key("permit", 0)]).collect()
    }
}

impl<'a> Work<'a> {
    /// `max_ttl`: the longest TTL that the managers accept.
    pub(super) fn new(
        managers: [&'a LockManager; 2],
        keys: &'a Keys,
        concurrency: u32,
        max_ttl: Duration,
    ) -> Self {
        Self { managers, keys, concurrency, ttl: TTL.min(max_ttl), most_permits: Cell::new(0) }
    }

    pub(super) const fn most_permits(&self) -> u32 {
        self.most_permits.get()
    }

    fn options(&self) -> LockOptions {
        // An engine that fails has no figures.
        LockOptions::new(self.ttl).label("clinch bench").strategy(Strategy::FailFast)
    }

    /// Round trips, one after the other.
    pub(super) async fn round_trips(&self, until: Instant) -> Result<Histogram, Error> {
        let mut times = Histogram::default();
        while Instant::now() < until {
            times.add(self.managers[0].ping().await?);
            tokio::task::yield_now().await;
        }
        Ok(times)
    }

    /// Lock and release, one after the other.
    pub(super) async fn cycles(&self, until: Instant) -> Result<Histogram, Error> {
        self.cycle(0, until).await
    }

    /// The same from many tasks, on a key each.
    pub(super) async fn many_cycles(&self, until: Instant) -> Result<Histogram, Error> {
        let tasks = (0..self.concurrency).map(|number| self.cycle(number, until));
        Ok(sum(try_join_all(tasks).await?))
    }

    async fn cycle(&self, number: u32, until: Instant) -> Result<Histogram, Error> {
        let (locks, key, mut times) =
            (self.managers[0], self.keys.key("lock", number)?, Histogram::default());
        while Instant::now() < until {
            let began = Instant::now();
            locks.lock(key.clone(), self.options()).await?.release().await?;
            times.add(began.elapsed());
            // An engine inside the process may never have made us wait.
            tokio::task::yield_now().await;
        }
        Ok(times)
    }

    /// One key that two want all the time: how long it takes from one's release to the other's grant.
    pub(super) async fn hand_overs(&self, until: Instant) -> Result<Histogram, Error> {
        // Who released last, and when it began to. All of it runs on one thread.
        let released = Cell::new(None);
        let key = self.keys.key("turn", 0)?;
        let turns = async |who: usize| {
            let mut times = Histogram::default();
            while Instant::now() < until {
                let guard = self.managers[who].lock(key.clone(), self.options().wait(WAIT)).await?;
                let granted = Instant::now();
                let last = released.replace(Some((who, Instant::now())));
                if let Some((other, at)) = last
                    && other != who
                {
                    times.add(granted - at);
                }
                guard.release().await?;
                tokio::task::yield_now().await;
            }
            Ok::<_, Error>(times)
        };
        Ok(sum(try_join_all([turns(0), turns(1)]).await?))
    }

    /// A few permits that many want: how long it takes to get one, the wait for it included.
    pub(super) async fn permits(&self, until: Instant) -> Result<Histogram, Error> {
        let key = self.keys.key("permit", 0)?;
        let held = Cell::new(0);
        let wants = async |who: usize| {
            let limit = self.managers[who].limit(key.clone(), PERMITS.get())?;
            let mut times = Histogram::default();
            while Instant::now() < until {
                let began = Instant::now();
                let guard = limit.acquire(self.options().wait(WAIT)).await?;
                times.add(began.elapsed());
                held.set(held.get() + 1);
                self.most_permits.set(self.most_permits.get().max(held.get()));
                tokio::task::yield_now().await;
                held.set(held.get() - 1);
                guard.release().await?;
                tokio::task::yield_now().await;
            }
            Ok::<_, Error>(times)
        };
        let tasks = (0..PERMITS.get() * WANTS_EACH).map(|number| wants(usize::from(number % 2 == 1)));
        Ok(sum(try_join_all(tasks).await?))
    }
}

fn sum(histograms: Vec<Histogram>) -> Histogram {
    histograms.into_iter().fold(Histogram::default(), |mut sum, histogram| {
        sum.merge(&histogram);
        sum
    })
}
