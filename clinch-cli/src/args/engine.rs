//! Which engine: the options that every command which talks to one has.

use clap::Args;

use super::values::prefix;
use crate::engine::Engine;

#[derive(Debug, Args)]
pub(super) struct RawEngine {
    /// The engine: redis://host:6379, rediss://user:password@host/0 (TLS), redis+unix:///path
    ///
    /// Other users of this machine can see it in the process list: give a password by CLINCH_STORE.
    #[arg(long, value_name = "URL", env = "CLINCH_STORE", hide_env_values = true)]
    store: Option<String>,

    /// What the engine's keys begin with: PREFIX:lock:KEY
    #[arg(long, env = "CLINCH_PREFIX", default_value = "clinch", value_parser = prefix)]
    prefix: String,
}

impl RawEngine {
    /// An engine that other processes see too.
    pub(super) fn checked(self) -> Result<Engine, String> {
        let url = self.store.filter(|url| !url.is_empty()).ok_or(
            "no engine: give --store URL or set CLINCH_STORE, for instance to redis://127.0.0.1:6379",
        )?;
        if url.split(':').next() == Some("memory") {
            return Err(
                "`memory:` protects nothing between processes; give --store or CLINCH_STORE the URL of an \
                        engine that they share, for instance redis://127.0.0.1:6379"
                    .to_owned(),
            );
        }
        Ok(Engine { url, prefix: self.prefix })
    }
}
