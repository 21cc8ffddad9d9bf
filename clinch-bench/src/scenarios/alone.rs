//! S1, S2 and S9: nobody is in the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::measure::Sample;
use crate::peers::{Locks, Pending};
use crate::race::Effort;

/// Tasks of S2.
const TASKS: u64 = 256;

/// One task takes one key and gives it back, again and again.
pub(super) fn one_task(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(async move {
        let task = tokio::spawn(async move {
            let (began, mut done) = (Instant::now(), 0);
            while done < effort.count && began.elapsed() < effort.length {
                pair(&*users[0], "alone").await;
                done += 1;
            }
            Sample::new(done, began.elapsed())
        });
        task.await.expect("no panic")
    })
}

/// Many tasks of one user, each with a key of its own.
pub(super) fn own_keys(users: Vec<Arc<dyn Locks>>, effort: Effort) -> Pending<'static, Sample> {
    Box::pin(async move {
        let began = Instant::now();
        // They end with the round, however it ends.
        let mut tasks = JoinSet::new();
        for number in 0..TASKS {
            let user = users[0].clone();
            tasks.spawn(async move {
                let (key, mut done) = (format!("own:{number}"), 0);
                while began.elapsed() < effort.length {
                    pair(&*user, &key).await;
                    done += 1;
                }
                done
            });
        }
        let done = tasks.join_all().await.into_iter().sum();
        Sample::new(done, began.elapsed())
    })
}

async fn pair(user: &dyn Locks, key: &str) {
    // Peers give up now and then where their connections do; what was not taken does not have to be given back.
    if let Some(taken) = user.take(key, Duration::ZERO).await {
        taken.give_back().await;
    }
}
