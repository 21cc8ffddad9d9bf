//! Everybody who takes locks here, behind one small trait, so that every scenario is written once.
//!
//! A peer is a file of its own with the settings it has by default and with its best: what its documentation offers to wait
//! less long, with a TTL that is long enough. Where a peer's API cannot express something, the file says how it is helped,
//! and [`Contender::note`] puts it below the table.

mod async_redis_lock;
mod clinch;
mod distributed_lock_redis;
mod rdlock;
mod redis_lock;
mod redlock;
mod reference;
mod rlock;
mod rslock;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::clinch::{Clinch, Way};
pub(crate) use self::reference::{Reference, connection, new_token, set_nx};

/// What somebody waits for.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The TTL of all leases, unless a peer's default is to be shown.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The pause between two polls of those who poll, with their best settings.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// One user of a library, with connections of its own: a process among others.
pub(crate) trait Locks: Send + Sync {
    /// Takes the lock; `None` if it was not to be had within `wait`. A wait of zero is one try.
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>>;
}

/// A lock that was taken.
pub(crate) trait Taken: Send {
    /// Gives it back, and waits for the answer.
    fn give_back(self: Box<Self>) -> Pending<'static, ()>;
}

/// What a contender is in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What one would write by hand; everything is a ratio to it.
    Reference,
    Clinch,
    /// Written by hand, the best there could be, without safety.
    Bound,
    Peer,
}

type Connect = Box<dyn Fn(String) -> Pending<'static, Arc<dyn Locks>> + Send + Sync>;

/// Somebody who takes part in a scenario.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether the server has to publish keyspace events, which costs it something.
    pub(crate) keyspace_events: bool,
    /// What is to be known about its numbers.
    pub(crate) note: Option<&'static str>,
    connect: Connect,
}

impl Contender {
    pub(crate) fn new<F, L>(
        name: &'static str,
        kind: Kind,
        connect: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = L> + Send + 'static,
        L: Locks + 'static,
    {
        let connect: Connect = Box::new(move |url| {
            let connecting = connect(url);
            Box::pin(async move { Arc::new(connecting.await) as Arc<dyn Locks> })
        });
        Self { name, kind, keyspace_events: false, note: None, connect }
    }

    fn noted(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }

    fn with_keyspace_events(mut self) -> Self {
        self.keyspace_events = true;
        self
    }

    /// As many users of it as there are to be, each with connections of its own.
    pub(crate) async fn connect(&self, url: &str, users: usize) -> Vec<Arc<dyn Locks>> {
        let mut connected = Vec::with_capacity(users);
        for _ in 0..users {
            connected.push((self.connect)(url.to_owned()).await);
        }
        connected
    }
}

pub(crate) fn reference() -> Contender {
    Contender::new("reference", Kind::Reference, Reference::connect)
}

pub(crate) fn clinch(name: &'static str, way: Way) -> Contender {
    Contender::new(name, Kind::Clinch, move |url| Clinch::connect(url, way))
}

/// All peers that take locks, each with its default settings and with its best.
pub(crate) fn all() -> Vec<Contender> {
    let pairs = [
        rslock::contenders(),
        redlock::contenders(),
        distributed_lock_redis::contenders(),
        redis_lock::contenders(),
        async_redis_lock::contenders(),
        rlock::contenders(),
    ];
    pairs.into_iter().flatten().chain([rdlock::contender()]).collect()
}

/// Asks `tried` again and again, for peers whose own waiting is a number of tries or none.
async fn until<T, F: Future<Output = Option<T>>>(
    wait: Duration,
    pause: Duration,
    mut tried: impl FnMut() -> F,
) -> Option<T> {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(taken) = tried().await {
            return Some(taken);
        }
        if began.elapsed() >= wait {
            return None;
        }
        tokio::time::sleep(pause).await;
    }
}
