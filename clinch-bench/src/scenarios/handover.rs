//! S5: from the call of release to the waiter on another connection having its guard, after 15 to 40 ms of nothing.
//!
//! Holder and waiter are tasks of the runtime, as they are in a service: the thread of `main` is none of its workers, and who
//! calls from there measures how fast the kernel wakes one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::measure::Sample;
use crate::peers::{Locks, Pending};
use crate::race::Effort;

const KEY: &str = "handed-over";
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn between_two(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(async move { tokio::spawn(hand_overs(users, effort)).await.expect("no panic") })
}

async fn hand_overs(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Sample {
    let (began, mut times) = (Instant::now(), Vec::new());
    while (times.len() as u64) < effort.count && began.elapsed() < effort.length {
        let Some(held) = users[0].take(KEY, PATIENCE).await else { break };
        let other = users[1].clone();
        let waiter = tokio::spawn(async move {
            let taken = other.take(KEY, PATIENCE).await;
            let has_it = Instant::now();
            if let Some(taken) = taken {
                taken.give_back().await;
            }
            has_it
        });
        let idle = Duration::from_micros(rand::random_range(15_000..40_000));
        tokio::time::sleep(idle).await;
        let released = Instant::now();
        held.give_back().await;
        // Earlier than the release only for those whose lease did not last.
        times.push(waiter.await.expect("no panic").saturating_duration_since(released));
    }
    let mut sample = Sample::new(times.len() as u64, began.elapsed());
    sample.times.insert("hand-over", times);
    sample
}
