//! What the server's user may do of what Clinch needs.

use std::num::NonZeroU32;
use std::time::Duration;

use super::keys::Names;
use super::link::Link;
use super::scripts;
use crate::key::Key;
use crate::lease::{Claim, ClaimKey};
use crate::store::{Diagnosis, ErrorKind, Severity, StoreError};
use crate::stores::in_flight::Purpose;

/// Commands without a key, whole: a server may crash over half a one that it is only asked about.
const WITHOUT_KEY: &[&[&str]] =
    &[&["EVAL", "return 1", "0"], &["EVALSHA", "0", "0"], &["PING"], &["SCAN", "0"], &["TIME"]];

/// Commands on a key, and what follows the key.
const ON_KEY: &[(&str, &[&str])] = &[
    ("DEL", &[]),
    ("GET", &[]),
    ("GETRANGE", &["0", "1"]),
    ("HDEL", &["f"]),
    ("HEXISTS", &["f"]),
    ("HGET", &["f"]),
    ("HKEYS", &[]),
    ("HLEN", &[]),
    ("HSET", &["f", "v"]),
    ("LPOP", &[]),
    ("LPOS", &["m"]),
    ("LRANGE", &["0", "1"]),
    ("LREM", &["1", "m"]),
    ("PEXPIRE", &["1"]),
    ("PEXPIREAT", &["1"]),
    ("PTTL", &[]),
    ("RPUSH", &["m"]),
    ("SET", &["v"]),
    ("ZADD", &["1", "m"]),
    ("ZCOUNT", &["0", "1"]),
    ("ZRANGEBYSCORE", &["0", "1"]),
    ("ZREM", &["m"]),
    ("ZREMRANGEBYSCORE", &["0", "1"]),
    ("ZREVRANGE", &["0", "1"]),
    ("ZSCORE", &["m"]),
];

/// Commands on a channel, and what follows the channel.
const ON_CHANNEL: &[(&str, &[&str])] = &[("PUBLISH", &["m"]), ("SUBSCRIBE", &[]), ("UNSUBSCRIBE", &[])];

/// What a Cluster needs besides: commands without a key, and on the channels of wake-ups where they are sharded.
const OF_CLUSTER: &[&[&str]] = &[&["ASKING"], &["CLUSTER", "SLOTS"]];
const ON_SHARD: &[(&str, &[&str])] = &[("SPUBLISH", &["m"]), ("SSUBSCRIBE", &[]), ("SUNSUBSCRIBE", &[])];

const REMEDY: &str = "give it the rights that `deploy/redis/clinch.acl` lists, with your prefix";

/// A right: a rule that would give it, and a command that needs it.
struct Right {
    rule: String,
    command: Vec<String>,
}

impl Right {
    fn new(rule: String, command: &[&str]) -> Self {
        Self { rule, command: command.iter().map(|word| (*word).to_owned()).collect() }
    }

    /// To run a command on what has this name.
    fn on(name: &str, (command, rest): &(&str, &[&str])) -> Self {
        Self::new(to_run(command), &[&[*command, name], *rest].concat())
    }
}

fn to_run(command: &str) -> String {
    format!("+{}", command.to_lowercase())
}

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// One server.
    One,
    /// A Cluster without sharded channels.
    Cluster,
    /// A Cluster with them.
    Shards,
}

/// Asks for every right that is needed.
pub(super) async fn diagnose(
    link: &Link,
    names: &Names,
    of: Of,
    diagnosis: &mut Diagnosis,
) -> Result<(), StoreError> {
    let user: Result<String, _> = link.command(redis::cmd("ACL").arg("WHOAMI")).await;
    match user {
        Ok(user) => diagnosis.fact("user", user),
        Err(error) if matches!(error.kind(), ErrorKind::Auth | ErrorKind::Protocol) => {
            diagnosis.hidden("user", "not allowed to see");
        }
        Err(error) => return Err(error),
    }
    match missing(link, names, of).await {
        Ok(Some(missing)) if missing.is_empty() => diagnosis.fact("missing_rights", "none"),
        Ok(Some(missing)) => {
            let missing = missing.iter().map(|rule| format!("`{rule}`")).collect::<Vec<_>>().join(" ");
            let problem = format!("the user lacks rights that are needed: {missing}");
            diagnosis.finding("rights", Severity::Error, problem, REMEDY);
            diagnosis.fact("missing_rights", missing);
        }
        // Before 7.0. What is missing is seen when the steps are tried.
        Ok(None) => diagnosis.hidden("missing_rights", "this server does not tell"),
        Err(error) if error.kind() == ErrorKind::Auth => {
            let problem = format!("the user may not run scripts: {}", error.message());
            diagnosis.finding("rights", Severity::Error, problem, REMEDY);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The rules that would give what is missing; nothing where the server cannot tell.
async fn missing(link: &Link, names: &Names, of: Of) -> Result<Option<Vec<String>>, StoreError> {
    let mut missing = Vec::new();
    let of_cluster = if of == Of::One { &[] } else { OF_CLUSTER };
    let commands: Vec<_> = WITHOUT_KEY
        .iter()
        .chain(of_cluster)
        .filter_map(|words| Some(Right::new(to_run(words.first()?), words)))
        .collect();
    let (keys, channels) = needed(names);
    // A script on a key needs every right to it, and scripts may be run, or there would be no answer.
    let keys: Vec<_> = keys
        .iter()
        .map(|key| Right::new(format!("~{}", kind(key)), &["EVAL", "return 1", "1", key]))
        .collect();
    let Some(commands_allowed) = allowed(link, &commands).await? else { return Ok(None) };
    let Some(keys_allowed) = allowed(link, &keys).await? else { return Ok(None) };
    lacking(&commands, &commands_allowed, &mut missing);
    // What may be done with keys is asked of one to which there is a right, so that it is the command that is denied.
    let usable = keys.iter().zip(&keys_allowed).find(|(_, allowed)| **allowed);
    if let Some(key) = usable.and_then(|(right, _)| right.command.last()) {
        let on_key: Vec<_> = ON_KEY.iter().map(|command| Right::on(key, command)).collect();
        lacking(&on_key, &allowed(link, &on_key).await?.unwrap_or_default(), &mut missing);
    }
    lacking(&keys, &keys_allowed, &mut missing);
    for channel in channels {
        let sharded = of == Of::Shards && channel != names.revocations();
        let on_channel: Vec<_> = if sharded { ON_SHARD } else { ON_CHANNEL }
            .iter()
            .map(|command| Right::on(&channel, command))
            .collect();
        let on_channel_allowed = allowed(link, &on_channel).await?.unwrap_or_default();
        if on_channel_allowed.iter().any(|allowed| !allowed) {
            missing.push(format!("&{}", kind(&channel)));
        }
    }
    Ok(Some(missing))
}

fn lacking(rights: &[Right], allowed: &[bool], missing: &mut Vec<String>) {
    let denied = rights.iter().zip(allowed).filter(|(_, allowed)| !**allowed);
    missing.extend(denied.map(|(right, _)| right.rule.clone()));
}

/// Which of these commands the user might run. None of them is run.
async fn allowed(link: &Link, rights: &[Right]) -> Result<Option<Vec<bool>>, StoreError> {
    let mut call = scripts::RIGHTS.call();
    for Right { command, .. } in rights {
        call = command.iter().fold(call.arg(command.len()), |call, word| call.arg(word.as_str()));
    }
    let answers: Option<Vec<i64>> = link.run(Purpose::Other, &call, None, |_| {}).await?;
    Ok(answers.map(|answers| answers.into_iter().map(|answer| answer == 1).collect()))
}

/// A key of every kind, and a channel of every kind, that nobody uses.
fn needed(names: &Names) -> (Vec<String>, Vec<String>) {
    let Ok(key) = Key::new("clinch-doctor") else { return (Vec::new(), Vec::new()) };
    let ttl = Duration::from_millis(1);
    let lock = ClaimKey::lock(key.clone());
    let kinds = [
        lock.clone(),
        Claim::duplicate(key.clone(), ttl).on().clone(),
        Claim::idempotent(key.clone(), ttl).on().clone(),
        Claim::permit(key, NonZeroU32::MIN, ttl).on().clone(),
    ];
    let beside = [names.readers(&lock), names.writer(&lock), names.fence(&lock)];
    let keys = kinds.iter().map(|on| names.key(on)).chain(beside).chain(names.queue(&lock));
    (keys.collect(), vec![names.channel(&lock), names.revocations()])
}

/// `P:lock:clinch-doctor` is one of `P:lock:*`, and `P:fence:{P:lock:…}` one of `P:fence:*`.
fn kind(name: &str) -> String {
    let own = name.split('{').next().unwrap_or_default().trim_end_matches("clinch-doctor");
    if own == name { own.to_owned() } else { format!("{own}*") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every command of a script is among those that are asked for.
    #[test]
    fn the_list_of_commands_is_whole() {
        let outside = ["EVAL", "EVALSHA", "PING", "SCAN", "SUBSCRIBE", "UNSUBSCRIBE"];
        let mut used: BTreeSet<_> = outside.into_iter().map(str::to_owned).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stores/redis/lua");
        for file in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for after in source.split("call('").skip(1) {
                used.insert(after.split('\'').next().unwrap().to_owned());
            }
        }
        let alone = WITHOUT_KEY.iter().map(|words| words[0]);
        let on = ON_KEY.iter().chain(ON_CHANNEL).map(|(command, _)| *command);
        let asked: BTreeSet<_> = alone.chain(on).map(str::to_owned).collect();
        assert_eq!(used, asked);
    }

    #[test]
    fn rules_are_those_of_a_kind() {
        let rules = |prefix: &str| {
            let (keys, channels) = needed(&Names::new(prefix));
            keys.iter().chain(&channels).map(|name| kind(name)).collect::<Vec<_>>().join(" ")
        };
        let kinds = "shop:lock:* shop:dup:* shop:idem:* shop:sem:* shop:shared:* shop:writer:* shop:fence:* shop:queue:* \
                     shop:queued:* shop:wake:* shop:revoked";
        assert_eq!(rules("shop"), kinds);
        assert_eq!(rules(""), kinds.replace("shop:", ""));
    }
}
