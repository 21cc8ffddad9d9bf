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

/// Commands that are needed, in scripts and outside of them.
const COMMANDS: &[&str] = &[
    "DEL",
    "EVAL",
    "EVALSHA",
    "GET",
    "GETRANGE",
    "HDEL",
    "HEXISTS",
    "HGET",
    "HKEYS",
    "HLEN",
    "HSET",
    "PEXPIRE",
    "PEXPIREAT",
    "PING",
    "PTTL",
    "PUBLISH",
    "SCAN",
    "SET",
    "SUBSCRIBE",
    "TIME",
    "UNSUBSCRIBE",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZREVRANGE",
    "ZSCORE",
];

const REMEDY: &str = "give it the rights that `deploy/redis/clinch.acl` lists, with your prefix";

/// A right, as a rule that would give it, and a command that needs it.
struct Right {
    rule: String,
    command: Vec<String>,
}

impl Right {
    fn new(rule: String, command: &[&str]) -> Self {
        Self { rule, command: command.iter().map(|word| (*word).to_owned()).collect() }
    }
}

/// Asks for every right that is needed.
pub(super) async fn diagnose(
    link: &Link,
    names: &Names,
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
    let rights = needed(names);
    let mut call = scripts::RIGHTS.call();
    for Right { command, .. } in &rights {
        call = command.iter().fold(call.arg(command.len()), |call, word| call.arg(word.as_str()));
    }
    let answers: Result<Option<Vec<i64>>, _> = link.run(Purpose::Other, &call, None, |_| {}).await;
    match answers {
        Ok(Some(answers)) => {
            let denied = rights.iter().zip(answers).filter(|(_, allowed)| *allowed == 0);
            let denied: Vec<_> = denied.map(|(right, _)| format!("`{}`", right.rule)).collect();
            diagnosis
                .fact("missing_rights", if denied.is_empty() { "none".to_owned() } else { denied.join(" ") });
            if !denied.is_empty() {
                let problem = format!("the user lacks rights that are needed: {}", denied.join(" "));
                diagnosis.finding("rights", Severity::Error, problem, REMEDY);
            }
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

/// The rights that are needed: to commands, to keys of every kind, and to channels.
fn needed(names: &Names) -> Vec<Right> {
    let commands =
        COMMANDS.iter().map(|command| Right::new(format!("+{}", command.to_lowercase()), &[command]));
    let mut rights: Vec<_> = commands.collect();
    // A key that nobody uses.
    let Ok(key) = Key::new("clinch-doctor") else { return rights };
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
    // `EVAL` with a key needs every right to it, and is allowed as such or else reported above.
    rights.extend(keys.map(|key| Right::new(format!("~{}", kind(&key)), &["EVAL", "return 1", "1", &key])));
    for channel in [names.channel(&lock), names.revocations()] {
        rights.push(Right::new(format!("&{}", kind(&channel)), &["PUBLISH", &channel, "m"]));
    }
    rights
}

/// `P:lock:clinch-doctor` is one of `P:lock:*`, and `P:fence:{P:lock:…}` one of `P:fence:*`.
fn kind(name: &str) -> String {
    let own = name.split('{').next().unwrap_or_default().trim_end_matches("clinch-doctor");
    if own == name { own.to_owned() } else { format!("{own}*") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command of a script is among those that are asked for.
    #[test]
    fn the_list_of_commands_is_whole() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stores/redis/lua");
        let mut used = vec![
            // Outside of scripts.
            "EVAL",
            "EVALSHA",
            "PING",
            "SCAN",
            "SUBSCRIBE",
            "UNSUBSCRIBE",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<std::collections::BTreeSet<_>>();
        for file in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for after in source.split("call('").skip(1) {
                used.insert(after.split('\'').next().unwrap().to_owned());
            }
        }
        assert!(used.contains("ZADD"), "{used:?}");
        assert_eq!(used.into_iter().collect::<Vec<_>>(), COMMANDS);
    }

    #[test]
    fn rules_are_those_of_a_kind() {
        let rights = needed(&Names::new("shop"));
        let rules: Vec<_> = rights.iter().map(|right| right.rule.as_str()).skip(COMMANDS.len()).collect();
        assert_eq!(
            rules,
            [
                "~shop:lock:*",
                "~shop:dup:*",
                "~shop:idem:*",
                "~shop:sem:*",
                "~shop:shared:*",
                "~shop:writer:*",
                "~shop:fence:*",
                "~shop:queue:*",
                "~shop:queued:*",
                "&shop:wake:*",
                "&shop:revoked",
            ]
        );
        assert_eq!(needed(&Names::new(""))[COMMANDS.len()].rule, "~lock:*");
    }
}
