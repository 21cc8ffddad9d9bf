//! A real Prometheus, ended when its value is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its server has nothing better to do than to stop with a message"
)]

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::http;
use crate::server::ports::free_port;
use crate::server::process::{Process, guarded, spawn};

/// No step takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(50);

/// A Prometheus that scrapes once a second.
#[derive(Debug)]
pub struct Prometheus {
    addr: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `target` (`host:port`) as the job `clinch`, with this token if there is one, and these rules.
    ///
    /// # Panics
    /// If there is none (Debian: `prometheus`), or it does not come up.
    #[must_use]
    pub fn start(target: SocketAddr, token: Option<&str>, rules: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for Prometheus");
        let authorization = token
            .map(|token| format!("    authorization: {{ credentials: \"{token}\" }}\n"))
            .unwrap_or_default();
        let rules = rules.map(|path| format!("rule_files: [\"{}\"]\n", path.display())).unwrap_or_default();
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n{rules}scrape_configs:\n  - job_name: \
             clinch\n{authorization}    static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("its configuration can be written");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = guarded(OsStr::new("prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = spawn(command).expect("prometheus can be started (Debian: prometheus)");
        let prometheus = Self { addr, _process: process, _folder: folder };
        prometheus.wait("Prometheus is ready", || {
            http::get(addr, "/-/ready").try_send().is_ok_and(|answer| answer.status == 200)
        });
        prometheus
    }

    /// The value of an expression that has one; `None` if it has none, or several.
    #[must_use]
    pub fn query(&self, expression: &str) -> Option<f64> {
        let escaped: String = expression
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
        let answer = http::get(self.addr, &format!("/api/v1/query?query={escaped}")).send().json();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        match answer["data"]["result"].as_array().map(Vec::as_slice) {
            Some([one]) => one["value"][1].as_str()?.parse().ok(),
            _ => None,
        }
    }

    /// Waits until an expression has this value.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for(&self, expression: &str, value: f64) {
        let near = || self.query(expression).is_some_and(|found| (found - value).abs() < 1e-9);
        let what = format!("{expression} is {value}, not {:?}", self.query(expression));
        self.wait(&what, near);
    }

    #[expect(clippy::unused_self, reason = "it is Prometheus that is waited for")]
    fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "still not: {what}");
            std::thread::sleep(POLL);
        }
    }
}
