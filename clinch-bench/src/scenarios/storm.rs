//! S4: a thousand tries at once on one key that is held: by the one who tries, or by somebody else.
//!
//! Everybody's tries are run in the same way ([`Together`]), for as little as can be: `join_all` alone took 100 ns for each that
//! was ready at once, most of what a denial takes that needs no engine.
//!
//! While it runs, every storm on a held key must have no winner, and every storm on a free key exactly one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::measure::Sample;
use crate::peers::{Locks, Pending, Taken};
use crate::race::Effort;
use crate::together::Together;

const TRIES: usize = 1_000;
const KEY: &str = "stormed";

pub(super) fn held_here(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(storms(users, 0, effort))
}

pub(super) fn held_elsewhere(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(storms(users, 1, effort))
}

/// The first user storms; `holder` holds.
async fn storms(users: Vec<Arc<dyn Locks>>, holder: usize, effort: Effort) -> Sample {
    let task = tokio::spawn(async move {
        let mut sample = Sample::default();
        let began = Instant::now();
        let mut storms = 0;
        let tries = Together::new(TRIES);
        while storms < effort.count && began.elapsed() < effort.length {
            let Some(held) = users[holder].take(KEY, Duration::from_secs(1)).await else { break };
            let stormed = Instant::now();
            let winners = storm(&tries, &users[0]).await;
            sample.took += stormed.elapsed();
            sample.operations += TRIES as u64;
            if !winners.is_empty() {
                sample.wrong.push(format!("{} won what was held", winners.len()));
            }
            give_back(winners).await;
            held.give_back().await;
            storms += 1;
        }
        // Of these only the winners count.
        let winners = storm(&tries, &users[0]).await;
        sample.figures.insert("winners of a free key", winners.len() as f64);
        if winners.len() != 1 {
            sample.wrong.push(format!("{} winners of a free key", winners.len()));
        }
        give_back(winners).await;
        sample
    });
    task.await.expect("no panic")
}

async fn storm(tries: &Together, user: &Arc<dyn Locks>) -> Vec<Box<dyn Taken>> {
    tries.run(|| user.take(KEY, Duration::ZERO)).await.into_iter().flatten().collect()
}

async fn give_back(winners: Vec<Box<dyn Taken>>) {
    for winner in winners {
        winner.give_back().await;
    }
}
