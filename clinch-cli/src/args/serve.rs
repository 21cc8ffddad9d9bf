//! What `clinch serve` is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;

use super::values::prefix;
use crate::engine::Engine;
use crate::serve::{AccessToken, Limits, Origin, Serve};

const HELP: &str = "\
Examples:
  clinch serve
      the console on http://127.0.0.1:4747/, with a playground, on an engine
      of its own in memory
  CLINCH_STORE=redis://127.0.0.1:6379 clinch serve
      shows who holds what on this Redis
  CLINCH_SERVE_TOKEN=$(cat token) clinch serve --listen 0.0.0.0:4747 --host locks.example
      for others, who need the token for everything but /healthz and /readyz

What is served:
  /         the console: who holds what, rates, and force-release
  /healthz  whether this process lives
  /readyz   whether the engine answers; 503 if not
  /metrics  for Prometheus
  /demo/…   the playground

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
   71  the system refused what clinch needs: the port is in use, for instance";

/// Serve health, metrics, a console that shows who holds what, and a playground
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct RawServe {
    /// Where to listen; others than this machine only with a configured token
    #[arg(long, value_name = "ADDRESS", env = "CLINCH_SERVE_LISTEN", default_value = "127.0.0.1:4747", value_parser = address)]
    listen: SocketAddr,

    /// The engine [default: memory:, one of this server's own]
    ///
    /// Other users of this machine can see it in the process list: give a password by CLINCH_STORE.
    #[arg(long, value_name = "URL", env = "CLINCH_STORE", hide_env_values = true)]
    store: Option<String>,

    /// What the engine's keys begin with: PREFIX:lock:KEY
    #[arg(long, env = "CLINCH_PREFIX", default_value = "clinch", value_parser = prefix)]
    prefix: String,

    /// Another name under which this server is reached, with or without a port
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Another origin whose pages may end leases: https://ops.example
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<Origin>,

    /// Serve the playground, also on an engine that others use
    #[arg(long, overrides_with = "no_playground")]
    playground: bool,

    /// Serve no playground
    #[arg(long)]
    no_playground: bool,
}

impl RawServe {
    pub(super) fn checked(self) -> Result<Serve, String> {
        let token = std::env::var("CLINCH_SERVE_TOKEN").ok().filter(|token| !token.is_empty());
        let token = token.map(|token| AccessToken::configured(&token)).transpose()?;
        let url = self.store.filter(|url| !url.is_empty()).unwrap_or_else(|| "memory:".to_owned());
        Ok(Serve {
            engine: Engine { url, prefix: self.prefix },
            listen: self.listen,
            token,
            hosts: self.hosts,
            origins: self.origins,
            playground: if self.no_playground { Some(false) } else { self.playground.then_some(true) },
            limits: Limits::default(),
        })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "accepted is an IP address with a port, for instance 127.0.0.1:4747 or [::1]:4747".to_owned())
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
    fn the_address() {
        assert_eq!(address("localhost:1").unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(address("[::1]:4747").unwrap().to_string(), "[::1]:4747");
        for text in ["", "4747", "localhost", "localhost:x", "example.com:80", "127.0.0.1:99999"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_playground_is_left_to_the_engine_unless_told() {
        assert_eq!(serve(&[]).playground, None);
        assert_eq!(serve(&["--playground"]).playground, Some(true));
        assert_eq!(serve(&["--no-playground"]).playground, Some(false));
    }
}
