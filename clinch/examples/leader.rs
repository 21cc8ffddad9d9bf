//! Leader election: of all instances that run, one leads.
//!
//! `CLINCH_STORE=redis://127.0.0.1:6379 cargo run -p clinch --example leader`: start it twice, and stop the leader with
//! Ctrl-C: the other one leads at once. Kill it with -9: the other one leads when its lease has run out.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::pin::pin;
use std::time::Duration;

use clinch::{Error, LockManager, LockOptions};
use tokio::signal::ctrl_c;
use tokio::time::sleep;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let store = std::env::var("CLINCH_STORE").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&store).await?;
    let me = format!("instance {}", std::process::id());
    // The TTL is how long nobody leads after a leader has died. As long as it lives it is renewed.
    let options = LockOptions::new(Duration::from_secs(5)).renew_for(Duration::MAX);
    let options = options.wait(LockOptions::MAX_WAIT);
    // One and the same for the whole run, so that no Ctrl-C falls between two of them. A service listens for TERM too.
    let mut stop = pin!(ctrl_c());
    loop {
        println!("{me} stands for election");
        let elected = tokio::select! {
            _ = &mut stop => break,
            elected = locks.lock("leader", options.clone()) => elected,
        };
        let guard = match elected {
            Ok(guard) => guard,
            // The engine is away: nobody can be elected until it is back.
            Err(error) if error.is_retryable() => {
                println!("{me} is not elected: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        println!("{me} leads");
        tokio::select! {
            biased; // Whoever no longer leads does nothing more.
            loss = guard.lost() => println!("{me} no longer leads: {loss}"),
            _ = &mut stop => {
                guard.release().await?; // The next one need not wait for the lease to run out.
                println!("{me} steps down");
                break;
            }
            () = lead() => {}
        }
    }
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// What only the leader does. It is dropped at an `.await`, so it must not block; what it writes should carry a fence.
async fn lead() {
    std::future::pending::<()>().await;
}
