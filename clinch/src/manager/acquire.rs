//! Taking leases: what is answered here, what is asked of the engine, and when it is asked again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::core::Core;
use super::held::{Held, Standing, Telling};
use super::line::{Answer, Entry, Flight, HeadTurn, LineSeat, Ride, Rider, Role, Shape, local_denial};
use super::options::LockOptions;
use super::release::Releases;
use crate::error::DeniedBy;
use crate::lease::{Attempt, Claim, ClaimKey};
use crate::store::{Denial, Effect, ErrorKind, StoreError, Verdict};

/// How often a call goes out again after the connection failed under it.
const RECONNECTS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long a try waits for the head of a line to ask, before it asks itself.
const HEAD_PATIENCE: Duration = Duration::from_millis(20);
const OWN_RELEASE: &str = "the release of this process's own lease on it";
const SHARED_CALL: &str = "another caller's call on it, which this one shares (is its future being polled?),";

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Reply {
    Granted(Granted),
    Denied(Denial, DeniedBy),
    Failed(StoreError),
    ShutDown,
}

/// A lease that was granted and has no guard yet: dropped on the way, it is given back.
#[derive(Debug)]
pub(super) struct Granted {
    held: Arc<Held>,
    claimed: bool,
    releases: Arc<Releases>,
}

impl Granted {
    /// Hands the lease to its guard.
    pub(super) fn claim(mut self) -> Arc<Held> {
        self.claimed = true;
        self.held.clone()
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if !self.claimed && self.held.begin_release() != Telling::Nothing {
            self.releases.push(self.held.clone());
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Denied(denial) => Self::Denied(denial, DeniedBy::Lock),
            Answer::Failed(error) => Self::Failed(error),
        }
    }
}

/// A wish for one exclusive place, checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) on: ClaimKey,
    pub(super) options: LockOptions,
    pub(super) shape: Shape,
}

impl Plan {
    pub(super) fn new(on: ClaimKey, options: LockOptions) -> Self {
        let shape = Shape { ttl: options.ttl, label: options.label.clone() };
        Self { on, options, shape }
    }
}

impl Core {
    /// Takes the lease, waiting as long as the plan allows.
    pub(super) async fn acquire(self: &Arc<Self>, plan: &Plan) -> Reply {
        if self.closing.is_closed() {
            return Reply::ShutDown;
        }
        self.ensure_background();
        if plan.options.wait.is_zero() { self.try_once(plan).await } else { self.wait_in_line(plan).await }
    }

    /// Answers at once: from what this process knows, from a call that is asked after this moment, or by asking.
    async fn try_once(&self, plan: &Plan) -> Reply {
        // Sharing somebody's call may take that call's time and then one's own.
        let limit = Instant::now() + self.call_timeout * 2;
        loop {
            match self.lines.enter(&plan.on, &plan.shape) {
                Entry::HeldHere(held) => {
                    self.background.heard.watch(&held);
                    return Reply::Denied(local_denial(&held), DeniedBy::Lock);
                }
                Entry::Releasing(held) => {
                    if timeout_at(limit, held.over()).await.is_err() {
                        return Reply::Failed(no_answer(OWN_RELEASE));
                    }
                }
                Entry::Ask(role) => return self.ask_until(limit, role, plan).await,
                Entry::Ride(rider) => return self.ride(&rider, limit, plan).await,
            }
        }
    }

    /// Shares a call that is asked after this moment.
    async fn ride(&self, rider: &Rider<'_>, limit: Instant, plan: &Plan) -> Reply {
        let mut patience = Instant::now() + HEAD_PATIENCE;
        loop {
            match timeout_at(patience.min(limit), rider.next()).await {
                Ok(Ride::Answered(answer)) => return answer.into(),
                Ok(Ride::Ask(role)) => return self.ask_until(limit, role, plan).await,
                Err(_) if Instant::now() >= limit => return Reply::Failed(no_answer(SHARED_CALL)),
                // The head was called and has not begun to ask: nobody may be polling it.
                Err(_) => match rider.overtake() {
                    Some(role) => return self.ask_until(limit, role, plan).await,
                    None => patience += HEAD_PATIENCE,
                },
            }
        }
    }

    /// Stands in line; asks only as its head.
    async fn wait_in_line(&self, plan: &Plan) -> Reply {
        let deadline = Instant::now() + plan.options.wait;
        // Whom nobody stands in the way of has the time of one call, however short the wait.
        let grace = deadline + self.call_timeout;
        let mut seat = self.lines.join(&plan.on, &plan.shape);
        let mut last = None;
        loop {
            if self.closing.is_closed() {
                return Reply::ShutDown;
            }
            let turn = seat.turn();
            let until = match &turn {
                HeadTurn::Local(held) if last.is_none() && held.standing() == Standing::Releasing => grace,
                _ => deadline,
            };
            let event = async {
                match turn {
                    HeadTurn::NotHead | HeadTurn::Busy => seat.called().await,
                    HeadTurn::Idle => seat.called_or_due().await,
                    HeadTurn::Local(held) => {
                        let heard = &self.background.heard;
                        let since = heard.since();
                        heard.watch(&held);
                        tokio::select! {
                            biased;
                            () = seat.called() => {}
                            () = held.over() => {}
                            () = heard.begun_after(since) => {}
                        }
                    }
                    HeadTurn::Ask(role) => return Some(role),
                }
                None
            };
            let role = tokio::select! {
                biased;
                role = event => role,
                () = sleep_until(until) => return self.in_the_end(last, until == grace, plan),
                () = self.closing.closed() => return Reply::ShutDown,
            };
            let Some(role) = role else { continue };
            seat.schedule().asking();
            let reply = if last.is_none() {
                self.ask_until((Instant::now() + self.call_timeout).min(grace), role, plan).await
            } else {
                match timeout_at(deadline, self.ask(role, plan)).await {
                    Ok(reply) => reply,
                    Err(_) => return self.in_the_end(last, false, plan),
                }
            };
            if let Some(reply) = self.final_or_later(reply, plan, &mut seat, &mut last) {
                return reply;
            }
            if Instant::now() >= deadline {
                return self.in_the_end(last, false, plan);
            }
        }
    }

    /// Sorts a reply to the head: one to go home with, or one after which it asks again later.
    fn final_or_later(
        &self,
        reply: Reply,
        plan: &Plan,
        seat: &mut LineSeat<'_>,
        last: &mut Option<(Reply, Instant)>,
    ) -> Option<Reply> {
        let pause = || self.sources.jittered(plan.options.retry_interval);
        match &reply {
            Reply::Denied(denial, _) => {
                seat.schedule().denied(denial, pause(), || self.store.wakeups(&plan.on, None));
            }
            Reply::Failed(error) if error.is_retryable() => seat.schedule().failed(pause()),
            Reply::Granted(_) | Reply::Failed(_) | Reply::ShutDown => return Some(reply),
        }
        *last = Some((reply, Instant::now()));
        None
    }

    /// As [`ask`](Self::ask), at most until `limit`: then the role is dropped, which takes back what may be granted.
    async fn ask_until(&self, limit: Instant, role: Role<'_>, plan: &Plan) -> Reply {
        timeout_at(limit, self.ask(role, plan)).await.unwrap_or_else(|_| {
            let message = format!("no answer in time (limit of a call: {:?})", self.call_timeout);
            Reply::Failed(StoreError::unknown(ErrorKind::Timeout, message))
        })
    }

    /// The reply to a waiter whose time is over: what it was told last, or what is known to one that never came to ask.
    fn in_the_end(&self, last: Option<(Reply, Instant)>, only_release: bool, plan: &Plan) -> Reply {
        match last {
            Some((Reply::Denied(denial, cause), at)) => Reply::Denied(denial.aged(at.elapsed()), cause),
            Some((reply, _)) => reply,
            // The key may well be free: only the answer to this process's own release is missing.
            None if only_release => Reply::Failed(no_answer(OWN_RELEASE)),
            None => Reply::Denied(self.lines.denial(&plan.on), DeniedBy::Lock),
        }
    }

    /// Asks the engine; again with the same token where the connection failed or the engine was busy for a moment.
    async fn ask(&self, mut role: Role<'_>, plan: &Plan) -> Reply {
        if self.closing.is_closed() {
            return Reply::ShutDown;
        }
        let began = Instant::now();
        let flight = role.begin(|| Flight {
            attempt: Arc::new(self.new_attempt(plan)),
            boot_at: self.sources.boot_now(),
            doubtful: false,
            heard_since: self.background.heard.since(),
        });
        let mut asked = 0;
        let mut pause = FIRST_PAUSE;
        let verdict = loop {
            match self.store.acquire(&flight.attempt).await {
                Ok(verdict) => break Ok(verdict),
                Err(error) => {
                    flight.doubtful |= error.effect() == Effect::Unknown;
                    asked += 1;
                    let in_time = began.elapsed() + pause < self.call_timeout;
                    let again = match error.kind() {
                        ErrorKind::Unavailable => asked <= RECONNECTS,
                        ErrorKind::Busy | ErrorKind::ReadOnly => true,
                        _ => false,
                    };
                    if !(again && in_time) {
                        break Err(error);
                    }
                }
            }
            sleep(self.sources.jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        let flight = flight.clone();
        match verdict {
            Ok(Verdict::Granted(_)) => {
                let sent_at = flight.attempt.sent_at().unwrap_or(began);
                let window = self.window(&flight.attempt, sent_at, flight.boot_at);
                let held = Arc::new(Held::granted(flight.attempt, window, flight.heard_since));
                if self.closing.is_closed() {
                    role.take_back();
                    return Reply::ShutDown;
                }
                let unusable = if role.is_revoked() {
                    // It was ended by force before its answer came; asked for more than once, it may be granted anew.
                    Some(DeniedBy::Revoked)
                } else {
                    held.remaining().is_zero().then_some(DeniedBy::TooLate)
                };
                if let Some(cause) = unusable {
                    role.take_back();
                    return Reply::Denied(Denial::default(), cause);
                }
                role.granted(&held);
                Reply::Granted(Granted { held, claimed: false, releases: self.releases.clone() })
            }
            Ok(Verdict::Denied(denial)) => {
                role.denied(&denial);
                Reply::Denied(denial, DeniedBy::Lock)
            }
            Err(error) => {
                role.failed(&error);
                Reply::Failed(error)
            }
        }
    }

    fn new_attempt(&self, plan: &Plan) -> Attempt {
        let token = self.new_token(plan.options.label.as_deref());
        Attempt::one(token, Claim::exclusive(plan.on.key.clone(), plan.options.ttl))
    }
}

fn no_answer(to: &str) -> StoreError {
    StoreError::not_applied(ErrorKind::Timeout, format!("{to} was not answered in time"))
}
