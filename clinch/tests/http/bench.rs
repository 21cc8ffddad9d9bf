//! A guarded handler that tells what becomes of it, on an engine that tells what is left in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::MethodRouter;
use clinch::LockManager;
use clinch::http::Web;
use clinch::stores::memory::MemoryStore;
use clinch::submit::{Disconnect, DuplicatePolicy, Guards, LimitPolicy, LockPolicy, Settings};
use clinch_testkit::server::RedisServer;
use tokio::sync::{Semaphore, watch};
use tokio::task;
use tokio::time::{Instant, sleep, timeout};

use crate::common::LONG;

/// An interval or TTL that no test outlives.
pub(crate) const HELD: Duration = Duration::from_secs(30);

/// An engine, on which every case has a manager of its own that shares nothing with the others.
pub(crate) enum Engine {
    Memory,
    Redis(RedisServer),
}

impl Engine {
    pub(crate) fn both() -> [Self; 2] {
        [Self::Memory, Self::Redis(RedisServer::start())]
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// Guards for one case.
    pub(crate) async fn case(&self) -> Case<'_> {
        self.case_with(Settings::new()).await
    }

    pub(crate) async fn case_with(&self, settings: Settings) -> Case<'_> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("case{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let store = MemoryStore::new();
        // A busy machine is not what is tested here.
        let builder = LockManager::builder().call_timeout(LONG);
        let locks = match self {
            Self::Memory => builder.store(Arc::new(store.clone())).build().unwrap(),
            Self::Redis(server) => builder.prefix(&prefix).connect(&server.url()).await.unwrap(),
        };
        let web = Web::new(Guards::new(locks.clone()).with_settings(settings).unwrap());
        Case { engine: self, prefix, store, locks, web }
    }
}

/// Guards of one case, and a look at what is left in the engine.
pub(crate) struct Case<'a> {
    engine: &'a Engine,
    prefix: String,
    store: MemoryStore,
    pub(crate) locks: LockManager,
    pub(crate) web: Web,
}

impl Case<'_> {
    /// How much is in the engine: leases, records, queues.
    pub(crate) fn left(&self) -> usize {
        match self.engine {
            Engine::Memory => self.store.len(),
            Engine::Redis(server) => server.keys(&format!("{}:*", self.prefix)).len(),
        }
    }

    /// Waits until nothing is in the engine.
    pub(crate) async fn free(&self) {
        eventually("nothing is left in the engine", || self.left() == 0).await;
    }

    /// Waits until the manager has done all that it does in the background, and ends it.
    pub(crate) async fn settle(&self) {
        let left = self.locks.shutdown(LONG).await;
        assert!(left.is_clean(), "{left:?}");
    }
}

/// Waits until something that only the engine can tell is true; the pause is not what makes it so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// The three guards that a layer can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Duplicate,
    Lock,
    Limit,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Duplicate, Self::Lock, Self::Limit];

    /// The handler behind this guard, with its default if nothing is said of clients that go away.
    pub(crate) fn guard<S: Clone + Send + Sync + 'static>(
        self,
        web: &Web,
        handler: MethodRouter<S>,
        disconnect: Option<Disconnect>,
    ) -> MethodRouter<S> {
        match self {
            Self::Duplicate => {
                let mut policy = DuplicatePolicy::new().interval(HELD);
                if let Some(disconnect) = disconnect {
                    policy = policy.disconnect(disconnect);
                }
                handler.layer(web.duplicate(policy).unwrap())
            }
            Self::Lock => {
                let mut policy = LockPolicy::new("order").ttl(HELD);
                if let Some(disconnect) = disconnect {
                    policy = policy.disconnect(disconnect);
                }
                handler.layer(web.lock(policy).unwrap())
            }
            Self::Limit => {
                let mut policy = LimitPolicy::new("export", 1).ttl(HELD);
                if let Some(disconnect) = disconnect {
                    policy = policy.disconnect(disconnect);
                }
                handler.layer(web.limit(policy).unwrap())
            }
        }
    }

    /// The status of its refusals.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::Duplicate => 429,
            Self::Lock => 409,
            Self::Limit => 503,
        }
    }
}

/// What has happened so far, and how often.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Requests that came to the outside of the guard, and were polled once.
    pub(crate) arrived: usize,
    /// Requests that were dropped before they were answered.
    pub(crate) left: usize,
    /// Requests that panicked all the way through.
    pub(crate) panicked: usize,
    /// Handlers that began, ran to their end, or were dropped before.
    pub(crate) entered: usize,
    pub(crate) finished: usize,
    pub(crate) dropped: usize,
    /// The tasks in which the last one began and ended.
    pub(crate) began_in: Option<task::Id>,
    pub(crate) ended_in: Option<task::Id>,
}

/// A handler that runs until it is let go, and tells what becomes of it.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) gate: Arc<Semaphore>,
    seen: Arc<watch::Sender<Seen>>,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), seen: Arc::new(watch::Sender::new(Seen::default())) }
    }

    /// Lets so many handlers go.
    pub(crate) fn open(&self, handlers: usize) {
        self.gate.add_permits(handlers);
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until this has happened.
    pub(crate) async fn until(&self, what: &str, happened: impl FnMut(&Seen) -> bool) -> Seen {
        let mut looking = self.seen.subscribe();
        match timeout(LONG, looking.wait_for(happened)).await {
            Ok(seen) => seen.unwrap().clone(),
            Err(_) => panic!("{what}: not within {LONG:?}: {:?}", self.seen()),
        }
    }

    fn tell(&self, tell: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(tell);
    }

    /// The handler.
    pub(crate) async fn run(self) -> &'static str {
        let mut running = Running { probe: &self, finished: false };
        self.tell(|seen| {
            seen.entered += 1;
            seen.began_in = task::try_id();
        });
        self.gate.acquire().await.unwrap().forget();
        running.finished = true;
        "done"
    }

    /// The same as a route, whatever is sent to it.
    pub(crate) fn handler(&self) -> MethodRouter {
        let probe = self.clone();
        axum::routing::post(move || probe.clone().run())
    }

    /// Watches the requests to this app from outside of all its layers.
    pub(crate) fn watch(&self, app: Router) -> Router {
        let probe = self.clone();
        app.layer(from_fn(move |request: Request, next: Next| probe.clone().pass(request, next)))
    }

    async fn pass(self, request: Request, next: Next) -> Response {
        let mut passing = Passing { probe: &self, answered: false };
        let mut running = std::pin::pin!(next.run(request));
        let polled = std::future::poll_fn(|context| Poll::Ready(running.as_mut().poll(context))).await;
        self.tell(|seen| seen.arrived += 1);
        let response = match polled {
            Poll::Ready(response) => response,
            Poll::Pending => running.await,
        };
        passing.answered = true;
        response
    }
}

/// A handler that is running.
struct Running<'a> {
    probe: &'a Probe,
    finished: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let finished = self.finished;
        self.probe.tell(|seen| {
            let ended = if finished { &mut seen.finished } else { &mut seen.dropped };
            *ended += 1;
            seen.ended_in = task::try_id();
        });
    }
}

/// A request on its way through the layers.
struct Passing<'a> {
    probe: &'a Probe,
    answered: bool,
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let answered = self.answered;
        self.probe.tell(|seen| {
            if std::thread::panicking() {
                seen.panicked += 1;
            } else if !answered {
                seen.left += 1;
            }
        });
    }
}
