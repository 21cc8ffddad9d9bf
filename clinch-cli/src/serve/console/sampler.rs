//! Looking at the engine for everybody who watches: one task, one listing at a time, nothing while nobody watches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clinch::lease::ClaimKey;
use clinch::store::Cursor;
use clinch::{Health, Holder, LockManager};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::holder;
use crate::serve::connections::{Phase, Phases};

/// The least time between the beginnings of two listings.
const EVERY: Duration = Duration::from_millis(500);

/// A listing that took long is followed by a pause of so many times as long, within the longest: looking costs the engine a
/// fifth of its time at most, unless there is very much to see.
const PAUSE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How old a sample may be to be shown to one who has just come; one that took long, longer by that and its pause.
const FRESH: Duration = Duration::from_secs(2);

/// How many pages a listing has at most; what is after them is not shown.
const MOST_PAGES: usize = 2_000;

/// How often those who have seen nothing yet are shown what was seen so far.
const FIRST_SIGHT: Duration = Duration::from_secs(1);

/// How long the engine may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(2);

/// How many holders are kept of a listing. The rest is counted.
pub(super) const MOST_ROWS: usize = 10_000;

/// What was seen at one moment.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: SystemTime,
    /// When that was; `None` before the first.
    taken: Option<Instant>,
    /// How long that took.
    took: Duration,
    /// How the engine answered; `None` if it was not asked yet.
    pub(super) engine: Option<Health>,
    pub(super) rows: Vec<Row>,
    /// How many holders were seen, those included that are not in `rows`.
    pub(super) counted: usize,
    /// Whether the listing came to its end.
    pub(super) complete: bool,
    /// How many wait in this process, by key.
    pub(super) waiting: HashMap<ClaimKey, usize>,
}

/// One holder.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) holder: Holder,
    /// What the page calls it. A holder's token would give the right to release.
    pub(super) id: String,
    /// What a search looks at, in lower case.
    pub(super) text: String,
    /// When its lease ends, as far as was known when it was seen.
    pub(super) ends: Option<Instant>,
    /// The longest time left that was seen of it: the whole of its bar.
    pub(super) full: Duration,
}

impl Sample {
    fn none() -> Self {
        Self {
            at: SystemTime::UNIX_EPOCH,
            taken: None,
            took: Duration::ZERO,
            engine: None,
            rows: Vec::new(),
            counted: 0,
            complete: true,
            waiting: HashMap::new(),
        }
    }

    fn is_fresh(&self) -> bool {
        let lasts = FRESH + self.took.saturating_mul(PAUSE + 2).min(LONGEST_PAUSE * 2);
        self.taken.is_some_and(|taken| taken.elapsed() < lasts)
    }
}

/// Looks at the engine while somebody watches.
#[derive(Debug)]
pub(in crate::serve) struct Sampler {
    locks: LockManager,
    latest: watch::Sender<Arc<Sample>>,
    wanted: Notify,
}

impl Sampler {
    pub(in crate::serve) fn new(locks: LockManager) -> Self {
        Self { locks, latest: watch::Sender::new(Arc::new(Sample::none())), wanted: Notify::new() }
    }

    /// Every sample from now on, and the last one if it is hardly older. Whoever is too slow for one gets the next.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Sample>> {
        let mut samples = self.latest.subscribe();
        if self.latest.borrow().is_fresh() {
            samples.mark_changed();
        }
        self.wanted.notify_one();
        samples
    }

    /// The holder that is called so, as it was last seen; one that was not seen is looked for, because nobody may be watching.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Holder>, clinch::Error> {
        let latest = self.latest.borrow().clone();
        if let Some(row) = latest.rows.iter().find(|row| row.id == id) {
            return Ok(Some(row.holder.clone()));
        }
        let mut next = Some(Cursor::START);
        for _ in 0..MOST_PAGES {
            let Some(cursor) = next else { break };
            let page = self.locks.list(cursor).await?;
            if let Some(found) = page.holders.into_iter().find(|holder| holder::id(holder) == id) {
                return Ok(Some(found));
            }
            next = page.next;
        }
        Ok(None)
    }

    /// Looks, until the server drains.
    pub(in crate::serve) async fn run(&self, mut phases: Phases) {
        let looking = async {
            loop {
                if self.latest.is_closed() {
                    self.wanted.notified().await;
                    continue;
                }
                let began = Instant::now();
                let sample = self.look().await;
                let took = began.elapsed();
                self.latest.send_replace(Arc::new(Sample { took, ..sample }));
                sleep_until(began + EVERY).await;
                sleep(took.saturating_mul(PAUSE).min(LONGEST_PAUSE).saturating_sub(EVERY)).await;
            }
        };
        tokio::select! {
            biased;
            () = phases.reached(Phase::Draining) => {}
            () = looking => {}
        }
    }

    async fn look(&self) -> Sample {
        let mut sample = Sample { at: SystemTime::now(), taken: Some(Instant::now()), ..Sample::none() };
        let health = self.locks.health(ANSWER).await;
        let up = health.up;
        sample.engine = Some(health);
        if !up {
            sample.complete = false;
            return sample;
        }
        sample.waiting = self.locks.waiting().into_iter().collect();
        let before = self.latest.borrow().clone();
        let longest_seen: HashMap<&str, Duration> =
            before.rows.iter().map(|row| (row.id.as_str(), row.full)).collect();
        let is_first = !before.is_fresh();
        let (mut pages, mut told) = (0, Instant::now());
        let mut ids = HashSet::new();
        let mut next = Some(Cursor::START);
        while let Some(cursor) = next {
            pages += 1;
            if pages > MOST_PAGES {
                sample.complete = false;
                break;
            }
            if is_first && told.elapsed() >= FIRST_SIGHT {
                told = Instant::now();
                self.latest.send_replace(Arc::new(Sample { complete: false, ..sample.clone() }));
            }
            let page = match self.locks.list(cursor).await {
                Ok(page) => page,
                Err(error) => {
                    if let Some(health) = &mut sample.engine {
                        health.up = false;
                        health.error = Some(error.to_string());
                    }
                    sample.complete = false;
                    break;
                }
            };
            let seen = Instant::now();
            for holder in page.holders {
                let id = holder::id(&holder);
                // An engine may list one twice.
                if !ids.insert(id.clone()) {
                    continue;
                }
                sample.counted += 1;
                if sample.rows.len() < MOST_ROWS {
                    sample.rows.push(row(id, holder, seen, &longest_seen));
                }
            }
            next = page.next;
        }
        sample
    }
}

fn row(id: String, holder: Holder, seen: Instant, longest_seen: &HashMap<&str, Duration>) -> Row {
    let left = holder.remaining();
    let before = longest_seen.get(id.as_str()).copied().unwrap_or_default();
    let owner = holder.owner().map(|owner| owner.to_string()).unwrap_or_default();
    Row {
        text: format!("{}\n{owner}", holder.on()).to_lowercase(),
        ends: left.and_then(|left| seen.checked_add(left)),
        full: before.max(left.unwrap_or_default()),
        id,
        holder,
    }
}
