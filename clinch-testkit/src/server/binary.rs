//! The server program: where it is, what it is, what it can.

use std::ffi::OsString;
use std::fmt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use super::{LIFECYCLE_TIMEOUT, POLL_INTERVAL, ports, process};

/// The environment variable that names the server program; without it, `redis-server` on `PATH` is used.
pub const SERVER_ENV: &str = "CLINCH_TEST_REDIS_SERVER";

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// Redis.
    Redis,
    /// Valkey, the fork of Redis 7.2.
    Valkey,
}

/// What the server program says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Redis or Valkey.
    pub flavor: Flavor,
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Patch version.
    pub patch: u32,
}

impl Version {
    /// Whether the server has what came with this version of Redis. Valkey has all of Redis 7.2, and nothing
    /// later.
    #[must_use]
    pub fn has_redis(&self, major: u32, minor: u32) -> bool {
        match self.flavor {
            Flavor::Redis => (self.major, self.minor) >= (major, minor),
            Flavor::Valkey => (7, 2) >= (major, minor),
        }
    }

    /// Reads the output of `--version`: `Redis server v=7.0.15 sha=…` or `Valkey server v=9.1.2 sha=…`.
    fn parse(output: &str) -> Option<Self> {
        let flavor = if output.starts_with("Valkey") { Flavor::Valkey } else { Flavor::Redis };
        let number = output.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
        let mut parts = number.split('.').map(|part| part.parse().ok());
        Some(Self { flavor, major: parts.next()??, minor: parts.next()??, patch: parts.next()?? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}.{}.{}", self.flavor, self.major, self.minor, self.patch)
    }
}

/// The program that is run for a server.
pub(super) fn program() -> OsString {
    std::env::var_os(SERVER_ENV).unwrap_or_else(|| "redis-server".into())
}

/// The program's version, asked once in a process.
pub(super) fn version() -> Version {
    static VERSION: OnceLock<Version> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let program = program();
        let output = Command::new(&program).arg("--version").output().unwrap_or_else(|error| {
            panic!(
                "cannot run the server program {program:?}: {error}. Install Redis or Valkey \
                 (on Debian: `apt install redis-server`), or set {SERVER_ENV} to the path of the program"
            )
        });
        let output = String::from_utf8_lossy(&output.stdout);
        Version::parse(&output).unwrap_or_else(|| panic!("{program:?} is neither Redis nor Valkey: {output}"))
    })
}

/// Whether the program was built with TLS, asked once in a process.
///
/// There is no option that tells, so it is started with a TLS port and no certificate. It ends at once either
/// way, with the complaint that the certificate is missing, or with one that it does not know TLS.
pub(super) fn supports_tls() -> bool {
    static SUPPORTS_TLS: OnceLock<bool> = OnceLock::new();
    *SUPPORTS_TLS.get_or_init(|| {
        let _ = version(); // for its message, if there is no program
        let folder = tempfile::tempdir().expect("cannot make a temporary folder");
        let log = folder.path().join("log");
        let file = std::fs::File::create(&log).expect("cannot make a log file");
        let mut command = process::guarded(&program());
        command.args(["--port", "0", "--save", "", "--dir"]).arg(folder.path());
        command.args(["--tls-port", &ports::free_port().to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(file);
        let mut probe = process::spawn(command).expect("cannot run the server program");

        let deadline = Instant::now() + LIFECYCLE_TIMEOUT;
        while !probe.has_ended() {
            assert!(Instant::now() < deadline, "the server started with TLS but without a certificate");
            std::thread::sleep(POLL_INTERVAL);
        }
        process::read_log(&log, 0).contains("No tls-cert-file configured")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_flavors_are_read() {
        let redis = Version::parse("Redis server v=6.2.14 sha=40305114:0 malloc=libc bits=64").unwrap();
        assert_eq!(redis, Version { flavor: Flavor::Redis, major: 6, minor: 2, patch: 14 });
        assert!(!redis.has_redis(7, 0));
        let valkey = Version::parse("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64").unwrap();
        assert_eq!(valkey.to_string(), "Valkey 9.1.2");
        assert!(valkey.has_redis(7, 2) && !valkey.has_redis(8, 0));
        assert_eq!(Version::parse("something else"), None);
    }
}
