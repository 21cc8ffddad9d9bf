//! Two workers contend for one lock: exactly one has it at a time.
//!
//! `cargo run -p clinch --example contend [URL]`: the embedded memory engine unless told otherwise, for instance
//! `redis://127.0.0.1:6379`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::{Duration, Instant};

use clinch::{Error, LockManager, LockOptions};
use tokio::time::sleep;

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    println!("Two workers, one lock `order:42`. Each wants it {ROUNDS} times, for 200 ms.\n");

    let started = Instant::now();
    let (alice, bob) = tokio::join!(work(&locks, "alice", started), work(&locks, "bob", started));
    alice?;
    bob?;

    // A third one does not want to wait: it is told at once who has the lock.
    let guard = locks.lock("order:42", LockOptions::new(Duration::from_secs(10)).label("carol")).await?;
    match locks.lock("order:42", Duration::from_secs(10)).await {
        Ok(_) => println!("two at a time: this cannot happen"),
        Err(error) => println!("\n{:>5} ms  dave   refused: {error}", started.elapsed().as_millis()),
    }
    guard.release().await?;

    let left = locks.shutdown(Duration::from_secs(1)).await;
    println!("\nShut down, nothing left behind: {}", left.is_clean());
    Ok(())
}

async fn work(locks: &LockManager, name: &str, started: Instant) -> Result<(), Error> {
    let options = LockOptions::new(Duration::from_secs(10)).wait(Duration::from_secs(5)).label(name);
    for round in 1..=ROUNDS {
        let guard = locks.lock("order:42", options.clone()).await?;
        println!("{:>5} ms  {name:<6} has it (round {round})", started.elapsed().as_millis());
        sleep(Duration::from_millis(200)).await;
        println!("{:>5} ms  {name:<6} gives it back", started.elapsed().as_millis());
        guard.release().await?;
    }
    Ok(())
}
