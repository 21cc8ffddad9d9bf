//! One configuration for the library, the attributes and the program: from a file, the environment and flags.
//!
//! ```
//! use clinch::config::Config;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), clinch::Error> {
//! let config = Config::load()?; // the file that CLINCH_CONFIG names, then CLINCH_… variables
//! let locks = config.connect().await?;
//! let guards = config.guards(locks)?; // with the default policies of the file
//! # let _ = guards;
//! # Ok(())
//! # }
//! ```
//!
//! A file names only what differs from the defaults; `deploy/clinch.toml` of the sources has every field, with its default and
//! what it means:
//!
//! ```toml
//! store = "redis://redis.example.com:6379"
//! prefix = "shop"
//! call_timeout = "500ms"
//!
//! [guards]
//! shadow = true
//!
//! [lock] # for every lock that does not say otherwise itself
//! ttl = "15s"
//! ```
//!
//! Every value is checked when it is read. An error names the file and the line, or the variable, and the field, and what is
//! accepted ([`ConfigError`]). Secrets ([`Secret`], and the password in a [`StoreUrl`]) are never shown.

mod check;
mod error;
mod fields;
mod loader;
mod nearest;
mod read;
mod secret;
mod sections;
mod show;
mod source;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::error::ConfigError;
pub use self::loader::Loader;
pub use self::secret::{Secret, StoreUrl};
#[cfg(feature = "http")]
pub use self::sections::Http;
pub use self::sections::{LogLevel, Serve};
pub use self::source::Source;

use self::fields::Origins;
use crate::error::Error;
use crate::manager::{Builder, LockManager, LockOptions, Strategy};
use crate::stores::StoreOptions;
use crate::submit::{
    Defaults, DuplicatePolicy, Guards, IdempotencyPolicy, LimitPolicy, LockPolicy, Settings, duration,
};

/// A configuration. Every field has a default; see the [module](self) for where values come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Whether Clinch is used at all. If not, guards let everybody through, and no engine is connected to: locks that are
    /// taken by hand exclude each other inside this process and no further.
    pub enabled: bool,
    /// The engine: `memory:` unless set, which is for one process.
    pub store: StoreUrl,
    /// The number of the database, where the engine has several and the address names none.
    pub database: Option<u32>,
    /// What engine keys begin with; see [`Builder::prefix`].
    pub prefix: String,
    /// The time limit of every call; see [`Builder::call_timeout`].
    #[serde(with = "duration")]
    pub call_timeout: Duration,
    /// The time limit of making a connection.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How many calls may be in flight at a time; see [`Builder::max_in_flight`].
    pub max_in_flight: usize,
    /// The longest TTL that is accepted.
    #[serde(with = "duration")]
    pub max_ttl: Duration,
    /// What to do when the engine fails, unless a guard or a call says otherwise.
    pub strategy: Strategy,
    /// How this machine is called in what others see of a holder; its host name unless set.
    pub host: Option<String>,
    /// A PEM file of authorities to trust besides the system's, for TLS. A relative path counts from the working directory.
    pub tls_root_certificates: Option<PathBuf>,
    /// The secret with which users are hashed, the same in the whole fleet; see [`Guards::with_fleet_key`].
    pub fleet_key: Option<Secret>,
    /// `[guards]`: what holds for all guards.
    pub guards: Settings,
    /// `[duplicate]`: the duplicate guard where it says nothing itself.
    pub duplicate: DuplicatePolicy,
    /// `[lock]`: the lock where it says nothing itself. Its key and its name are never said here.
    pub lock: LockPolicy,
    /// `[limit]`: the limit where it says nothing itself. Its key, its number and its name are never said here.
    pub limit: LimitPolicy,
    /// `[idempotency]`: the guard of idempotency keys where it says nothing itself.
    pub idempotency: IdempotencyPolicy,
    /// `[http]`: how users of a web service are told apart and refused.
    #[cfg(feature = "http")]
    pub http: Http,
    /// The same, for a build that has no use for it.
    #[cfg(not(feature = "http"))]
    #[serde(skip_serializing)]
    http: sections::Unread,
    /// `[serve]`: the program `clinch serve`.
    pub serve: Serve,
    #[serde(skip)]
    origins: Origins,
}

impl Default for Config {
    fn default() -> Self {
        let options = StoreOptions::default();
        Self {
            enabled: true,
            store: StoreUrl::new("memory:"),
            database: None,
            prefix: options.prefix,
            call_timeout: options.call_timeout,
            connect_timeout: options.connect_timeout,
            max_in_flight: options.max_in_flight,
            max_ttl: LockOptions::MAX_TTL,
            strategy: Strategy::default(),
            host: None,
            tls_root_certificates: None,
            fleet_key: None,
            guards: Settings::default(),
            duplicate: DuplicatePolicy::default(),
            lock: LockPolicy::default(),
            limit: LimitPolicy::default(),
            idempotency: IdempotencyPolicy::default(),
            http: Default::default(),
            serve: Serve::default(),
            origins: Origins::default(),
        }
    }
}

impl Config {
    /// From the file that `CLINCH_CONFIG` names, if it does, and the environment. It reads files, so it blocks; call it when
    /// the program starts.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load() -> Result<Self, ConfigError> {
        Self::loader().environment().load()
    }

    /// From this file alone.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::loader().file(path.as_ref()).load()
    }

    /// From this text alone, which errors call `<text>`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::loader().text("<text>", text).load()
    }

    /// From several sources.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// Checks everything, as reading it did: for one whose fields were changed since.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::check(self)
    }

    /// Where the value of a field came from, by its dotted path (`guards.shadow`).
    pub fn source(&self, field: &str) -> &Source {
        self.origins.source(field)
    }

    /// What is to be said of `CLINCH_` variables that are no field's, a line each. They changed nothing.
    pub fn unknown_variables(&self) -> &[String] {
        &self.origins.unknown_variables
    }

    /// The dotted paths of all fields, and their variables, in order.
    pub fn fields() -> impl Iterator<Item = (&'static str, &'static str)> {
        fields::all().iter().map(|field| (field.path.as_str(), field.variable.as_str()))
    }

    /// The effective values as a file that could be read again, each with where it came from. Secrets are hidden.
    pub fn to_toml(&self) -> String {
        show::toml(self)
    }

    /// The effective values as an object of fields by their dotted paths, each with its `value`, its `source`, and the
    /// `line` if it came from a file. Secrets are hidden.
    pub fn to_json(&self) -> serde_json::Value {
        show::json(self)
    }

    /// The engine's address with the [database](Self::database) in it.
    ///
    /// # Errors
    /// It is none, or names another database.
    pub fn engine_url(&self) -> Result<StoreUrl, ConfigError> {
        check::engine_url(self)
    }

    /// A builder with everything set, for those who want to set more. It reads the file of certificates, so it blocks.
    ///
    /// # Errors
    /// [`Error::Config`] if that file cannot be used.
    pub fn builder(&self) -> Result<Builder, Error> {
        let builder = self.unconnected().map_err(|error| self.located("", error))?;
        let Some(path) = &self.tls_root_certificates else { return Ok(builder) };
        let pem = check::certificates(path);
        Ok(builder
            .tls_root_certificates(pem.map_err(|problem| self.wrong("tls_root_certificates", problem))?))
    }

    /// The same without certificates.
    fn unconnected(&self) -> Result<Builder, Error> {
        let builder = LockManager::builder()
            .prefix(&self.prefix)
            .call_timeout(self.call_timeout)
            .connect_timeout(self.connect_timeout)
            .max_in_flight(self.max_in_flight)
            .max_ttl(self.max_ttl)
            .strategy(self.strategy);
        Ok(match &self.host {
            Some(host) => builder.host(host),
            None => builder,
        })
    }

    /// Connects to the engine and makes a round trip. One that is not [enabled](Self::enabled) connects to nothing.
    ///
    /// # Errors
    /// [`Error::Config`] if it was changed since it was read and cannot work; else as [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind when the future is dropped.
    pub async fn connect(&self) -> Result<LockManager, Error> {
        self.check()?;
        let builder = self.builder()?;
        if !self.enabled {
            tracing::warn!(
                "clinch is turned off by its configuration: guards let everybody through, and locks exclude inside this process only"
            );
            return builder.memory().build();
        }
        builder.connect(self.engine_url()?.expose()).await
    }

    /// Guards on this manager, with the settings and the default policies.
    ///
    /// # Errors
    /// [`Error::Config`] if it was changed since it was read and cannot work.
    pub fn guards(&self, locks: LockManager) -> Result<Guards, Error> {
        self.check()?;
        let settings = self.guards.clone();
        let settings = if self.enabled { settings } else { settings.enabled(false) };
        let defaults = Defaults {
            duplicate: self.duplicate.clone(),
            lock: self.lock.clone(),
            limit: self.limit.clone(),
            idempotency: self.idempotency.clone(),
        };
        let guards = Guards::new(locks).with_settings(settings)?.with_defaults(defaults);
        Ok(match &self.fleet_key {
            Some(key) => guards.with_fleet_key(key.expose().as_bytes()),
            None => guards,
        })
    }

    /// These guards for a web service, with its users and refusals as `[http]` has them.
    ///
    /// # Errors
    /// [`Error::Config`] if it was changed since it was read and cannot work.
    #[cfg(feature = "http")]
    pub fn web(&self, guards: Guards) -> Result<crate::http::Web, Error> {
        use crate::http::{ClientAddress, IdentityChain, SessionCookie, Web};

        self.check()?;
        let Http { trusted_proxies, forwarded_header, session_cookies, statuses } = &self.http;
        let address = ClientAddress::behind(trusted_proxies.clone()).header(*forwarded_header);
        let chain = IdentityChain::usual(SessionCookie::named(session_cookies.clone()), address);
        Web::new(guards).with_identity(chain).with_statuses(statuses.clone())
    }

    /// An error of this field, at where its value came from.
    fn wrong(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(self.source(field).clone(), field.to_owned(), problem)
    }

    /// What another part of the library says of a field of this section.
    fn located(&self, section: &str, error: Error) -> ConfigError {
        match error {
            Error::InvalidOption { field, value, accepted } => {
                self.wrong(&format!("{section}{field}"), format!("{value} is not accepted; {accepted}"))
            }
            other => self.wrong(section.trim_end_matches('.'), other.to_string()),
        }
    }
}
