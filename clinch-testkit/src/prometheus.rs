//! A real Prometheus, ended when its value is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its server has nothing better to do than to stop with a message"
)]

use std::ffi::OsStr;
use std::fs::File;
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

/// Where it says what is wrong.
const LOG: &str = "log";

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
        let started = (0..5).find_map(|_| start(&file, folder.path()));
        let (addr, process) = started.unwrap_or_else(|| {
            let log = std::fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
            panic!("Prometheus ended at its start:\n{log}")
        });
        Self { addr, _process: process, _folder: folder }
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
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.query(expression);
            if found.is_some_and(|found| (found - value).abs() < 1e-9) {
                return;
            }
            assert!(Instant::now() < deadline, "{expression} is {found:?}, not {value}");
            std::thread::sleep(POLL);
        }
    }
}

/// Starts one on a free port; `None` if it ended, as it does when somebody else was faster to take that port.
fn start(config: &Path, folder: &Path) -> Option<(SocketAddr, Process)> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let log = File::create(folder.join(LOG)).expect("a file for its log");
    let mut command = guarded(OsStr::new("prometheus"));
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address={addr}"))
        .arg("--log.level=error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let mut process = spawn(command).expect("prometheus can be started (Debian: prometheus)");
    let deadline = Instant::now() + PATIENCE;
    while !http::get(addr, "/-/ready").try_send().is_ok_and(|answer| answer.status == 200) {
        if process.has_ended() {
            return None;
        }
        assert!(Instant::now() < deadline, "Prometheus does not become ready");
        std::thread::sleep(POLL);
    }
    Some((addr, process))
}
