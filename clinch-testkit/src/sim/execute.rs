//! The engine at work: requests, what it does with them, and whom it tells.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Claim, ClaimKey, Fence, Mode, Record, Token};
use clinch::store::{Kept, Notice, Revocation};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::engine::role;
use super::{Asked, Asking, EngineTime, Place, Refusal, State, World};
use crate::history::{Call, Event, FaultKind, Placed, Role, Step, Touched};

/// What the engine is asked to do.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Acquire(Asked),
    Renew(Asked),
    Release(Asked),
    Complete { asked: Asked, record: Record, ttl: Option<Duration> },
    Revoke { on: ClaimKey, token: Token },
    Inspect { on: ClaimKey },
    List,
    Ping,
}

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Granted(Vec<Option<Fence>>),
    Denied {
        refusal: Refusal,
        left: Duration,
    },
    Released {
        held: bool,
        woken: usize,
    },
    /// Extended, revoked, there.
    Yes,
    No,
    Places(Vec<(ClaimKey, Place, Duration)>),
    Busy,
}

impl Request {
    pub(super) const fn call(&self) -> Call {
        match self {
            Self::Acquire(_) => Call::Acquire,
            Self::Renew(_) => Call::Renew,
            Self::Release(_) => Call::Release,
            Self::Complete { .. } => Call::Complete,
            Self::Revoke { .. } => Call::Revoke,
            Self::Inspect { .. } | Self::List | Self::Ping => Call::Look,
        }
    }

    /// In whose name it changes something.
    pub(super) const fn token(&self) -> Option<&Token> {
        match self {
            Self::Acquire(asked)
            | Self::Renew(asked)
            | Self::Release(asked)
            | Self::Complete { asked, .. } => Some(&asked.token),
            Self::Revoke { token, .. } => Some(token),
            Self::Inspect { .. } | Self::List | Self::Ping => None,
        }
    }

    const fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Acquire(asked)
            | Self::Renew(asked)
            | Self::Release(asked)
            | Self::Complete { asked, .. } => Some(asked),
            _ => None,
        }
    }

    /// The time it asks for on a claim; none if it asks for no time.
    fn time(&self, claim: &Claim) -> Duration {
        match self {
            Self::Release(_) => Duration::ZERO,
            Self::Complete { ttl, .. } => ttl.unwrap_or_default(),
            _ => claim.ttl(),
        }
    }

    /// The keys that it may change, as they are before it does.
    fn untouched(&self, look: impl Fn(&ClaimKey) -> Vec<Placed>) -> Vec<(ClaimKey, Touched)> {
        let floor = |claim: &Claim| claim.fence_floor().filter(|_| self.call() == Call::Acquire);
        let one = |on: &ClaimKey, claim: Option<&Claim>| {
            let touched = Touched {
                key: on.to_string(),
                role: claim.map_or(Role::Exclusive, |claim| role(claim.mode())),
                of: match claim.map(Claim::mode) {
                    Some(Mode::Permit { of }) => of.get(),
                    _ => 1,
                },
                ttl: claim.map_or(Duration::ZERO, |claim| self.time(claim)),
                floor: claim.and_then(floor).map(Fence::get),
                before: look(on),
                after: Vec::new(),
            };
            (on.clone(), touched)
        };
        match self {
            Self::Acquire(asked)
            | Self::Renew(asked)
            | Self::Release(asked)
            | Self::Complete { asked, .. } => {
                asked.claims.iter().map(|claim| one(claim.on(), Some(claim))).collect()
            }
            Self::Revoke { on, .. } => vec![one(on, None)],
            Self::Inspect { .. } | Self::List | Self::Ping => Vec::new(),
        }
    }
}

/// Whom a release handed its key over to, and when that one had asked.
fn heir(state: &State, request: &Request, touched: &[(ClaimKey, Touched)]) -> Option<(Token, Instant)> {
    let (Request::Release(asked), [(on, touched)]) = (request, touched) else { return None };
    let was_held = |place: &Place| {
        touched.before.iter().any(|before| before.token == (&place.token).into() && before.role.is_held())
    };
    let new =
        |place: &&Place| place.role == Role::Exclusive && place.token != asked.token && !was_held(place);
    let heir = state.table.on(on).iter().find(new)?;
    Some((heir.token.clone(), heir.asked_at?))
}

/// By what a token is named where others may read it.
fn beginning(token: &Token) -> [u8; 16] {
    let mut beginning = [0; 16];
    beginning.iter_mut().zip(token.as_str().as_bytes()).for_each(|(one, byte)| *one = *byte);
    beginning
}

const fn yes(yes: bool) -> Reply {
    if yes { Reply::Yes } else { Reply::No }
}

impl World {
    /// The engine carries a request out: one instant, one change.
    pub(super) fn execute(self: &Arc<Self>, request: &Request, client: usize, connection: u64) -> Reply {
        let Some(token) = request.token() else { return self.look(request) };
        if self.strikes(FaultKind::Busy, request.call(), self.faults.busy, client).is_some() {
            return Reply::Busy;
        }
        let mut guard = self.state();
        let state = &mut *guard;
        let now = self.engine_now(state);
        let mut touched = request.untouched(|on| self.places(state, on));
        let mut reply = self.step(state, request, now);
        for (on, touched) in &mut touched {
            touched.after = self.places(state, on);
        }
        self.replicate(state, &touched);
        let heir = heir(state, request, &touched);
        drop(guard);
        let (patience, queues) = match request.asked().map(|asked| asked.asking) {
            Some(Asking::Again { left, .. }) => (left, false),
            Some(Asking::Queue { left, .. }) => (left, true),
            _ => (Duration::ZERO, false),
        };
        let step = Step {
            node: self.node,
            client,
            call: request.call(),
            connection,
            token: token.into(),
            patience,
            queues,
            inherits: request.asked().is_some_and(Asked::inherits),
            touched: touched.iter().map(|(_, touched)| touched.clone()).collect(),
        };
        self.recorder.record(Event::Step(step));
        let fired: usize =
            touched.iter().map(|(on, touched)| self.tell(on, touched, request, heir.as_ref())).sum();
        if let Reply::Released { woken, .. } = &mut reply {
            *woken = fired;
        }
        if let (Request::Revoke { on, token }, Reply::Yes) = (request, &reply) {
            self.publish(&Revocation { on: on.clone(), token: token.clone() });
        }
        reply
    }

    fn step(&self, state: &mut State, request: &Request, now: EngineTime) -> Reply {
        let (table, rules) = (&mut state.table, &self.rules);
        match request {
            Request::Acquire(asked) => match rules.acquire(table, asked, now) {
                Ok(fences) => Reply::Granted(fences),
                Err(refusal) => {
                    let left = refusal.until.since(now).max(Duration::from_millis(1));
                    Reply::Denied { refusal, left }
                }
            },
            Request::Renew(asked) => yes(rules.renew(table, asked, now)),
            Request::Release(asked) => Reply::Released { held: rules.release(table, asked, now), woken: 0 },
            Request::Complete { asked, record, ttl } => {
                Reply::Released { held: rules.complete(table, asked, record, *ttl, now), woken: 0 }
            }
            Request::Revoke { on, token } => yes(rules.revoke(table, on, token, now)),
            Request::Inspect { .. } | Request::List | Request::Ping => Reply::Yes,
        }
    }

    /// What was changed goes on its way to the replica.
    fn replicate(&self, state: &mut State, touched: &[(ClaimKey, Touched)]) {
        if state.replica.is_none() {
            return;
        }
        for (on, _) in touched.iter().filter(|(_, touched)| touched.before != touched.after) {
            let arrives = Instant::now() + self.replication(state);
            if let Some(replica) = &mut state.replica {
                replica.follow(&state.table, on, arrives);
            }
        }
    }

    fn look(&self, request: &Request) -> Reply {
        let state = self.state();
        let now = self.engine_now(&state);
        let wanted = |on: &ClaimKey| match request {
            Request::Inspect { on: wanted } => wanted == on,
            _ => true,
        };
        let left = |place: &Place| place.expires.since(now).max(Duration::from_millis(1));
        let shown = |place: &Place| place.role.is_held() || place.role == Role::Heir;
        let live = state
            .table
            .iter()
            .filter(|(on, place)| wanted(on) && shown(place) && self.rules.is_live(place, now));
        match request {
            Request::Ping => Reply::Yes,
            _ => Reply::Places(live.map(|(on, place)| (on.clone(), place.clone(), left(place))).collect()),
        }
    }

    /// Tells whom the change of a key concerns: everybody who waits for it when something went, and the heir when it is
    /// kept for one. Says how many streams fired.
    fn tell(
        self: &Arc<Self>,
        on: &ClaimKey,
        touched: &Touched,
        request: &Request,
        inherits: Option<&(Token, Instant)>,
    ) -> usize {
        let there = |placed: &Placed| {
            touched.after.iter().any(|after| after.token == placed.token && after.role == placed.role)
        };
        let heir = touched
            .after
            .iter()
            .find(|after| after.role == Role::Heir && !touched.before.contains(after))
            .map(|heir| heir.token.clone());
        let gives = matches!(request.call(), Call::Release | Call::Complete | Call::Revoke);
        let gone = touched.before.iter().any(|before| before.role != Role::Queued && !there(before));
        match heir {
            Some(heir) => {
                let is_heir = |queued: &Token| heir == queued.into();
                self.wake(
                    |listener| listener.on == *on && listener.queued.as_ref().is_some_and(is_heir),
                    None,
                )
            }
            None if gives && gone => self.wake(|listener| listener.on == *on, inherits),
            None => 0,
        }
    }

    /// Wakes those who are meant, and tells them to whom the key was handed over.
    fn wake(
        self: &Arc<Self>,
        meant: impl Fn(&super::Listener) -> bool,
        heir: Option<&(Token, Instant)>,
    ) -> usize {
        let listeners: Vec<(usize, Arc<Notify>, Arc<Kept>)> = {
            let state = self.state();
            let listening = state.listeners.iter().filter(|listener| meant(listener));
            let told = |listener: &super::Listener| {
                (listener.client, listener.signal.clone(), listener.kept.clone())
            };
            listening.map(told).collect()
        };
        let fired = listeners.len();
        let heir = heir.map(|(token, asked_at)| (beginning(token), *asked_at));
        for (client, signal, kept) in listeners {
            let lost = self.strikes(FaultKind::LostWakeup, Call::Look, self.faults.lost_wakeup, client);
            let delay = self.travel(client);
            if lost.is_none() && !self.is_cut_off(client) {
                tokio::spawn(async move {
                    sleep(delay).await;
                    if let Some((heir, asked_at)) = heir {
                        kept.since_for(heir, asked_at);
                    }
                    signal.notify_one();
                });
            }
        }
        fired
    }

    /// Tells every process of a revocation.
    fn publish(self: &Arc<Self>, revocation: &Revocation) {
        let listeners: Vec<_> =
            self.state().revoked.iter().map(|(client, sender)| (*client, sender.clone())).collect();
        for (client, sender) in listeners {
            let lost =
                self.strikes(FaultKind::LostRevocation, Call::Revoke, self.faults.lost_revocation, client);
            let delay = self.travel(client);
            if lost.is_none() && !self.is_cut_off(client) {
                let revocation = revocation.clone();
                tokio::spawn(async move {
                    sleep(delay).await;
                    // An error only says that nobody listens.
                    let _ = sender.send(Notice::Revoked(revocation));
                });
            }
        }
    }
}
