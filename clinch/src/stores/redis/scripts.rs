//! The scripts, each a file of its own, hashed once.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use redis::{Arg, Cmd, Script, ToSingleRedisArg};

use super::address::Replicas;

/// A script, with what it shares with others before it.
macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Lua::new(concat!($(include_str!(concat!("lua/", $file, ".lua"))),+)))
    };
}

// One exclusive claim, the common case.
pub(super) static ACQUIRE: LazyLock<Lua> = script!("acquire");
pub(super) static RENEW: LazyLock<Lua> = script!("renew");
pub(super) static RELEASE: LazyLock<Lua> = script!("release");
pub(super) static COMPLETE: LazyLock<Lua> = script!("complete");

// Other claims that come alone, often.
pub(super) static ACQUIRE_FENCED: LazyLock<Lua> = script!("acquire_fenced");
pub(super) static ACQUIRE_PERMIT: LazyLock<Lua> = script!("acquire_permit");
pub(super) static RELEASE_PERMIT: LazyLock<Lua> = script!("release_permit");

// Claims of every kind.
pub(super) static ACQUIRE_ALL: LazyLock<Lua> = script!("claims", "acquire_all");
pub(super) static RENEW_EACH: LazyLock<Lua> = script!("claims", "renew_each");
pub(super) static RELEASE_ALL: LazyLock<Lua> = script!("claims", "release_all");
pub(super) static REVOKE: LazyLock<Lua> = script!("claims", "revoke");
pub(super) static INSPECT: LazyLock<Lua> = script!("claims", "inspect");

// For people who look after a server.
pub(super) static RIGHTS: LazyLock<Lua> = script!("rights");

// Fair queues.
pub(super) static ACQUIRE_QUEUED: LazyLock<Lua> = script!("queue", "acquire_queued");
pub(super) static RELEASE_QUEUED: LazyLock<Lua> = script!("queue", "release_queued");

/// The command that runs a script which the server knows.
const BY_HASH: &str = "EVALSHA";

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Lua {
    source: &'static str,
    hash: String,
    /// The same for a Cluster with sharded channels, and its hash.
    sharded: OnceLock<(String, String)>,
}

impl Lua {
    fn new(source: &'static str) -> Self {
        Self { source, hash: Script::new(source).get_hash().to_owned(), sharded: OnceLock::new() }
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// A call of this script.
    pub(super) fn call(&'static self) -> Call {
        // Enough for one claim, which is nearly every call.
        let words = || Cmd::with_capacity(4, 128);
        Call { script: self, keys: words(), args: words(), sharded: false, replicas: None }
    }

    /// Wake-ups go over sharded channels. What every server must hear does not.
    fn sharded(&self) -> &(String, String) {
        self.sharded.get_or_init(|| {
            let source = self.source.replace("'PUBLISH', channel", "'SPUBLISH', channel");
            let source = source.replace("'PUBLISH', ARGV[2]", "'SPUBLISH', ARGV[2]");
            let hash = Script::new(&source).get_hash().to_owned();
            (source, hash)
        })
    }
}

/// A call of a script, by hash first and by source where the server does not know it.
#[derive(Debug)]
pub(super) struct Call {
    script: &'static Lua,
    /// No commands by themselves: words, packed one behind the other.
    keys: Cmd,
    args: Cmd,
    sharded: bool,
    replicas: Option<Replicas>,
}

impl Call {
    pub(super) fn key(mut self, key: String) -> Self {
        self.keys.arg(key);
        self
    }

    pub(super) fn arg(mut self, arg: impl ToSingleRedisArg) -> Self {
        self.args.arg(arg);
        self
    }

    /// An argument that may be any bytes.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.args.arg(bytes);
        self
    }

    /// Whether it wakes those who wait over sharded channels.
    pub(super) const fn on_shards(mut self, sharded: bool) -> Self {
        self.sharded = sharded;
        self
    }

    /// By how many replicas it must be confirmed. Then it needs a connection of its own, and has two answers: the script's, and
    /// how many did.
    pub(super) const fn confirmed_by(mut self, replicas: Option<Replicas>) -> Self {
        self.replicas = replicas;
        self
    }

    /// The command that waits for them, if it must be confirmed.
    pub(super) fn confirmation(&self) -> Option<Cmd> {
        let Replicas { least, within } = self.replicas?;
        let mut wait = redis::cmd("WAIT");
        wait.arg(least).arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        Some(wait)
    }

    pub(super) fn by_hash(&self) -> Cow<'_, Cmd> {
        let hash = if self.sharded { &self.script.sharded().1 } else { &self.script.hash };
        Cow::Owned(self.command(BY_HASH, hash))
    }

    /// Runs the script and leaves it with the server, so that the next call finds it by its hash.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", if self.sharded { &self.script.sharded().0 } else { self.script.source })
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let (keys, args) = (words(&self.keys), words(&self.args));
        let bytes: usize = keys.clone().chain(args.clone()).map(<[u8]>::len).sum();
        let count = keys.clone().count();
        let mut command = Cmd::with_capacity(3 + count + args.clone().count(), bytes + script.len() + 16);
        command.arg(name).arg(script).arg(count);
        keys.chain(args).for_each(|word| {
            command.arg(word);
        });
        command
    }
}

fn words(packed: &Cmd) -> impl Iterator<Item = &[u8]> + Clone {
    packed.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        // The place of a scan's cursor: not in here.
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a Cluster every wake-up is sharded, and what is told to all is not.
    #[test]
    fn wake_ups_are_sharded_and_revocations_are_not() {
        let all =
            [&COMPLETE, &RELEASE, &RELEASE_PERMIT, &RELEASE_ALL, &REVOKE, &ACQUIRE_QUEUED, &RELEASE_QUEUED];
        for script in all {
            let (source, hash) = script.sharded();
            assert!(source.contains("'SPUBLISH'"), "{source}");
            assert_ne!(*hash, script.hash);
            let plain: Vec<_> = source.lines().filter(|line| line.contains("'PUBLISH'")).collect();
            assert!(plain.iter().all(|line| line.contains("revocations")), "{plain:?}");
        }
        assert!(REVOKE.sharded().0.contains("'PUBLISH', revocations"));
        assert_eq!(ACQUIRE.sharded().0, ACQUIRE.source);
    }
}
