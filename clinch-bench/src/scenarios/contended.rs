//! S3 and S3f: everybody wants the same key, and nobody does anything under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::measure::Sample;
use crate::peers::{Locks, Pending};
use crate::race::Effort;

const TASKS: usize = 32;
const NOBODY: usize = usize::MAX;

/// What the holder of the lock sees and leaves: kept apart from the locks, and right without them.
struct Field {
    began: Instant,
    /// How many are inside now.
    inside: AtomicUsize,
    overlaps: AtomicU64,
    /// The user who was inside last, and when it began to give back, in nanoseconds.
    last_user: AtomicUsize,
    left_at: AtomicU64,
}

#[derive(Default)]
struct Seen {
    done: u64,
    waits: Vec<Duration>,
    hand_overs: Vec<Duration>,
}

impl Field {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Somebody has the lock. Gives the time since the last one began to give it back, if that was another user.
    fn enter(&self, user: usize) -> Option<Duration> {
        let now = self.now();
        if self.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let last = self.last_user.swap(user, Ordering::SeqCst);
        let gap = now.saturating_sub(self.left_at.load(Ordering::SeqCst));
        (last != user && last != NOBODY).then(|| Duration::from_nanos(gap))
    }

    fn leave(&self) {
        self.left_at.store(self.now(), Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn one_key(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(async move {
        let field = Arc::new(Field {
            began: Instant::now(),
            inside: AtomicUsize::new(0),
            overlaps: AtomicU64::new(0),
            last_user: AtomicUsize::new(NOBODY),
            left_at: AtomicU64::new(0),
        });
        // They end with the round, however it ends.
        let mut tasks = JoinSet::new();
        for number in 0..TASKS {
            let place = number % users.len();
            tasks.spawn(work(users[place].clone(), place, field.clone(), effort.length));
        }
        sample(tasks.join_all().await, &field)
    })
}

async fn work(user: Arc<dyn Locks>, place: usize, field: Arc<Field>, length: Duration) -> Seen {
    let mut seen = Seen::default();
    loop {
        let asked = field.began.elapsed();
        let Some(left) = length.checked_sub(asked).filter(|left| !left.is_zero()) else { return seen };
        let taken = user.take("contended", left).await;
        seen.waits.push(field.began.elapsed() - asked);
        let Some(taken) = taken else { continue };
        seen.hand_overs.extend(field.enter(place));
        seen.done += 1;
        field.leave();
        taken.give_back().await;
    }
}

fn sample(seen: Vec<Seen>, field: &Field) -> Sample {
    let took = field.began.elapsed();
    let done: u64 = seen.iter().map(|task| task.done).sum();
    let slowest = seen.iter().map(|task| task.done).min().unwrap_or_default();
    let hand_overs: usize = seen.iter().map(|task| task.hand_overs.len()).sum();
    let mut sample = Sample::new(done, took);
    let mean = done as f64 / seen.len() as f64;
    sample.figures.insert("hand-overs/s", hand_overs as f64 / took.as_secs_f64());
    sample.figures.insert("slowest/mean", if done == 0 { 0.0 } else { slowest as f64 / mean });
    let overlaps = field.overlaps.load(Ordering::SeqCst);
    sample.figures.insert("overlaps", overlaps as f64);
    if overlaps > 0 {
        sample.wrong.push(format!("{overlaps} times more than one was inside"));
    }
    let (mut waits, mut gaps) = (Vec::new(), Vec::new());
    for task in seen {
        waits.extend(task.waits);
        gaps.extend(task.hand_overs);
    }
    sample.times.insert("wait", waits);
    sample.times.insert("hand-over", gaps);
    sample
}
