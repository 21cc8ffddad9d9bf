//! Many want a report that takes long, and one makes it.
//!
//! `cargo run -p clinch --example single_flight`: the embedded memory engine unless `CLINCH_STORE` names another one. There,
//! the callers may be in as many processes as you like, if their cache is one that they share.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch::{LockManager, LockOptions};
use futures_util::future::try_join_all;
use tokio::sync::RwLock;
use tokio::time::sleep;

const CALLERS: usize = 20;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::var("CLINCH_STORE").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&store).await?;
    let cache: RwLock<Option<String>> = RwLock::default(); // stands for Redis, a database, a file
    let made = AtomicUsize::new(0);

    let calls = (1..=CALLERS).map(|caller| {
        let options = LockOptions::new(Duration::from_secs(10)).renew().wait(Duration::from_secs(60));
        let (cache, made) = (&cache, &made);
        let read = async || Ok::<_, clinch::Error>(cache.read().await.clone());
        let compute = async move |_lease| {
            println!("caller {caller} makes the report …");
            sleep(Duration::from_millis(200)).await;
            made.fetch_add(1, Ordering::Relaxed);
            let report = format!("the report that caller {caller} made");
            // Into the cache before it is returned: the next one reads as soon as the lock is given back.
            *cache.write().await = Some(report.clone());
            Ok(report)
        };
        locks.single_flight("fill:report", options, read, compute)
    });
    let reports = try_join_all(calls).await?;

    let (made, first) = (made.into_inner(), reports.first().ok_or("nobody called")?);
    let same = reports.iter().filter(|report| *report == first).count();
    println!("{same} of {CALLERS} callers have {first}; it was made {made} time(s)");
    locks.shutdown(Duration::from_secs(1)).await;
    if made == 1 { Ok(()) } else { Err("it was made more than once".into()) }
}
