//! Setting a manager up.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::LockManager;
use super::core::Core;
use super::options::{LockOptions, Strategy};
use super::sources::Sources;
use crate::error::Error;
use crate::store::Store;
use crate::stores::{self, StoreOptions, memory::MemoryStore};

/// Sets a manager up: [`connect`](Self::connect) to an engine, or [`store`](Self::store) and
/// [`build`](Builder::build).
///
/// ```
/// use std::time::Duration;
/// use clinch::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), clinch::Error> {
/// let locks = LockManager::builder()
///     .prefix("shop")
///     .call_timeout(Duration::from_millis(500))
///     .connect("memory:")
///     .await?;
/// # let _ = locks;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder<S = ()> {
    store: S,
    /// Whether nobody else can have the store.
    owns_store: bool,
    options: StoreOptions,
    max_ttl: Duration,
    strategy: Strategy,
    sources: Sources,
    host: Option<String>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: (),
            owns_store: true,
            options: StoreOptions::default(),
            max_ttl: LockOptions::MAX_TTL,
            strategy: Strategy::FailFast,
            sources: Sources::system(),
            host: None,
        }
    }
}

impl<S> Builder<S> {
    /// The longest TTL that is accepted; 24 h unless set, at most 366 days.
    pub const fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// What to do when the engine fails, unless a call says otherwise; [`Strategy::FailFast`] unless set.
    ///
    /// Whatever the strategy, an engine that does not answer is not asked by every caller again: after five failures in a
    /// row over at least 200 ms, or two calls without any answer, attempts fail at once until the engine answers a ping, four of which are sent a
    /// second. Renewals and releases are not held back by that, and one
    /// that waits goes on waiting.
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The time limit of every call to the engine; 1 s unless set.
    ///
    /// An operation may make two of them in a row (waiting for a place or for somebody else's call, or once more after
    /// the connection failed): when the engine hangs, a try or a release ends after at most twice this time, and a wait
    /// at most this time after its deadline.
    pub const fn call_timeout(mut self, limit: Duration) -> Self {
        self.options.call_timeout = limit;
        self
    }

    /// The runtime on which the manager renews and releases, and drives its connections. Unless set, it is the one
    /// from which the manager is used first; give it one of its own if yours may be blocked for long.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.options.runtime = Some(runtime);
        self
    }

    /// How this machine is called in tokens and so in what others see of a holder; the host name unless set.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Where random numbers come from; for simulations.
    pub fn sources(mut self, sources: Sources) -> Self {
        self.sources = sources;
        self
    }

    pub(crate) fn checked(&self) -> Result<(), Error> {
        let most = Duration::from_secs(366 * 86_400);
        if self.max_ttl < LockOptions::MIN_TTL || self.max_ttl > most {
            let accepted = format!("accepted is {:?} to 366 days", LockOptions::MIN_TTL);
            return Err(Error::option("max_ttl", &format!("{:?}", self.max_ttl), accepted));
        }
        self.options.check()
    }

    fn finish(self, store: Arc<dyn Store>) -> LockManager {
        let host = self.host.unwrap_or_else(host_name);
        // What others see of it is kept short; names are rarely longer.
        let host: String = host.chars().take(64).collect();
        let core = Core::new(
            (store, self.owns_store),
            self.sources,
            self.max_ttl,
            self.options.call_timeout,
            self.strategy,
            self.options.runtime,
            &host,
        );
        LockManager::new(core)
    }
}

impl Builder {
    /// What engine keys begin with: `shop` makes `shop:lock:order:42`. `clinch` unless set; may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options.prefix = prefix.into();
        self
    }

    /// The time limit of making a connection; 5 s unless set.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.options.connect_timeout = limit;
        self
    }

    /// How many calls may be in flight to the engine at a time; 100 unless set. What is over it waits for its turn, at
    /// most for the call's time limit. An eighth of them, at least one if there are two, is kept for renewals and
    /// releases.
    pub const fn max_in_flight(mut self, calls: usize) -> Self {
        self.options.max_in_flight = calls;
        self
    }

    /// Trusts these authorities, given as PEM, besides the system's when TLS is used.
    pub fn tls_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.options.tls_root_certificates = Some(pem.into());
        self
    }

    /// Connects to the engine that `url` names and makes a round trip to it: `memory:`,
    /// `redis://[user:password@]host[:port][/database]`, `rediss://…` (TLS), `redis+unix:///path/to/socket`.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] or [`Error::InvalidOption`] for what cannot work, [`Error::Engine`] if the engine cannot
    /// be reached within the connect limit, refuses the credentials, is a read-only replica, or is something else.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(self, url: &str) -> Result<LockManager, Error> {
        self.checked()?;
        let store = stores::connect(url, &self.options).await?;
        Ok(self.finish(store))
    }

    /// Uses a store that is already there: one of your own, or one that several managers share.
    pub fn store(self, store: Arc<dyn Store>) -> Builder<Arc<dyn Store>> {
        Builder {
            store,
            owns_store: false,
            options: self.options,
            max_ttl: self.max_ttl,
            strategy: self.strategy,
            sources: self.sources,
            host: self.host,
        }
    }

    /// A memory store of the manager's own.
    pub fn memory(self) -> Builder<Arc<dyn Store>> {
        Builder { owns_store: true, ..self.store(Arc::new(MemoryStore::new())) }
    }
}

impl Builder<Arc<dyn Store>> {
    /// Makes the manager.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a value that cannot work.
    pub fn build(self) -> Result<LockManager, Error> {
        self.checked()?;
        let store = self.store.clone();
        Ok(self.finish(store))
    }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}
