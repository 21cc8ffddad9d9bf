//! The scripts, each a file of its own, hashed once.

use std::sync::LazyLock;

use redis::{Cmd, Script, ToSingleRedisArg};

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Lua::new(include_str!(concat!("lua/", $file, ".lua"))))
    };
}

pub(super) static ACQUIRE: LazyLock<Lua> = script!("acquire");
pub(super) static RENEW: LazyLock<Lua> = script!("renew");
pub(super) static RELEASE: LazyLock<Lua> = script!("release");
pub(super) static REVOKE: LazyLock<Lua> = script!("revoke");
pub(super) static INSPECT: LazyLock<Lua> = script!("inspect");

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Lua {
    source: &'static str,
    hash: String,
}

impl Lua {
    fn new(source: &'static str) -> Self {
        Self { source, hash: Script::new(source).get_hash().to_owned() }
    }

    /// A call of this script.
    pub(super) fn call(&'static self) -> Call {
        Call { script: self, keys: Vec::new(), args: Vec::new() }
    }
}

/// A call of a script, by hash first and by source where the server does not know it.
#[derive(Debug)]
pub(super) struct Call {
    script: &'static Lua,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub(super) fn arg(mut self, arg: impl ToSingleRedisArg) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// Runs the script and leaves it with the server, so that the next call finds it by its hash.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", self.script.source)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
