//! What a Redis server says of itself, and what of that can cost a lease.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join;
use redis::Value;
use tokio::time::Instant;

use super::connection::Target;
use super::keys::Names;
use super::link::Link;
use super::rights::{self, Of};
use crate::store::{About, Diagnosis, ErrorKind, Severity, StoreError};

/// The oldest Redis on which the scripts run.
const OLDEST: (u32, u32) = (6, 2);
/// How far the clocks may be apart before somebody should know.
const SKEW: Duration = Duration::from_secs(1);

/// A round trip, and who answered.
pub(super) async fn about(link: &Link) -> Result<About, StoreError> {
    let ping = async {
        let started = Instant::now();
        // Refused by a server that is loading, or that has lost its disk or its primary.
        let _: Value = link.command(&redis::cmd("PING")).await?;
        Ok::<_, StoreError>(started.elapsed())
    };
    let (latency, hello) = join(ping, hello(link)).await;
    let mut about = About::new(latency?);
    if let Ok(hello) = hello {
        (about.server, about.version) = (hello.server, hello.version);
        if hello.role.as_deref() == Some("replica") {
            about.degraded = Some("this is a read-only replica, which takes no locks".to_owned());
        }
    }
    Ok(about)
}

/// What a server says when it is greeted, which every user may do.
#[derive(Debug, Default)]
pub(super) struct Hello {
    pub(super) server: Option<String>,
    pub(super) version: Option<String>,
    mode: Option<String>,
    role: Option<String>,
}

pub(super) async fn hello(link: &Link) -> Result<Hello, StoreError> {
    let said: HashMap<String, Value> = link.command(&redis::cmd("HELLO")).await?;
    let text = |name: &str| match said.get(name) {
        Some(Value::BulkString(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Some(Value::SimpleString(text)) => Some(text.clone()),
        _ => None,
    };
    Ok(Hello { server: text("server"), version: text("version"), mode: text("mode"), role: text("role") })
}

/// Warns of a server that evicts keys to make room: a lease may be among them. A server that does not tell is let be.
pub(super) async fn warn_of_eviction(link: &Link) {
    let info: Result<String, _> = link.command(redis::cmd("INFO").arg("memory")).await;
    let Ok(info) = info else { return };
    if let Some(policy) = Info::parse(&info).evicts() {
        tracing::warn!(policy, "{} {}", EVICTS, NO_EVICTION);
    }
}

const EVICTS: &str =
    "when its memory is full, this Redis evicts keys, and leases that are held may be among them:";
const NO_EVICTION: &str = "set `maxmemory-policy noeviction`";

/// `name:value`, line by line.
struct Info<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    fn parse(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.split_once(':')).collect())
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    /// By which policy it evicts, if it does.
    fn evicts(&self) -> Option<&'a str> {
        self.get("maxmemory_policy").filter(|policy| *policy != "noeviction")
    }
}

/// What the server answered, or why it did not tell. A server that cannot be asked at all is an error.
fn told<T>(answer: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match answer {
        Ok(told) => Ok(Ok(told)),
        Err(error) => match error.kind() {
            ErrorKind::Auth => Ok(Err("not allowed to see".to_owned())),
            // Some services have no such command.
            ErrorKind::Protocol => Ok(Err(format!("not told: {}", error.message()))),
            _ => Err(error),
        },
    }
}

pub(super) async fn diagnose(link: &Link, names: &Names, of: Of) -> Result<Diagnosis, StoreError> {
    let mut diagnosis = Diagnosis::default();
    version(told(hello(link).await)?, of, &mut diagnosis);
    let info: Result<String, String> = told(link.command(&redis::cmd("INFO")).await)?;
    match &info {
        Ok(info) => {
            let info = Info::parse(info);
            memory(&info, &mut diagnosis);
            persistence(link, &info, &mut diagnosis).await?;
            replication(&info, &mut diagnosis);
        }
        Err(why) => {
            for name in ["maxmemory_policy", "append_only_file", "replicas"] {
                diagnosis.hidden(name, why);
            }
        }
    }
    clock(link, &mut diagnosis).await?;
    rights::diagnose(link, names, of, &mut diagnosis).await?;
    if let Target::Watched(sentinels) = link.target() {
        sentinels.diagnose(&mut diagnosis).await?;
    }
    Ok(diagnosis)
}

fn version(hello: Result<Hello, String>, of: Of, diagnosis: &mut Diagnosis) {
    let hello = match hello {
        Ok(hello) => hello,
        Err(why) => return diagnosis.hidden("version", why),
    };
    let server = hello.server.as_deref().unwrap_or("redis");
    diagnosis.fact("server", server);
    if let Some(mode) = &hello.mode {
        diagnosis.fact("mode", mode);
        if mode == "sentinel" {
            let problem = "this is a Sentinel, which keeps no keys";
            diagnosis.finding("mode", Severity::Error, problem, "use `redis+sentinel://…/name`");
        }
    }
    if of == Of::One && hello.mode.as_deref() == Some("cluster") {
        let problem = "this is a server of a Cluster, which serves only its own slots";
        diagnosis.finding("mode", Severity::Error, problem, "use `redis+cluster://…`");
    }
    let Some(version) = hello.version else { return diagnosis.hidden("version", "not told") };
    diagnosis.fact("version", &version);
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = parts.next().zip(parts.next());
    // Those who call themselves otherwise count otherwise.
    if server == "redis" && known.is_some_and(|known| known < OLDEST) {
        let problem = format!("this is Redis {version}, on which Clinch's scripts do not run");
        diagnosis.finding("version", Severity::Error, problem, "use Redis 6.2 or later, or Valkey");
    }
}

fn memory(info: &Info<'_>, diagnosis: &mut Diagnosis) {
    match info.get("maxmemory_policy") {
        Some(policy) => diagnosis.fact("maxmemory_policy", policy),
        None => diagnosis.hidden("maxmemory_policy", "not told"),
    }
    for name in ["maxmemory", "used_memory"] {
        if let Some(bytes) = info.get(name) {
            diagnosis.fact(name, bytes);
        }
    }
    if let Some(policy) = info.evicts() {
        let problem = format!("`maxmemory-policy` is `{policy}`: {EVICTS} two may then hold the same lock");
        let remedy = format!("{NO_EVICTION}, or give the leases a server of their own");
        diagnosis.finding("eviction", Severity::Warning, problem, remedy);
    }
}

async fn persistence(link: &Link, info: &Info<'_>, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
    let appends = info.get("aof_enabled").map(|enabled| enabled == "1");
    match appends {
        Some(on) => diagnosis.fact("append_only_file", if on { "yes" } else { "no" }),
        None => diagnosis.hidden("append_only_file", "not told"),
    }
    let saves = setting(link, "save").await?;
    match &saves {
        Ok(save) => diagnosis.fact("snapshots", if save.is_empty() { "none" } else { save }),
        Err(why) => diagnosis.hidden("snapshots", why),
    }
    let remedy = "set `appendonly yes`";
    match (appends, &saves) {
        (Some(false), Ok(save)) if save.is_empty() => {
            let problem = "nothing is persisted: when the server restarts, every lease is forgotten, and others can take what is \
                           still held";
            diagnosis.finding("persistence", Severity::Warning, problem, remedy);
        }
        (Some(false), Ok(_)) => {
            let problem = "only snapshots are persisted: when the server restarts, every lease since the last one is forgotten";
            diagnosis.finding("persistence", Severity::Warning, problem, remedy);
        }
        (Some(false), Err(_)) => {
            let problem = "there is no append-only file: when the server restarts, at least every lease since the last snapshot \
                           is forgotten";
            diagnosis.finding("persistence", Severity::Warning, problem, remedy);
        }
        (Some(true), _) => match setting(link, "appendfsync").await? {
            Ok(how) => diagnosis.fact("appendfsync", how),
            Err(why) => diagnosis.hidden("appendfsync", why),
        },
        (None, _) => {}
    }
    for (name, what) in
        [("rdb_last_bgsave_status", "snapshot"), ("aof_last_write_status", "write to the append-only file")]
    {
        if info.get(name).is_some_and(|status| status != "ok") {
            let problem =
                format!("the last {what} failed; the server may refuse to grant leases until it succeeds");
            diagnosis.finding(
                "disk",
                Severity::Error,
                problem,
                "see the server's log, and whether its disk is full",
            );
        }
    }
    Ok(())
}

/// A line of the server's configuration.
async fn setting(link: &Link, name: &str) -> Result<Result<String, String>, StoreError> {
    let found: Result<HashMap<String, String>, _> =
        link.command(redis::cmd("CONFIG").arg("GET").arg(name)).await;
    Ok(told(found)?.and_then(|mut found| found.remove(name).ok_or_else(|| "not told".to_owned())))
}

fn replication(info: &Info<'_>, diagnosis: &mut Diagnosis) {
    let role = info.get("role").map(|role| if role == "slave" { "replica" } else { "primary" });
    match role {
        Some(role) => diagnosis.fact("role", role),
        None => diagnosis.hidden("role", "not told"),
    }
    if role == Some("replica") {
        let problem = "this is a read-only replica, which takes no locks";
        diagnosis.finding("replica", Severity::Error, problem, "connect to its primary");
    }
    let Some(replicas) = info.get("connected_slaves") else {
        return diagnosis.hidden("replicas", "not told");
    };
    diagnosis.fact("replicas", replicas);
    if role == Some("primary") && replicas != "0" {
        let problem = "leases are copied to replicas after they were granted: a failover can forget the last of them, and two may \
                       then hold the same lock";
        let remedy = "where that matters, check fences at the resource; `?replicas=1` in the address narrows the window";
        diagnosis.finding("failover", Severity::Note, problem, remedy);
    }
}

/// How far the server's clock is from ours, give or take half a round trip.
async fn clock(link: &Link, diagnosis: &mut Diagnosis) -> Result<(), StoreError> {
    let before = since_epoch();
    let time: Result<(u64, u64), _> = link.command(&redis::cmd("TIME")).await;
    let after = since_epoch();
    let (secs, micros) = match told(time)? {
        Ok(time) => time,
        Err(why) => {
            diagnosis.hidden("clock_skew_ms", why);
            return Ok(());
        }
    };
    let server = Duration::from_secs(secs) + Duration::from_micros(micros);
    let ours = before + after.saturating_sub(before) / 2;
    let (skew, sign, word) = match server.checked_sub(ours) {
        Some(ahead) => (ahead, "", "ahead of"),
        None => (ours.saturating_sub(server), "-", "behind"),
    };
    let sign = if skew.as_millis() == 0 { "" } else { sign };
    diagnosis.fact("clock_skew_ms", format!("{sign}{}", skew.as_millis()));
    let doubt = after.saturating_sub(before) / 2;
    if skew.saturating_sub(doubt) > SKEW {
        let problem = format!(
            "the server's clock is {skew:?} {word} this machine's: no lease depends on that, but times that people are shown do, \
             and fences must not go back when another server takes over"
        );
        diagnosis.finding("clock_skew", Severity::Warning, problem, "set both clocks by NTP");
    }
    Ok(())
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
