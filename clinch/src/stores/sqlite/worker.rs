//! The thread of a store: it has the connection, carries steps out in the order in which they came, and listens.
//!
//! SQLite blocks, so nothing of it runs on the runtime. One thread is enough, because a file has one writer at a time anyway;
//! and it makes a release that follows an unanswered acquire certain, because nothing overtakes on the way.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::busy;
use super::error::Fault;
use super::session::{Connected, Done, Kind, Session, Tx, Undone};
use super::site::Site;
use super::sweep::sweep_if_due;
use super::ticket::Ticket;
use super::watch::{Watch, Watcher};
use crate::store::{ErrorKind, StoreError};
use crate::stores::in_flight::{InFlight, Place, Purpose};

/// How long a look may wait for locks while the file is opened.
const LOOK: Duration = Duration::from_millis(100);

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Worker {
    site: Arc<Site>,
    watch: Arc<Watch>,
    in_flight: InFlight,
    most: usize,
    limit: Duration,
    line: Mutex<Line>,
}

/// Dropping the sender ends the thread, once it has carried out what is in the line.
#[derive(Debug, Default)]
struct Line {
    orders: Option<SyncSender<Order>>,
    closed: bool,
}

enum Order {
    Step(Box<dyn Step>),
    /// Look at what is wanted from others.
    Listen,
}

/// A step and the one who waits for its answer.
trait Step: Send {
    /// Sets how long it may wait for locks.
    fn set_limit(&self);

    /// Carries it out, and says whether the connection is still good.
    fn carry_out(self: Box<Self>, session: &mut Session<'_>, watch: &Watch) -> bool;

    /// There is no connection.
    fn fail(self: Box<Self>, error: StoreError);
}

/// An answer, and what came of it besides.
#[derive(Debug)]
pub(super) struct Answer<T> {
    pub(super) answer: T,
    /// How many streams of wake-ups were fired.
    pub(super) woken: usize,
    /// Just before the step looked at anything.
    pub(super) began: Instant,
}

struct Call<T, W> {
    work: W,
    kind: Kind,
    purpose: Purpose,
    ticket: Arc<Ticket>,
    until: std::time::Instant,
    reply: oneshot::Sender<Result<Answer<T>, StoreError>>,
    /// Kept until the step is over, whether anybody still waits or not: so the line is bounded.
    _place: Place,
}

impl Worker {
    pub(super) fn new(site: Arc<Site>, watch: Arc<Watch>, most: usize, limit: Duration) -> Self {
        Self { site, watch, in_flight: InFlight::new(most), most, limit, line: Mutex::default() }
    }

    /// Carries a step out, within the limit of every call.
    pub(super) async fn run<T, W>(
        &self,
        purpose: Purpose,
        kind: Kind,
        ticket: Arc<Ticket>,
        work: W,
    ) -> Result<Answer<T>, StoreError>
    where
        T: Send + 'static,
        W: FnMut(&mut Tx<'_, '_>) -> Result<T, Fault> + Send + 'static,
    {
        self.run_within(self.limit, purpose, kind, ticket, work).await
    }

    pub(super) async fn run_within<T, W>(
        &self,
        limit: Duration,
        purpose: Purpose,
        kind: Kind,
        ticket: Arc<Ticket>,
        work: W,
    ) -> Result<Answer<T>, StoreError>
    where
        T: Send + 'static,
        W: FnMut(&mut Tx<'_, '_>) -> Result<T, Fault> + Send + 'static,
    {
        let deadline = Instant::now() + limit;
        let Ok(place) = timeout_at(deadline, self.in_flight.place(purpose)).await else {
            return Err(self.in_flight.overloaded(limit));
        };
        // Dropped, this future takes back what has not begun.
        let waiting = Waiting(&ticket);
        let (reply, answer) = oneshot::channel();
        // A little earlier than the caller gives up, so that he still hears that nothing was done.
        let until = (deadline - limit / 10).into_std();
        let call = Call { work, kind, purpose, ticket: ticket.clone(), until, reply, _place: place };
        self.order(Order::Step(Box::new(call)))?;
        let answer = timeout_at(deadline, answer).await;
        let path = self.site.path.display();
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(waiting.ended(
                ErrorKind::Unavailable,
                &format!("SQLite at {path}: the thread that carries the steps out has ended"),
            )),
            Err(_) => Err(match ticket.give_up() {
                None => StoreError::not_applied(
                    ErrorKind::Overloaded,
                    format!(
                        "SQLite at {path}: the step had no turn within {limit:?}, because of those before it or because other \
                         processes kept the file locked; send less, or allow more time"
                    ),
                ),
                Some(_) => StoreError::unknown(
                    ErrorKind::Timeout,
                    format!("SQLite at {path} did not finish the step within {limit:?}; is its disk slow?"),
                ),
            }),
        }
    }

    /// Has the thread look at what is wanted from others.
    pub(super) fn listen(&self) {
        // Without a thread nothing is pushed; waiters poll.
        if let Err(error) = self.order(Order::Listen) {
            tracing::debug!(%error, "nobody listens to other processes");
        }
    }

    pub(super) fn close(&self) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        *line = Line { orders: None, closed: true };
    }

    /// Puts an order into the line, and starts the thread if it does not run.
    fn order(&self, mut order: Order) -> Result<(), StoreError> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.closed {
            return Err(StoreError::not_applied(ErrorKind::Closed, "the store was closed"));
        }
        loop {
            let orders = match &line.orders {
                Some(orders) => orders,
                None => line.orders.insert(self.start()?),
            };
            match orders.try_send(order) {
                Ok(()) => return Ok(()),
                // The thread is awake then, and looks anyway.
                Err(TrySendError::Full(Order::Listen)) => return Ok(()),
                // Every step in the line has a place in flight, so this cannot be.
                Err(TrySendError::Full(_)) => return Err(self.in_flight.overloaded(self.limit)),
                // It has panicked. What it was at was rolled back with its connection.
                Err(TrySendError::Disconnected(back)) => {
                    line.orders = None;
                    order = back;
                }
            }
        }
    }

    fn start(&self) -> Result<SyncSender<Order>, StoreError> {
        // One more than steps: there is room for a look, too.
        let (orders, line) = sync_channel(self.most + 1);
        let (site, watch) = (self.site.clone(), self.watch.clone());
        let thread = std::thread::Builder::new().name("clinch-sqlite".to_owned());
        match thread.spawn(move || serve(&site, &watch, &line)) {
            Ok(_) => Ok(orders),
            Err(error) => {
                let message = format!("the system gives no thread for SQLite: {error}");
                Err(StoreError::not_applied(ErrorKind::Unavailable, message).with_source(error))
            }
        }
    }
}

/// A caller that waits for its answer.
struct Waiting<'a>(&'a Ticket);

impl Waiting<'_> {
    fn ended(&self, kind: ErrorKind, message: &str) -> StoreError {
        match self.0.give_up() {
            None => StoreError::not_applied(kind, message),
            Some(_) => StoreError::unknown(kind, message),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl<T, W> Step for Call<T, W>
where
    T: Send,
    W: FnMut(&mut Tx<'_, '_>) -> Result<T, Fault> + Send,
{
    fn set_limit(&self) {
        busy::wait_until(self.until, Some(self.ticket.clone()));
    }

    fn carry_out(mut self: Box<Self>, session: &mut Session<'_>, watch: &Watch) -> bool {
        if !self.ticket.is_wanted() {
            return true;
        }
        let is_new = self.purpose == Purpose::Other && self.kind != Kind::Read || self.kind == Kind::Durable;
        if is_new && let Err(error) = session.has_room() {
            let _ = self.reply.send(Err(error));
            return true;
        }
        let mut done = session.carry_out(self.kind, &self.ticket, &mut self.work);
        if matches!(done, Err(Undone::Failed { full: true, .. })) && session.empty_log() {
            done = session.carry_out(self.kind, &self.ticket, &mut self.work);
        }
        match done {
            Ok(Done { answer, effects, began }) => {
                let woken = usize::try_from(effects.told).unwrap_or(usize::MAX) + watch.fire(&effects);
                // An error only says that its caller has gone.
                let _ = self.reply.send(Ok(Answer { answer, woken, began }));
                true
            }
            Err(Undone::GivenUp) => true,
            Err(Undone::Failed { error, reconnect, .. }) => {
                let _ = self.reply.send(Err(error));
                !reconnect
            }
        }
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}

/// Why a connection is let go of.
enum Left {
    /// The store is gone.
    Store,
    /// It is no good any more, or the file is another one by now; this is still to be done.
    Connection(Option<Order>),
}

/// What the thread does: a round is a connection.
fn serve(site: &Site, watch: &Arc<Watch>, line: &Receiver<Order>) {
    let mut watcher = Watcher::new(watch.clone());
    let mut next = None;
    while let Some(order) = next.take().or_else(|| receive(line, &watcher)) {
        order.set_limit();
        let connected = Connected::to(site);
        let session = connected.as_ref().map_err(Clone::clone).and_then(|to| Session::new(site, to));
        match session {
            Err(error) => order.fail(error),
            Ok(mut session) => match work(site, watch, &mut session, &mut watcher, order, line) {
                Left::Store => return,
                Left::Connection(order) => next = order,
            },
        }
        watcher.disconnected();
    }
}

/// Works on one connection, beginning with this order.
fn work(
    site: &Site,
    watch: &Watch,
    session: &mut Session<'_>,
    watcher: &mut Watcher,
    mut order: Order,
    line: &Receiver<Order>,
) -> Left {
    loop {
        let is_good = match order {
            Order::Step(step) => {
                step.set_limit();
                step.carry_out(session, watch)
            }
            Order::Listen => {
                watcher.hurry();
                true
            }
        };
        if !is_good || !watcher.tend(site, session) || !sweep_if_due(session) {
            return Left::Connection(None);
        }
        match receive(line, watcher) {
            Some(next) => order = next,
            None => {
                watcher.leave(site, session);
                return Left::Store;
            }
        }
        if session.has_moved() {
            return Left::Connection(Some(order));
        }
    }
}

/// The next order; if there is none, a look when it is time for one. `None` when the store is gone.
fn receive(line: &Receiver<Order>, watcher: &Watcher) -> Option<Order> {
    let Some(wait) = watcher.wait() else { return line.recv().ok() };
    match line.recv_timeout(wait) {
        Ok(order) => Some(order),
        Err(RecvTimeoutError::Timeout) => Some(Order::Listen),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

impl Order {
    fn set_limit(&self) {
        match self {
            Self::Step(step) => step.set_limit(),
            Self::Listen => busy::wait_until(std::time::Instant::now() + LOOK, None),
        }
    }

    fn fail(self, error: StoreError) {
        match self {
            Self::Step(step) => step.fail(error),
            Self::Listen => {
                tracing::debug!(%error, "cannot listen to other processes; waiters poll meanwhile");
            }
        }
    }
}
