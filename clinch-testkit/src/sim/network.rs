//! Connections: pipes to the engine, first in, first out, that can be cut.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use clinch::store::StoreError;
use clinch::stores::quorum::Probation;

use super::{Reply, Request, World};
use crate::history::FaultKind;

/// One connection of a process.
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) client: usize,
    /// Until when the server at its end grants nothing.
    probation: Option<Probation>,
    pipe: Mutex<Pipe>,
    changed: Notify,
}

struct Pipe {
    open: bool,
    /// Requests on their way, in order; none arrives before the one in front of it.
    requests: VecDeque<Packet>,
    last_arrival: Instant,
    last_reply: Instant,
    /// Who waits for a reply.
    callers: BTreeMap<u64, oneshot::Sender<Reply>>,
}

struct Packet {
    arrives: Instant,
    request: Request,
    /// Whom the reply goes to; `None` if nobody gets it.
    caller: Option<u64>,
}

/// How a request travels.
pub(super) struct Fate {
    pub(super) delay: Duration,
    pub(super) lost: bool,
    pub(super) reply_lost: bool,
    pub(super) twice: bool,
}

impl Connection {
    /// Opens a connection.
    pub(super) fn open(world: &Arc<World>, client: usize) -> Arc<Self> {
        let now = Instant::now();
        let pipe = Pipe {
            open: true,
            requests: VecDeque::new(),
            last_arrival: now,
            last_reply: now,
            callers: BTreeMap::new(),
        };
        let (id, probation) = (world.id(), world.probation());
        let (pipe, changed) = (Mutex::new(pipe), Notify::new());
        let connection = Arc::new(Self { id, client, probation, pipe, changed });
        world.state().connections.push(Arc::downgrade(&connection));
        tokio::spawn(carry(connection.clone(), Arc::downgrade(world)));
        connection
    }

    fn pipe(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipe().open
    }

    /// Why the server at its end grants nothing, if it does not.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        self.probation.as_ref().and_then(Probation::refusal)
    }

    /// Sends a request. The receiver fails when the connection is cut before the reply is there; a reply that is lost
    /// leaves it waiting.
    pub(super) fn send(&self, world: &World, request: &Request, fate: &Fate) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let id = world.id();
        let mut pipe = self.pipe();
        if !pipe.open {
            return receiver;
        }
        pipe.callers.insert(id, sender);
        if !fate.lost {
            let arrives = pipe.last_arrival.max(Instant::now() + fate.delay);
            pipe.last_arrival = arrives;
            let caller = (!fate.reply_lost).then_some(id);
            pipe.requests.push_back(Packet { arrives, request: request.clone(), caller });
            if fate.twice {
                pipe.requests.push_back(Packet { arrives, request: request.clone(), caller: None });
            }
        }
        drop(pipe);
        self.changed.notify_one();
        receiver
    }

    /// Cuts it: calls in flight fail. Some requests may still be on their way to the engine and arrive later.
    pub(super) fn cut(&self, world: &World, stragglers: bool) {
        let mut pipe = self.pipe();
        if !pipe.open {
            return;
        }
        pipe.open = false;
        pipe.callers.clear();
        let most = pipe.requests.len() as u64;
        let straggler = |chance| {
            let id = world.state().fortune.strikes(FaultKind::Straggler, Some(self.client), chance)?;
            world.fault(&id);
            Some(id)
        };
        let id = Some(world.faults.straggler).filter(|_| stragglers && most > 0).and_then(straggler);
        let (arrive, late) = match id {
            Some(id) => (world.ms_of(&id, 1..=most).as_millis(), world.ms_of(&id, 0..=2000)),
            None => (0, Duration::ZERO),
        };
        pipe.requests.truncate(arrive.try_into().unwrap_or_default());
        for packet in &mut pipe.requests {
            packet.arrives += late;
        }
        drop(pipe);
        self.changed.notify_one();
    }

    /// The first request, if it has arrived; or when that will be.
    fn arrival(&self) -> Result<Packet, Option<Instant>> {
        let mut pipe = self.pipe();
        match pipe.requests.front() {
            Some(packet) if packet.arrives > Instant::now() => Err(Some(packet.arrives)),
            Some(_) => pipe.requests.pop_front().ok_or(None),
            None => Err(None),
        }
    }

    fn is_finished(&self) -> bool {
        let pipe = self.pipe();
        !pipe.open && pipe.requests.is_empty()
    }

    /// Sends a reply back. It is lost if the connection is cut meanwhile.
    fn answer(self: &Arc<Self>, delay: Duration, caller: u64, reply: Reply) {
        let mut pipe = self.pipe();
        let arrives = pipe.last_reply.max(Instant::now() + delay);
        pipe.last_reply = arrives;
        drop(pipe);
        let connection = self.clone();
        tokio::spawn(async move {
            sleep_until(arrives).await;
            let caller = connection.pipe().callers.remove(&caller);
            if let Some(caller) = caller {
                // An error only says that the caller has given up.
                let _ = caller.send(reply);
            }
        });
    }
}

/// Carries requests to the engine as long as there are any.
async fn carry(connection: Arc<Connection>, world: Weak<World>) {
    loop {
        match connection.arrival() {
            Ok(packet) => {
                let Some(world) = world.upgrade() else { return };
                let stalled_until = world.state().stalled_until;
                if stalled_until > Instant::now() {
                    sleep_until(stalled_until).await;
                }
                let reply = world.execute(&packet.request, connection.client, connection.id);
                if let Some(caller) = packet.caller.filter(|_| !world.is_cut_off(connection.client)) {
                    connection.answer(world.travel(connection.client), caller, reply);
                }
            }
            Err(Some(at)) => tokio::select! {
                biased;
                () = connection.changed.notified() => {}
                () = sleep_until(at) => {}
            },
            Err(None) if connection.is_finished() || world.strong_count() == 0 => return,
            Err(None) => connection.changed.notified().await,
        }
    }
}
