//! Short forms of what tests ask a server most.

use std::collections::BTreeMap;

use super::{RedisServer, Reply};

/// Each of these panics when the server cannot be reached, or answers with an error.
impl RedisServer {
    /// `GET key`
    pub fn get(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key]).text()
    }

    /// `SET key value`
    pub fn set(&self, key: &str, value: &str) {
        self.ask(&["SET", key, value]);
    }

    /// `EXISTS key`
    pub fn exists(&self, key: &str) -> bool {
        self.ask(&["EXISTS", key]) == Reply::Int(1)
    }

    /// `PTTL key`, in milliseconds: -1 for a key without an expiry, -2 for a key that does not exist.
    pub fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key]).int().expect("PTTL answers with an integer")
    }

    /// `KEYS pattern`, sorted.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        let Reply::Array(keys) = self.ask(&["KEYS", pattern]) else { panic!("KEYS answers with an array") };
        let mut keys: Vec<_> = keys.iter().filter_map(Reply::text).collect();
        keys.sort();
        keys
    }

    /// `CONFIG SET name value`
    pub fn config_set(&self, name: &str, value: &str) {
        self.ask(&["CONFIG", "SET", name, value]);
    }

    /// `FLUSHALL`
    pub fn flushall(&self) {
        self.ask(&["FLUSHALL"]);
    }

    /// `SCRIPT FLUSH`: the next `EVALSHA` is answered with `NOSCRIPT`.
    pub fn script_flush(&self) {
        self.ask(&["SCRIPT", "FLUSH"]);
    }

    /// `INFO section`, as field and value.
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let info = self.ask(&["INFO", section]).text().unwrap_or_default();
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// How often each command was called since the server's start or `CONFIG RESETSTAT`, by its name in lower
    /// case (from Redis 7.0 on, subcommands stand by themselves, as `script|load`).
    ///
    /// The commands that this testkit sends are counted as well: `ping` and `info` at the start, and all that
    /// the test asked through [`RedisServer::command`].
    pub fn command_calls(&self) -> BTreeMap<String, u64> {
        let stats = self.info("commandstats").into_iter();
        stats
            .filter_map(|(name, fields)| {
                let name = name.strip_prefix("cmdstat_")?.to_owned();
                let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="))?;
                Some((name, calls.parse().ok()?))
            })
            .collect()
    }

    /// The number of connected clients, without the control connection of this testkit (and without
    /// replicas).
    pub fn connected_clients(&self) -> u64 {
        let clients = self.info("clients");
        let clients: u64 = clients
            .get("connected_clients")
            .and_then(|count| count.parse().ok())
            .expect("INFO has connected_clients");
        clients.saturating_sub(1)
    }

    fn ask(&self, args: &[&str]) -> Reply {
        let reply = self.command(args);
        assert!(!reply.is_error(), "the server answered {args:?} with {reply:?}");
        reply
    }
}
