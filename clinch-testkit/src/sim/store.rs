//! One process's way to the simulated engine.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use clinch::lease::{Attempt, Claim, ClaimKey, Holder, Mode, Patience, Record, Space, Token};
use clinch::store::{
    Capabilities, Cursor, Denial, ErrorKind, Grant, Kept, Page, Release, Renewal, Revocations, Store,
    StoreError, StoreFuture, Verdict, Wakeups,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Connection, Fate};
use super::{Asked, CALL_LIMIT, Listener, Place, Reply, Request, World};
use crate::history::{Event, FaultKind};

/// A store that reaches the simulated engine over one connection, which it makes anew when it was cut.
pub struct SimStore {
    world: Arc<World>,
    client: usize,
    closed: AtomicBool,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A call that has not gone out yet is not applied; afterwards its outcome is unknown.
struct Sending<'a> {
    attempt: Option<&'a Attempt>,
    sent_at: Option<Instant>,
    /// It went out more than once: another copy may arrive after the answer.
    copied: bool,
}

/// An answer.
struct Answered {
    reply: Reply,
    sent_at: Instant,
    copied: bool,
}

impl SimStore {
    pub(super) fn new(world: Arc<World>, client: usize) -> Self {
        Self { world, client, closed: AtomicBool::new(false), connection: Mutex::default() }
    }

    /// The open connection, or a new one.
    async fn connect(&self) -> Result<Arc<Connection>, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::not_applied(ErrorKind::Closed, "the store was closed"));
        }
        let current = || self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || current().clone().filter(|connection| connection.is_open());
        if let Some(connection) = open() {
            return Ok(connection);
        }
        sleep(self.world.random_ms(self.client, 1..=10)).await;
        if Instant::now() < self.world.state().down_until {
            return Err(StoreError::not_applied(ErrorKind::Unavailable, "connection refused"));
        }
        // Somebody else may have made one meanwhile.
        if let Some(connection) = open() {
            return Ok(connection);
        }
        let connection = Connection::open(&self.world, self.client);
        *current() = Some(connection.clone());
        Ok(connection)
    }

    fn fate(&self, request: &Request) -> Fate {
        let (world, faults, call) = (&self.world, &self.world.faults, request.call());
        let strikes = |kind, chance| world.strikes(kind, call, chance, self.client);
        let mut delay = world.travel(self.client);
        if let Some(id) = strikes(FaultKind::Late, faults.late) {
            delay += world.ms_of(&id, 1000..=3000);
        }
        let lost = strikes(FaultKind::LostRequest, faults.lost_request).is_some();
        Fate {
            delay,
            lost: lost || world.is_cut_off(self.client),
            reply_lost: strikes(FaultKind::LostReply, faults.lost_reply).is_some(),
            twice: strikes(FaultKind::Duplicate, faults.duplicate).is_some(),
        }
    }

    fn cut_soon(&self, connection: &Arc<Connection>, request: &Request) {
        let cut = self.world.strikes(FaultKind::Cut, request.call(), self.world.faults.cut, self.client);
        if let Some(id) = cut {
            let (world, connection) = (self.world.clone(), connection.clone());
            let delay = world.ms_of(&id, 0..=20);
            tokio::spawn(async move {
                sleep(delay).await;
                connection.cut(&world, true);
            });
        }
    }

    /// One call with its time limit, over `over` if that is still open, else over the process's connection.
    async fn call(
        &self,
        request: &Request,
        attempt: Option<&Attempt>,
        over: Option<Arc<Connection>>,
    ) -> Result<Answered, StoreError> {
        let mut sending = Sending { attempt, sent_at: None, copied: false };
        match timeout(CALL_LIMIT, self.exchange(request, &mut sending, over)).await {
            Ok(answer) => answer.map(|(reply, sent_at)| Answered { reply, sent_at, copied: sending.copied }),
            Err(_) if sending.sent_at.is_some() => {
                Err(StoreError::unknown(ErrorKind::Timeout, "no answer in time"))
            }
            Err(_) => Err(StoreError::not_applied(ErrorKind::Timeout, "no connection in time")),
        }
    }

    async fn exchange(
        &self,
        request: &Request,
        sending: &mut Sending<'_>,
        over: Option<Arc<Connection>>,
    ) -> Result<(Reply, Instant), StoreError> {
        let unknown = || StoreError::unknown(ErrorKind::Unavailable, "the connection was cut");
        let mut over = over;
        let mut resent = false;
        loop {
            let connection = match over.take().filter(|connection| connection.is_open()) {
                Some(connection) => connection,
                // What was sent before may still arrive, even if nothing more can be sent.
                None => self
                    .connect()
                    .await
                    .map_err(|error| if sending.sent_at.is_some() { unknown() } else { error })?,
            };
            if let (Request::Acquire(_), Some(refusal)) = (request, connection.refusal()) {
                return Err(if sending.sent_at.is_some() { unknown() } else { refusal });
            }
            let fate = self.fate(request);
            sending.copied |= fate.twice || resent;
            if let Some(token) = request.token() {
                let (client, op) = (self.client, crate::history::operation());
                let (call, connection) = (request.call(), connection.id);
                let sent = Event::Sent { client, op, call, token: token.into(), connection };
                // A copy can be granted after the other was denied: the engine may stall between the two.
                if fate.twice {
                    self.world.recorder.record(sent.clone());
                }
                self.world.recorder.record(sent);
            }
            let sent_at = Instant::now();
            sending.sent_at = Some(sent_at);
            if let Some(attempt) = sending.attempt {
                attempt.sending();
                attempt.route().sending_over(&connection);
            }
            let reply = connection.send(&self.world, request, &fate);
            self.cut_soon(&connection, request);
            match reply.await {
                Ok(reply) => {
                    if let Some(attempt) = sending.attempt.filter(|_| !fate.twice) {
                        // The last acquire that went over a connection says that all before it have arrived.
                        attempt.route().answered_over(&connection);
                    }
                    return match reply {
                        // This copy was refused; another one of the same request may not be.
                        Reply::Busy if fate.twice || resent => Err(StoreError::unknown(
                            ErrorKind::Busy,
                            "the engine was busy for one of two copies",
                        )),
                        Reply::Busy => Err(StoreError::not_applied(ErrorKind::Busy, "the engine is busy")),
                        reply => Ok((reply, sent_at)),
                    };
                }
                Err(_) => {
                    let again = self.world.faults.resent;
                    if self.world.strikes(FaultKind::Resent, request.call(), again, self.client).is_none() {
                        return Err(unknown());
                    }
                    resent = true;
                }
            }
        }
    }
}

impl SimStore {
    /// Carries out a release or a completion.
    async fn end(&self, lease: &Attempt, request: &Request) -> Result<Release, StoreError> {
        let routes = lease.route().unanswered::<Connection>();
        let (over, mut conclusive) = match routes.as_slice() {
            [] => (None, true),
            [(route, _)] if route.is_open() => (Some(route.clone()), true),
            _ => (None, false),
        };
        let answer = self.call(request, None, over.clone()).await?;
        // It may have gone over another one after all: sent again, after the first was cut.
        conclusive &= over.is_none_or(|over| over.is_open());
        // A node of a quorum may be asked again under the same token, and a copy of this must not arrive after that.
        conclusive &= !(answer.copied && self.world.sits_out.is_some());
        match answer.reply {
            Reply::Released { held, woken } => Ok(Release { held, conclusive, woken: Some(woken) }),
            _ => Err(nonsense()),
        }
    }
}

/// What goes out of an attempt, if the engine can serve it.
fn asked(attempt: &Attempt) -> Result<Asked, StoreError> {
    let fenced = |claim: &Claim| claim.fence_floor().is_some() && claim.mode() != Mode::Exclusive;
    let queues = matches!(attempt.patience(), Patience::Queue { .. });
    let plain = matches!(attempt.claims(), [claim] if claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock);
    if attempt.claims().iter().any(fenced) || (queues && !plain) {
        let why = "fences are for exclusive claims, and queues for a single one";
        return Err(StoreError::not_applied(ErrorKind::Unsupported, why));
    }
    Ok(Asked::of(attempt))
}

fn holder(on: &ClaimKey, place: &Place, left: Duration) -> Holder {
    Holder::new(on.clone(), place.mode, place.token.clone(), Some(left)).with_fence(place.fence)
}

fn nonsense() -> StoreError {
    StoreError::unknown(ErrorKind::Protocol, "an answer that does not fit")
}

fn is_yes(reply: &Reply) -> Result<bool, StoreError> {
    match reply {
        Reply::Yes => Ok(true),
        Reply::No => Ok(false),
        _ => Err(nonsense()),
    }
}

impl Store for SimStore {
    fn capabilities(&self) -> Capabilities {
        let mut mine = Capabilities::default();
        mine.shared = true;
        mine.permits = true;
        mine.several = true;
        mine.fences = true;
        mine.fair = true;
        mine.heirs = true;
        mine.records = true;
        mine.wakeups = true;
        mine.list = true;
        mine
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> StoreFuture<'a, Verdict> {
        Box::pin(async move {
            let request = Request::Acquire(asked(attempt)?);
            match self.call(&request, Some(attempt), None).await?.reply {
                Reply::Granted(fences) if fences.iter().all(Option::is_none) => Ok(Verdict::granted()),
                Reply::Granted(fences) => Ok(Verdict::Granted(Grant { fences })),
                Reply::Denied { refusal, left } => {
                    let claim = refusal.claim;
                    let on = attempt.claims().get(claim).ok_or_else(nonsense)?.on();
                    let done = refusal.holder.as_ref().and_then(|place| place.done.clone());
                    let holder = refusal.holder.filter(|_| done.is_none());
                    let holder = holder.map(|place| self::holder(on, &place, left));
                    Ok(Verdict::Denied(Denial { claim, holder, retry_after: Some(left), done }))
                }
                _ => Err(nonsense()),
            }
        })
    }

    fn renew<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let Answered { reply, sent_at, .. } =
                self.call(&Request::Renew(asked(lease)?), None, None).await?;
            Ok(if is_yes(&reply)? { Renewal::Extended { sent_at } } else { Renewal::Lost })
        })
    }

    fn release<'a>(&'a self, lease: &'a Attempt) -> StoreFuture<'a, Release> {
        Box::pin(async move { self.end(lease, &Request::Release(asked(lease)?)).await })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Attempt,
        record: &'a Record,
        ttl: Option<Duration>,
    ) -> StoreFuture<'a, Release> {
        Box::pin(async move {
            if !matches!(lease.claims(), [claim] if claim.on().space.keeps_records()) {
                let why = "records are for a single claim in a space that keeps them";
                return Err(StoreError::not_applied(ErrorKind::Unsupported, why));
            }
            let request = Request::Complete { asked: asked(lease)?, record: record.clone(), ttl };
            self.end(lease, &request).await
        })
    }

    fn wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let (world, client, on) = (self.world.clone(), self.client, on.clone());
        let queued = queued.cloned();
        let id = world.id();
        let (signal, kept) = (Arc::new(Notify::new()), Arc::<Kept>::default());
        let news = kept.clone();
        let subscription = Subscription { world: Arc::downgrade(&world), id };
        let acknowledged = Arc::downgrade(&signal);
        let delay = world.travel(client) + world.travel(client);
        tokio::spawn(async move {
            sleep(delay).await;
            // It may have been given up before it was acknowledged.
            if let Some(signal) = acknowledged.upgrade() {
                signal.notify_one();
                world.state().listeners.push(Listener { id, client, on, queued, signal, kept });
            }
        });
        Wakeups::new(signal, subscription).with_kept(news)
    }

    fn revocations(&self) -> Revocations {
        Revocations::new(self.world.revocations(self.client), true)
    }

    fn inspect<'a>(&'a self, on: &'a ClaimKey) -> StoreFuture<'a, Vec<Holder>> {
        Box::pin(async move {
            match self.call(&Request::Inspect { on: on.clone() }, None, None).await?.reply {
                Reply::Places(places) => {
                    Ok(places.iter().map(|(on, place, left)| holder(on, place, *left)).collect())
                }
                _ => Err(nonsense()),
            }
        })
    }

    fn list(&self, _cursor: Cursor) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            match self.call(&Request::List, None, None).await?.reply {
                Reply::Places(places) => {
                    let holders = places.iter().map(|(on, place, left)| holder(on, place, *left)).collect();
                    Ok(Page { holders, next: None })
                }
                _ => Err(nonsense()),
            }
        })
    }

    fn revoke<'a>(&'a self, on: &'a ClaimKey, token: &'a Token) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let request = Request::Revoke { on: on.clone(), token: token.clone() };
            is_yes(&self.call(&request, None, None).await?.reply)
        })
    }

    fn ping(&self) -> StoreFuture<'_, Duration> {
        Box::pin(async move {
            let began = Instant::now();
            self.call(&Request::Ping, None, None).await?;
            Ok(began.elapsed())
        })
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// Ends a subscription to wake-ups when it is dropped.
struct Subscription {
    world: Weak<World>,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            world.state().listeners.retain(|listener| listener.id != self.id);
        }
    }
}
