//! The limit: the server itself, asked by `redis-benchmark` with pipelines.

use clinch_testkit::server::RedisServer;
use tokio::process::Command;

use crate::bench::Bench;
use crate::measure::Spread;
use crate::peers::Kind;
use crate::results::Row;

const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// Pairs of `SET NX PX` and compare-and-delete that the server can do in a second; `None` without `redis-benchmark`.
pub(super) async fn run(bench: &Bench) -> Option<Row> {
    bench.progress.now("S2", "the limit, by redis-benchmark", 0);
    let sha = bench.plain.command(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).text()?;
    let requests = if bench.quick { 200_000 } else { 1_000_000 };
    let mut rates = Vec::new();
    for _ in 0..bench.rounds().min(3) {
        bench.plain.command(&["FLUSHDB"]);
        let key = "own:__rand_int__";
        let taken = rate(&bench.plain, requests, &["SET", key, "token", "NX", "PX", "10000"]).await?;
        let given_back = rate(&bench.plain, requests, &["EVALSHA", &sha, "1", key, "token"]).await?;
        rates.push(1.0 / (1.0 / taken + 1.0 / given_back));
    }
    bench.plain.command(&["FLUSHDB"]);
    let mut row = Row::new("S2", "limit: redis-benchmark -P 64", Kind::Bound, "pairs/s");
    row.rate = Spread::of(rates);
    Some(row)
}

async fn rate(server: &RedisServer, requests: u32, command: &[&str]) -> Option<f64> {
    let (port, requests) = (server.port().to_string(), requests.to_string());
    let fixed = ["-p", &port, "-n", &requests, "-P", "64", "-c", "4", "-r", "100000", "--csv"];
    let output = Command::new("redis-benchmark").args(fixed).args(command).output().await.ok()?;
    // "test","rps",… and then one line of values.
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('"') && !line.starts_with("\"test\""))?;
    line.split("\",\"").nth(1)?.trim_matches('"').parse().ok()
}
