//! A primary, its replicas, and the Sentinels that watch them.

use std::collections::BTreeMap;

use super::{scheme, until, until_or};
use crate::server::{Builder, RedisServer, Reply};

/// The name under which the Sentinels know the primary.
pub(super) const MASTER: &str = "mymaster";
/// As whom Sentinels watch, and as whom replicas copy.
const WATCHER: &str = "watcher";
const COPIER: &str = "copier";
const SECRET: &str = "behind-the-scenes";

/// One primary, two replicas and three Sentinels with a quorum of two.
#[derive(Debug)]
pub struct SentinelDeployment {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    sentinel_password: Option<String>,
    password: Option<String>,
}

impl SentinelDeployment {
    /// Starts it, without passwords, and returns when it could fail over.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(None, None)
    }

    /// The same, with a password for the data and another for the Sentinels.
    ///
    /// # Panics
    ///
    /// If it does not come up in time.
    #[must_use]
    pub fn start_with(password: Option<&str>, sentinel_password: Option<&str>) -> Self {
        Self::start_from(&RedisServer::builder(), password, sentinel_password)
    }

    /// The same, in which everybody speaks TLS with everybody, and without passwords.
    ///
    /// # Panics
    ///
    /// If it does not come up in time.
    #[must_use]
    pub fn start_over_tls() -> Self {
        Self::start_from(&RedisServer::builder().tls_between(true), None, None)
    }

    fn start_from(like: &Builder, password: Option<&str>, sentinel_password: Option<&str>) -> Self {
        let data = || {
            let rules = format!("on >{SECRET} ~* &* +@all");
            let builder = like.clone().acl_user(WATCHER, &rules).acl_user(COPIER, &rules);
            // Replicas that lost their primary are in step again at once.
            let builder = builder.arg("masteruser", COPIER).arg("masterauth", SECRET);
            let builder = builder.arg("repl-ping-replica-period", "1").arg("repl-timeout", "5");
            match password {
                Some(password) => builder.password(password),
                None => builder,
            }
        };
        let primary = data().start();
        let of_primary = format!("127.0.0.1 {}", primary.peer_port());
        let replicas = [(); 2].map(|()| data().arg("replicaof", &of_primary).start());
        let servers: Vec<_> = std::iter::once(primary).chain(replicas).collect();
        for replica in &servers[1..] {
            replica.wait_for_primary();
        }
        let sentinels = (0..3).map(|_| sentinel(like, servers[0].peer_port(), sentinel_password)).collect();
        let deployment = Self {
            servers,
            sentinels,
            sentinel_password: sentinel_password.map(str::to_owned),
            password: password.map(str::to_owned),
        };
        deployment.wait_until_healthy();
        deployment
    }

    /// `redis+sentinel://…/mymaster`, with all three Sentinels and the passwords that there are; `rediss+sentinel://…` if all
    /// speak TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|one| one.peer_addr().to_string()).collect();
        self.url_by(&hosts)
    }

    /// The same, with these addresses of Sentinels.
    #[must_use]
    pub fn url_by(&self, sentinels: &[String]) -> String {
        let credentials = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let query = self.sentinel_password.as_ref().map(|password| format!("?sentinel_password={password}"));
        let hosts = sentinels.join(",");
        let scheme = scheme(&self.servers[0]);
        format!("{scheme}+sentinel://{credentials}{hosts}/{MASTER}{}", query.unwrap_or_default())
    }

    /// The servers that keep data, in the order in which they were started: the first began as the primary.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Which of the [servers](Self::servers) most Sentinels call the primary.
    ///
    /// # Panics
    ///
    /// If none is in time.
    #[must_use]
    pub fn primary(&self) -> usize {
        until("a primary", || {
            let mut votes = BTreeMap::new();
            let named = self.sentinels.iter().filter(|one| one.is_running()).filter_map(named_by);
            named.for_each(|port| *votes.entry(port).or_insert(0) += 1);
            let (port, _) = votes.into_iter().find(|(_, votes)| *votes >= 2)?;
            self.servers.iter().position(|server| server.peer_port() == port)
        })
    }

    /// Waits until all servers that run are where they belong: one primary, the others in step with it, and Sentinels that
    /// agree and could fail over.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub fn wait_until_healthy(&self) {
        until("a healthy deployment under Sentinels", || {
            let primary = &self.servers[self.primary()];
            let is_primary = primary.is_running() && role(primary).as_deref() == Some("master");
            let others = self.servers.iter().filter(|other| other.port() != primary.port());
            let running: Vec<_> = others.filter(|other| other.is_running()).collect();
            let in_step = running.iter().all(|replica| {
                let info = replication(replica);
                let is = |name: &str, value: &str| info.get(name).is_some_and(|found| found == value);
                is("master_link_status", "up") && is("master_port", &primary.peer_port().to_string())
            });
            let watching: Vec<_> = self.sentinels.iter().filter(|one| one.is_running()).collect();
            let agreed = watching.iter().all(|one| {
                let seen = master(one);
                let is = |name: &str, value: String| seen.get(name) == Some(&value);
                is("flags", "master".to_owned())
                    && is("port", primary.peer_port().to_string())
                    && is("num-other-sentinels", (self.sentinels.len() - 1).to_string())
                    && replicas_ready(one, &running)
            });
            (is_primary && in_step && agreed).then_some(())
        });
    }

    /// `SENTINEL FAILOVER`: a planned one, while the primary is well. Returns when another is the primary.
    ///
    /// # Panics
    ///
    /// If it is refused or takes too long.
    pub fn fail_over(&self) -> usize {
        let before = self.primary();
        let old = self.servers[before].peer_port();
        let look = || {
            // Asked again and again as long as it knows no other: one that began may be given up, because a Sentinel on a
            // busy machine takes its replicas for dead; while one goes on, others are refused.
            let asked = self.sentinels.iter().find(|one| one.is_running())?;
            if named_by(asked) == Some(old) {
                drop(asked.try_command(&["SENTINEL", "FAILOVER", MASTER]));
            }
            self.other_than(before)
        };
        until_or("a failover", look, || self.logs())
    }

    /// Waits until the primary is another than that one, and takes writes. Returns which.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub fn wait_for_other_than(&self, before: usize) -> usize {
        until_or("another primary", || self.other_than(before), || self.logs())
    }

    fn other_than(&self, before: usize) -> Option<usize> {
        let now = self.primary();
        (now != before && role(&self.servers[now]).as_deref() == Some("master")).then_some(now)
    }

    /// The end of what the Sentinels have logged.
    fn logs(&self) -> String {
        let end = |one: &RedisServer| {
            let log = one.log();
            let lines: Vec<_> = log.lines().rev().take(40).collect();
            lines.into_iter().rev().fold(String::new(), |text, line| text + line + "\n")
        };
        self.sentinels.iter().map(end).collect::<Vec<_>>().join("--\n")
    }

    /// Hides a server from the Sentinels, which then take it for dead; clients and replicas reach it as before.
    pub fn hide(&self, server: usize) {
        self.servers[server].command(&["ACL", "SETUSER", WATCHER, "-@all"]);
    }

    /// Ends [`hide`](Self::hide).
    pub fn show(&self, server: usize) {
        self.servers[server].command(&["ACL", "SETUSER", WATCHER, "+@all"]);
    }

    /// Cuts a primary off from its replicas: what it is told from now on reaches none of them.
    pub fn stop_copying(&self, primary: usize) {
        let primary = &self.servers[primary];
        primary.command(&["ACL", "SETUSER", COPIER, "-@all"]);
        for kind in ["replica", "slave"] {
            primary.command(&["CLIENT", "KILL", "TYPE", kind]);
        }
    }

    /// Ends [`stop_copying`](Self::stop_copying).
    pub fn copy_again(&self, primary: usize) {
        self.servers[primary].command(&["ACL", "SETUSER", COPIER, "+@all"]);
    }
}

fn sentinel(like: &Builder, primary: u16, password: Option<&str>) -> RedisServer {
    let watches = |what: &str, value: &str| format!("{what} {MASTER} {value}");
    let mut builder = like
        .clone()
        .sentinel()
        .arg("sentinel", &watches("monitor", &format!("127.0.0.1 {primary} 2")))
        // Longer than a busy machine stalls.
        .arg("sentinel", &watches("down-after-milliseconds", "1500"))
        .arg("sentinel", &watches("failover-timeout", "2500"))
        .arg("sentinel", &watches("auth-user", WATCHER))
        .arg("sentinel", &watches("auth-pass", SECRET));
    if let Some(password) = password {
        builder = builder.password(password).arg("sentinel", &format!("sentinel-pass {password}"));
    }
    let sentinel = builder.start();
    // Known from 7.0 on; before that everything takes its usual seconds. A machine that stalls must not stop Sentinels for
    // half a minute.
    for setting in [
        ["INFO-PERIOD", "200"],
        // Of a replica that was not heard for five of these nobody makes a primary.
        ["PING-PERIOD", "600"],
        ["ASK-PERIOD", "100"],
        ["PUBLISH-PERIOD", "200"],
        ["TILT-PERIOD", "1000"],
        ["MIN-LINK-RECONNECT-PERIOD", "500"],
    ] {
        sentinel.command(&[&["SENTINEL", "DEBUG"], setting.as_slice()].concat());
    }
    sentinel
}

/// `name value name value …` as a map.
fn pairs(reply: &Reply) -> BTreeMap<String, String> {
    let Reply::Array(words) = reply else { return BTreeMap::new() };
    let text = |word: &Reply| word.text().unwrap_or_default();
    words.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// What a Sentinel knows of the primary.
fn master(sentinel: &RedisServer) -> BTreeMap<String, String> {
    sentinel.try_command(&["SENTINEL", "MASTER", MASTER]).map(|reply| pairs(&reply)).unwrap_or_default()
}

/// Whether a Sentinel knows these replicas, and that each is in step.
fn replicas_ready(sentinel: &RedisServer, running: &[&RedisServer]) -> bool {
    let Ok(Reply::Array(known)) = sentinel.try_command(&["SENTINEL", "REPLICAS", MASTER]) else {
        return false;
    };
    let known: Vec<_> = known.iter().map(pairs).collect();
    running.iter().all(|replica| {
        let port = replica.peer_port().to_string();
        known.iter().any(|known| {
            let is = |name: &str, value: &str| known.get(name).is_some_and(|found| found == value);
            is("port", &port) && is("flags", "slave") && is("master-link-status", "ok")
        })
    })
}

/// The port of the primary that a Sentinel names.
fn named_by(sentinel: &RedisServer) -> Option<u16> {
    let reply = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).ok()?;
    let Reply::Array(words) = reply else { return None };
    words.get(1)?.text()?.parse().ok()
}

/// `INFO replication`; empty of one that does not answer now (its connections are cut when its role changes).
fn replication(server: &RedisServer) -> BTreeMap<String, String> {
    let info = server.try_command(&["INFO", "replication"]).ok().and_then(|info| info.text());
    let info = info.unwrap_or_default();
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn role(server: &RedisServer) -> Option<String> {
    let Reply::Array(words) = server.try_command(&["ROLE"]).ok()? else { return None };
    words.first()?.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fails_over_when_asked_and_when_the_primary_is_hidden() {
        let deployment = SentinelDeployment::start();
        assert_eq!(deployment.primary(), 0);
        let second = deployment.fail_over();
        assert_ne!(second, 0);
        deployment.wait_until_healthy();
        deployment.hide(second);
        let third = deployment.wait_for_other_than(second);
        deployment.show(second);
        deployment.wait_until_healthy();
        deployment.servers()[third].kill();
        let fourth = deployment.wait_for_other_than(third);
        assert_ne!(fourth, third);
        deployment.servers()[third].restart();
        deployment.wait_until_healthy();
    }
}
