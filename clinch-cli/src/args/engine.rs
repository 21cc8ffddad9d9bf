//! Which engine: the options that every command which talks to one has, and the configuration behind them.

use std::path::PathBuf;

use clap::Args;
use clinch::config::Config;

use crate::engine::{DEFAULT, Engine, default_url};
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(super) struct RawEngine {
    /// The engine [env: CLINCH_STORE] [default: a file of this user on this machine]
    ///
    /// redis://host:6379, rediss://user:password@host/0 (TLS), redis+unix:///path, redis+sentinel://host:26379,…/name,
    /// redis+cluster://host:6379,…, redis+quorum://host:6379,host:6379,host:6379 (each with rediss+… for TLS),
    /// sqlite:///path. Without one: clinch.db in $XDG_STATE_HOME/clinch or ~/.local/state/clinch. Other users of this
    /// machine can see the arguments in the process list: give a password by CLINCH_STORE or in a file.
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// What the engine's keys begin with, PREFIX:lock:KEY [env: CLINCH_PREFIX] [default: clinch]
    #[arg(long)]
    prefix: Option<String>,

    /// A configuration file, in TOML; variables and options go before it [env: CLINCH_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl RawEngine {
    /// An engine that other processes see too; a file of this user's unless it is named.
    pub(super) fn checked(self) -> Result<Engine, Failure> {
        let engine = self.checked_any()?;
        if engine.config.store.scheme() == "memory" {
            let what = "`memory:` protects nothing between processes; give --store or CLINCH_STORE the URL of an engine \
                        that they share, for instance redis://127.0.0.1:6379";
            return Err(Failure::new(Exit::USAGE, what));
        }
        Ok(engine)
    }

    /// The same, or one of this process's own.
    pub(super) fn checked_any(self) -> Result<Engine, Failure> {
        let config = self.load(None, &[])?;
        if !config.source("store").is_default() {
            return Ok(Engine { config });
        }
        let Some(url) = default_url() else {
            let what = "no engine, and no home folder to make one in: give --store URL or set CLINCH_STORE, \
                        for instance to redis://127.0.0.1:6379";
            return Err(Failure::new(Exit::USAGE, what));
        };
        Ok(Engine { config: self.load(Some(&url), &[])? })
    }

    /// One of this process's own unless it is named; with these further flags, each with its field.
    pub(super) fn checked_or_memory(self, flags: &[(&str, &str, String)]) -> Result<Engine, Failure> {
        Ok(Engine { config: self.load(None, flags)? })
    }

    fn load(&self, default_url: Option<&str>, flags: &[(&str, &str, String)]) -> Result<Config, Failure> {
        let mut loader = Config::loader().environment();
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        if let Some(url) = default_url {
            loader = loader.set("store", DEFAULT, url);
        }
        for (field, flag, value) in [("store", "--store", &self.store), ("prefix", "--prefix", &self.prefix)]
        {
            if let Some(value) = value {
                loader = loader.set(field, flag, value);
            }
        }
        for (field, flag, value) in flags {
            loader = loader.set(*field, *flag, value);
        }
        Ok(loader.load()?)
    }
}
