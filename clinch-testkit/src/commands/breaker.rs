//! An engine that does not answer costs callers that go on without it next to nothing, and is used again as soon as it is
//! back.

use std::time::{Duration, Instant};

use clinch::{LockManager, LockOptions, Outcome, Strategy};
use clinch_testkit::server::RedisServer;
use tokio::time::sleep;

const MOST_FOR_ALL: Duration = Duration::from_secs(5);
const MOST_TO_RECOVER: Duration = Duration::from_secs(2);
/// Long enough that a try whose grant nobody took back is found at the end.
const TTL: Duration = Duration::from_secs(60);
const LEASES: usize = 100;
const LEASE_TTL: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many tries while the engine does not answer.
    #[arg(long, default_value_t = 10_000)]
    tries: usize,
    /// All tries on one key, instead of each on its own: what the first may have been granted cannot be taken back
    /// meanwhile.
    #[arg(long)]
    one_key: bool,
}

/// In what way the engine does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// It goes on later, with all it had.
    Stopped,
    /// It comes back with nothing.
    Killed,
}

pub(crate) async fn run(args: &Args) -> bool {
    let stopped = survive(Outage::Stopped, args).await;
    let killed = survive(Outage::Killed, args).await;
    stopped && killed
}

async fn survive(outage: Outage, args: &Args) -> bool {
    let server = RedisServer::start();
    let manager = LockManager::builder().strategy(Strategy::Proceed).connect(&server.url()).await.unwrap();
    let mut leases = Vec::new();
    for i in 0..LEASES {
        let options = LockOptions::new(LEASE_TTL).renew();
        leases.push(manager.lock(format!("lease:{i}"), options).await.unwrap());
    }

    match outage {
        Outage::Stopped => server.stop(),
        Outage::Killed => server.kill(),
    }
    let (took, unprotected) = try_often(&manager, args).await;

    match outage {
        Outage::Stopped => server.cont(),
        Outage::Killed => server.restart(),
    }
    let recovered = recovery(&manager).await;
    // By then all of them were renewed once more, or found to be gone.
    sleep(LEASE_TTL / 2).await;
    let valid = leases.iter().filter(|lease| lease.is_valid()).count();
    let expected = if outage == Outage::Stopped { LEASES } else { 0 };

    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), outage == Outage::Stopped);
    }
    let clean = manager.shutdown(Duration::from_secs(10)).await.is_clean();
    let left = server.keys("*");
    println!(
        "Redis {}: {unprotected} of {} tries on {} unprotected in {took:.2?}; protected again {recovered:.2?} after it was \
         back; {valid} of {LEASES} leases from before valid (expected {expected}); left behind: {left:?}",
        match outage {
            Outage::Stopped => "stopped",
            Outage::Killed => "killed and restarted empty",
        },
        args.tries,
        if args.one_key { "one key" } else { "as many keys" },
    );
    unprotected == args.tries
        && took < MOST_FOR_ALL
        && recovered < MOST_TO_RECOVER
        && valid == expected
        && clean
        && left.is_empty()
}

/// Tries one after another; how long that took, and how many went on unprotected. Gives up once it has failed.
async fn try_often(manager: &LockManager, args: &Args) -> (Duration, usize) {
    let (started, mut unprotected) = (Instant::now(), 0);
    for i in 0..args.tries {
        let key = if args.one_key { "key".to_owned() } else { format!("key:{i}") };
        let outcome = manager.attempt(key, TTL).await.unwrap();
        unprotected += usize::from(matches!(outcome, Outcome::Unprotected(_)));
        if started.elapsed() > MOST_FOR_ALL {
            break;
        }
    }
    (started.elapsed(), unprotected)
}

/// How long after the engine was back the first attempt was protected.
async fn recovery(manager: &LockManager) -> Duration {
    let back = Instant::now();
    while back.elapsed() < MOST_TO_RECOVER * 5 {
        if let Outcome::Acquired(guard) = manager.attempt("after", TTL).await.unwrap() {
            let recovered = back.elapsed();
            guard.release().await.unwrap();
            return recovered;
        }
        sleep(Duration::from_millis(5)).await;
    }
    Duration::MAX
}
