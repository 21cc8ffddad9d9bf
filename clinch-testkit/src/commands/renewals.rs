//! Many leases that are renewed, on one manager: none is lost, and few calls do it.

use std::time::{Duration, Instant};

use clinch::{LockGuard, LockManager, LockOptions, Outcome};
use clinch_testkit::server::RedisServer;
use tokio::time::sleep;

/// How many are taken in one exchange.
const GROUP: usize = 500;
/// For how many TTLs they are watched.
const TTLS: u32 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many leases.
    #[arg(long, default_value_t = 10_000)]
    leases: usize,
    /// Their TTL in seconds.
    #[arg(long, default_value_t = 6)]
    ttl: u64,
}

pub(crate) async fn run(args: &Args) -> bool {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let ttl = Duration::from_secs(args.ttl);
    let (started, mut guards) = (Instant::now(), Vec::with_capacity(args.leases));
    let keys: Vec<_> = (0..args.leases).map(|i| format!("lease:{i}")).collect();
    for group in keys.chunks(GROUP) {
        let group = group.iter().map(|key| (key.as_str(), LockOptions::new(ttl).renew()));
        for outcome in manager.attempt_each(group).await.unwrap() {
            let Outcome::Acquired(guard) = outcome else { panic!("not acquired: {outcome:?}") };
            guards.push(guard);
        }
    }
    let taken = started.elapsed();

    let (watched, before) = (Instant::now(), scripts_run(&server));
    let mut watch = Watch::new(&guards);
    while watched.elapsed() < ttl * TTLS {
        sleep(LOOK_EVERY).await;
        watch.look(&guards);
    }
    let (seconds, calls) = (watched.elapsed().as_secs_f64(), scripts_run(&server) - before);
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();

    let started = Instant::now();
    guards.into_iter().for_each(drop);
    let clean = manager.shutdown(Duration::from_secs(30)).await.is_clean();
    let (given_back, left) = (started.elapsed(), server.keys("*").len());
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (calls_a_second, renewed_a_second) = (calls as f64 / seconds, watch.renewed as f64 / seconds);
    println!(
        "{} leases of {ttl:?} taken in {taken:.1?} and renewed for {seconds:.0} s: {lost} lost, least ever left {:.1?}; \
         {renewed_a_second:.0} leases a second renewed with {calls_a_second:.0} calls a second; all dropped and given back \
         in {given_back:.1?}, {left} left behind",
        args.leases, watch.least,
    );
    lost == 0 && clean && left == 0
}

/// Sees renewals by what the leases have left.
struct Watch {
    left: Vec<Duration>,
    renewed: u64,
    least: Duration,
}

impl Watch {
    fn new(guards: &[LockGuard]) -> Self {
        let left: Vec<_> = guards.iter().map(|guard| guard.remaining()).collect();
        Self { least: left.iter().copied().min().unwrap_or_default(), left, renewed: 0 }
    }

    fn look(&mut self, guards: &[LockGuard]) {
        for (left, guard) in self.left.iter_mut().zip(guards) {
            let now = guard.remaining();
            self.renewed += u64::from(now > *left);
            self.least = self.least.min(now);
            *left = now;
        }
    }
}

fn scripts_run(server: &RedisServer) -> u64 {
    let calls = server.command_calls();
    ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum()
}
