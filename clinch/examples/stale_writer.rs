//! A writer that was stopped past its lease comes back, believes that it still has the lock, and writes: its fence gives it
//! away, and the write is refused.
//!
//! `cargo run -p clinch --example stale_writer [-- --store URL]`, or with `CLINCH_STORE=URL`: the embedded memory engine
//! unless told otherwise, for instance `redis://127.0.0.1:6379`. It ends with 0 only if the late write was refused.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clinch::fencing::FencedRegister;
use clinch::stores::memory::MemoryStore;
use clinch::{LockManager, LockOptions};
use tokio::time::sleep;

const TTL: Duration = Duration::from_millis(500);

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // Two processes, as far as the engine can tell.
    let [alices, bobs] = two_managers(&store()).await?;
    // The resource: it remembers the highest fence that it has seen.
    let balance = FencedRegister::new();
    let started = Instant::now();
    let say = |who, what: String| println!("{:>5} ms  {who:<8} {what}", started.elapsed().as_millis());

    let options = LockOptions::new(TTL).fenced();
    let alice = alices.lock("account:7", options.clone().label("alice")).await?;
    let alices_fence = alice.fence().ok_or("the engine gave no fence")?;
    say("alice", format!("has the lock for {TTL:?}, with fence {alices_fence}"));
    say("alice", "is about to write 100, and is stopped. Nothing renews her lease".to_owned());
    let stopped = sleep(TTL * 2);

    let bob = bobs.lock("account:7", options.wait(Duration::from_secs(30)).label("bob")).await?;
    let bobs_fence = bob.fence().ok_or("the engine gave no fence")?;
    say("bob", format!("has waited until her lease ran out, and has the lock, with fence {bobs_fence}"));
    balance.write(bobs_fence, 200)?;
    say("bob", "writes 200".to_owned());

    stopped.await;
    // If she looked, she would know: `alice.is_valid()` is false. But she was stopped after she had looked.
    say("alice", format!("goes on where she was, and writes 100 with fence {alices_fence}"));
    let late = balance.write(alices_fence, 100);
    let kept = balance.read().map(|(_, value)| value);
    match late {
        Err(stale) if kept == Some(200) => say("balance", format!("{stale}. It is still 200")),
        _ => return Err(format!("the late write was taken: the balance is {kept:?}").into()),
    }

    bob.release().await?;
    for locks in [alices, bobs] {
        locks.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn store() -> String {
    let given = std::env::args().skip_while(|arg| arg != "--store").nth(1);
    given.or_else(|| std::env::var("CLINCH_STORE").ok()).unwrap_or_else(|| "memory:".to_owned())
}

async fn two_managers(url: &str) -> Result<[LockManager; 2], clinch::Error> {
    if url == "memory:" {
        // Every `connect("memory:")` would have an engine of its own.
        let engine = Arc::new(MemoryStore::new());
        let on_it = || LockManager::builder().store(engine.clone()).build();
        return Ok([on_it()?, on_it()?]);
    }
    Ok([LockManager::connect(url).await?, LockManager::connect(url).await?])
}
