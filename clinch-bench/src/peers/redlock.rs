//! `redlock`: blocking, and a new connection for every step. It runs on threads for blocking work here, as one would have to
//! run it in an asynchronous program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock::{Lock, RedLock};
use tokio::task::spawn_blocking;

use super::{Contender, Kind, Locks, Pending, TTL, Taken};

const NOTE: &str = "redlock: blocking, with a new connection for every step; run by spawn_blocking";

struct Redlock(Arc<RedLock>);

struct Guard {
    redlock: Arc<RedLock>,
    resource: Vec<u8>,
    val: Vec<u8>,
    validity_time: usize,
}

pub(super) fn contenders() -> [Contender; 2] {
    [
        Contender::new("redlock", Kind::Peer, |url| async move { Redlock::new(url, None) }).noted(NOTE),
        Contender::new("redlock, best", Kind::Peer, |url| async move { Redlock::new(url, Some(5)) })
            .noted(NOTE),
    ]
}

impl Redlock {
    fn new(url: String, pause_ms: Option<u32>) -> Self {
        let mut redlock = RedLock::new(vec![url]);
        if let Some(pause_ms) = pause_ms {
            redlock.set_retry(1, pause_ms);
        }
        Self(Arc::new(redlock))
    }
}

impl Locks for Redlock {
    fn take<'a>(&'a self, key: &'a str, wait: Duration) -> Pending<'a, Option<Box<dyn Taken>>> {
        let (redlock, resource) = (self.0.clone(), key.as_bytes().to_vec());
        Box::pin(async move {
            let taken = spawn_blocking(move || {
                let began = Instant::now();
                loop {
                    // It runs out of ports now and then, which is its own doing.
                    if let Ok(Some(lock)) = redlock.lock(&resource, TTL.as_millis() as usize) {
                        let (val, validity_time) = (lock.val, lock.validity_time);
                        return Some(Guard { redlock: redlock.clone(), resource, val, validity_time });
                    }
                    if began.elapsed() >= wait {
                        return None;
                    }
                }
            });
            taken.await.expect("redlock does not panic").map(|guard| Box::new(guard) as Box<dyn Taken>)
        })
    }
}

impl Taken for Guard {
    fn give_back(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let released = spawn_blocking(move || {
                let Self { redlock, resource, val, validity_time } = *self;
                redlock.unlock(&Lock { resource, val, validity_time, lock_manager: &redlock });
            });
            released.await.expect("redlock does not panic");
        })
    }
}
