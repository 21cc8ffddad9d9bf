//! What `clinch serve` is told.

use clap::Args;

use super::engine::RawEngine;
use crate::failure::Failure;
use crate::serve::Serve;

const STORE: &str = "The engine [env: CLINCH_STORE] [default: memory:, one of this server's own]";

const STORE_LONG: &str = "The engine [env: CLINCH_STORE] [default: memory:, one of this server's own]

redis://host:6379, rediss://user:password@host/0 (TLS), redis+unix:///path, redis+sentinel://host:26379,…/name, \
redis+cluster://host:6379,…, redis+quorum://host:6379,host:6379,host:6379 (each with rediss+… for TLS), sqlite:///path. \
Other users of this machine can see the arguments in the process list: give a password by CLINCH_STORE or in a file.";

const HELP: &str = "\
Examples:
  clinch serve
      the console on http://127.0.0.1:4747/, with a playground, on an engine
      of its own in memory
  CLINCH_STORE=redis://127.0.0.1:6379 clinch serve
      shows who holds what on this Redis
  CLINCH_SERVE_TOKEN=$(cat token) clinch serve --listen 0.0.0.0:4747 --host locks.example.com
      for others, who need the token for everything but /healthz and /readyz

What is served:
  /         the console: who holds what, rates, and force-release
  /healthz  whether this process lives
  /readyz   whether the engine answers; 503 if not
  /metrics  for Prometheus
  /demo/…   the playground: on an engine of one's own, or with --playground

Who may do what:
  Ending a lease by force needs the token, which is printed at the start unless
  it is configured, and is written to the audit log. On this machine everything
  else is free; where others can connect, it needs the token too (Prometheus:
  `authorization: { credentials: … }`). Requests under a name that is not this
  server's, and changes that a page of another origin makes, are refused.

The end:
  On TERM or INT nothing new is accepted, what runs is finished, for 10 s at
  most, and what is held is given back. A second signal ends it at once.

Exit status:
    0  ended by a signal
   64  bad usage
   69  engine unavailable
   71  the system refused what clinch needs: the port is in use, for instance
   74  the audit log that is configured cannot be written
   78  the configuration file cannot be used";

/// Serve health, metrics, a console that shows who holds what, and a playground
#[derive(Debug, Args)]
#[command(after_long_help = HELP, mut_arg("store", |arg| arg.help(STORE).long_help(STORE_LONG)))]
pub(super) struct RawServe {
    /// Where to listen, 127.0.0.1:4747 unless set; others than this machine only with a token
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Another name under which this server is reached, with or without a port
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Another origin whose pages may end leases, such as `https://ops.example.com`
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,

    /// Where force-releases are written down [default: audit.log in the user's state folder]
    #[arg(long, value_name = "FILE")]
    audit_log: Option<String>,

    /// From which level on to say on stderr what the library logs: off, error, warn, info, debug [default: error]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,

    /// Serve the playground, also on an engine that others use
    #[arg(long, overrides_with = "no_playground")]
    playground: bool,

    /// Serve no playground
    #[arg(long)]
    no_playground: bool,

    #[command(flatten)]
    engine: RawEngine,
}

impl RawServe {
    pub(super) fn checked(self) -> Result<Serve, Failure> {
        let mut flags = Vec::new();
        if let Some(listen) = self.listen {
            // The one name that is sure to be this machine.
            flags.push(("serve.listen", "--listen", listen.replacen("localhost:", "127.0.0.1:", 1)));
        }
        if !self.hosts.is_empty() {
            flags.push(("serve.allowed_hosts", "--host", self.hosts.join(",")));
        }
        if !self.origins.is_empty() {
            flags.push(("serve.allowed_origins", "--origin", self.origins.join(",")));
        }
        if let Some(path) = self.audit_log {
            flags.push(("serve.audit_log", "--audit-log", path));
        }
        if let Some(level) = self.log {
            flags.push(("serve.log", "--log", level));
        }
        if self.playground || self.no_playground {
            flags.push(("serve.playground", "--[no-]playground", self.playground.to_string()));
        }
        Serve::new(self.engine.checked_or_memory(&flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, tests::parse};
    use super::*;

    fn serve(args: &[&str]) -> Serve {
        let args = [&["clinch", "serve"], args].concat();
        let Ok(Command::Serve(serve)) = parse(&args) else { panic!("{args:?}") };
        serve
    }

    #[test]
    fn the_playground_is_left_to_the_engine_unless_told() {
        assert!(serve(&[]).has_playground);
        assert!(!serve(&["--no-playground"]).has_playground);
        assert!(!serve(&["--store", "redis://127.0.0.1"]).has_playground, "others use that engine");
        assert!(serve(&["--store", "redis://127.0.0.1", "--playground"]).has_playground);
    }

    #[test]
    fn flags_become_fields() {
        let serve = serve(&[
            "--listen",
            "localhost:1",
            "--host",
            "a.example",
            "--host",
            "b.example:8080",
            "--audit-log",
            "x.log",
        ]);
        let config = &serve.engine.config.serve;
        assert_eq!(config.listen.to_string(), "127.0.0.1:1");
        assert_eq!(config.allowed_hosts, ["a.example", "b.example:8080"]);
        assert_eq!(config.audit_log.as_deref(), Some(std::path::Path::new("x.log")));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for args in [
            &["--listen", "0.0.0.0:4747"][..],
            &["--listen", "example.com:80"],
            &["--listen", "4747"],
            &["--origin", "ops.example.com"],
            &["--host", "http://a"],
        ] {
            let args = [&["clinch", "serve"], args].concat();
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
