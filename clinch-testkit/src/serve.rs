//! A `clinch serve` that runs, ended when its value is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its server has nothing better to do than to stop with a message"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::{self, Request};

/// No step takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `clinch serve`.
#[derive(Debug)]
pub struct ClinchServe {
    child: Child,
    /// Where it listens.
    pub addr: SocketAddr,
    /// The line that it printed at its start.
    pub greeting: String,
    stderr: Receiver<String>,
    home: TempDir,
}

/// How one ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote.
    pub stderr: String,
}

impl ClinchServe {
    /// Starts `program serve` on a free port of this machine, with these arguments and variables and nothing else of Clinch's
    /// in its environment. Its home is an empty folder.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let listen = if args.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] };
        let args = [listen, args].concat();
        match Self::try_start(program, &args, env) {
            Ok(serve) => serve,
            Err(ended) => panic!("clinch serve ended at its start: {ended:?}"),
        }
    }

    /// The same with exactly these arguments; how it ended, if it did not come up.
    ///
    /// # Errors
    /// It ended.
    ///
    /// # Panics
    /// If it neither comes up nor ends.
    pub fn try_start(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Self, Ended> {
        let home = tempfile::tempdir().expect("a folder for its home");
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"CLINCH_") {
                command.env_remove(name);
            }
        }
        command.arg("serve").args(args).env_remove("XDG_STATE_HOME").env("HOME", home.path());
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let (sender, stderr) = channel();
        let mut err = child.stderr.take().expect("it is a pipe");
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut greeting = String::new();
        out.read_line(&mut greeting).expect("its output can be read");
        let greeting = greeting.trim_end().to_owned();
        let addr = greeting.split("http://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
        let addr = addr.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        let serve = Self { child, addr, greeting, stderr, home };
        if serve.greeting.is_empty() { Err(serve.end()) } else { Ok(serve) }
    }

    /// The console's token, if it was printed.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.greeting.split_once(" token ").map(|(_, token)| token).filter(|token| !token.contains(' '))
    }

    /// Its home.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A GET to it.
    pub fn get(&self, path: &str) -> Request {
        http::get(self.addr, path)
    }

    /// A POST to it.
    pub fn post(&self, path: &str) -> Request {
        http::post(self.addr, path)
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it can be signalled");
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn end(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "clinch serve does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let stderr = self.stderr.recv_timeout(PATIENCE).expect("its stderr comes to its end");
        Ended { code: status.code(), stderr }
    }
}

impl Drop for ClinchServe {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
