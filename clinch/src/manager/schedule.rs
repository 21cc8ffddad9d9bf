//! When the head of a line asks the engine again.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until};

use crate::lease::Token;
use crate::store::{Denial, News, Wakeups};

/// As good as never.
const FAR: Duration = Duration::from_secs(86_400 * 365);
/// Two sightings of one lease's end that lie closer than this are the same end.
const SAME_END: Duration = Duration::from_millis(10);

/// What the head knows of when to ask: at once if it never did, then on a wake-up, when the holder's lease should have
/// ended, and after its retry interval. It outlives its head: the next one goes on with it.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    wakeups: Option<Wakeups>,
    woken: bool,
    next_poll: Option<Instant>,
    /// When the holder's lease should have ended, as long as nobody asked because of that.
    holder_end: Option<Instant>,
    /// The end that was asked for last, so that a holder who stays past it is not asked for again and again.
    asked_end: Option<(Token, Instant)>,
    holder: Option<Token>,
    /// When the holder's lease was to end, by the last denial.
    ends: Option<Instant>,
    /// The last call was made because a poll was due, and for no other reason, while a push was to be expected.
    polled: bool,
}

impl Schedule {
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        self.woken || self.next_poll.is_none_or(|at| at <= now) || self.holder_end.is_some_and(|at| at <= now)
    }

    /// Somebody takes it over who asks more often.
    pub(super) fn poll_within(&mut self, pause: Duration) {
        let Some(at) = self.next_poll else { return };
        self.next_poll = Instant::now().checked_add(pause).map_or(Some(at), |mine| Some(at.min(mine)));
    }

    pub(super) const fn is_subscribed(&self) -> bool {
        self.wakeups.is_some()
    }

    pub(super) const fn is_woken(&self) -> bool {
        self.woken
    }

    /// The wake-up that came was for a release of one's own.
    pub(super) const fn ignore_wakeup(&mut self) {
        self.woken = false;
    }

    /// Waits for a wake-up, for ever if none can come.
    ///
    /// Cancel safe: a wake-up that came is kept.
    pub(super) async fn woken(&mut self) {
        match &mut self.wakeups {
            Some(wakeups) => {
                wakeups.next().await;
                self.woken = true;
            }
            None => std::future::pending().await,
        }
    }

    /// Listens from now on, before anything was asked: what the stream told until then is of no use.
    pub(super) fn listen(&mut self, mut wakeups: Wakeups) {
        let _ = wakeups.next().now_or_never();
        self.wakeups = Some(wakeups);
    }

    /// The news that the key is kept for somebody, if the wake-up that came brought some.
    pub(super) fn kept(&mut self) -> Option<News> {
        self.wakeups.as_mut()?.kept()
    }

    /// The call is being sent.
    pub(super) fn asking(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let pushed = self.wakeups.is_some() && !self.woken;
        // A holder whose time was not over and that is gone all the same has given it back.
        self.polled = pushed && due(self.next_poll) && self.ends.is_some_and(|end| now < end);
        self.woken = false;
        if let Some(end) = self.holder_end.take_if(|end| *end <= Instant::now()) {
            self.asked_end = self.holder.clone().map(|holder| (holder, end));
        }
    }

    /// The call was granted: whether a poll found what a push should have told.
    pub(super) const fn has_missed_wakeup(&self) -> bool {
        self.polled
    }

    /// The call was denied; the next poll comes after `pause`.
    pub(super) fn denied(&mut self, denial: &Denial, pause: Duration, subscribe: impl FnOnce() -> Wakeups) {
        self.failed(pause);
        self.wakeups.get_or_insert_with(subscribe);
        self.holder = denial.holder.as_ref().map(|holder| holder.token().clone());
        // One millisecond more, because engines round the time left down.
        let end =
            denial.retry_after.and_then(|left| Instant::now().checked_add(left + Duration::from_millis(1)));
        self.ends = end;
        self.holder_end = end.filter(|end| match (&self.asked_end, &self.holder) {
            (Some((asked, at)), Some(holder)) if asked == holder => *end > *at + SAME_END,
            _ => true,
        });
    }

    /// The call failed; the next one comes after `pause`.
    pub(super) fn failed(&mut self, pause: Duration) {
        let now = Instant::now();
        // A pause that is out of range is one that does not end.
        self.next_poll = Some(now.checked_add(pause).unwrap_or_else(|| now + FAR));
    }

    /// Waits until it is time to ask, at most until that instant: one timer is enough for both.
    ///
    /// Cancel safe: a wake-up that came is kept.
    pub(super) async fn due_by(&mut self, until: Instant) {
        if self.is_due() {
            return;
        }
        let at = [self.next_poll, self.holder_end].into_iter().flatten().min();
        let timer = sleep_until(at.map_or(until, |at| at.min(until)));
        match &mut self.wakeups {
            Some(wakeups) => tokio::select! {
                biased;
                () = wakeups.next() => self.woken = true,
                () = timer => {}
            },
            None => timer.await,
        }
    }
}
