//! A local queue in front of one lease: the tasks of a process pass it on 64 times, then another process may have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::WakeUp;
use crate::peers::{Locks, Pending, Taken};

const PASSES: u32 = 64;

pub(crate) struct LocalQueue {
    wake_up: WakeUp,
    queue: Arc<Mutex<Lease>>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Lease {
    taken: Option<Box<dyn Taken>>,
    passes: u32,
}

struct Turn {
    lease: OwnedMutexGuard<Lease>,
    waiting: Arc<AtomicUsize>,
}

impl LocalQueue {
    pub(crate) async fn connect(url: String) -> Self {
        let wake_up = WakeUp::connect(url).await;
        Self { wake_up, queue: Arc::default(), waiting: Arc::default() }
    }
}

impl Locks for LocalQueue {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        Box::pin(async move {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut lease = self.queue.clone().lock_owned().await;
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if lease.taken.is_none() {
                lease.taken = Some(self.wake_up.take(key, wait).await?);
                lease.passes = 0;
            }
            Some(Box::new(Turn { lease, waiting: self.waiting.clone() }) as Box<dyn Taken>)
        })
    }
}

impl Taken for Turn {
    fn give_back(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.lease.passes += 1;
            if (self.lease.passes >= PASSES || self.waiting.load(Ordering::SeqCst) == 0)
                && let Some(taken) = self.lease.taken.take()
            {
                taken.give_back().await;
            }
        })
    }
}
