//! A `clinch` under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clinch_testkit::server::RedisServer;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// No step of a test takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a clinch keeps what is its own, unless the test says otherwise. Not with whoever runs the tests.
const STATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");

/// Says `ready`, then waits for a line and ends with it as its exit code.
pub(crate) const UNTIL_TOLD: &str = "echo ready; read code; exit ${code:-99}";

/// A clinch that runs. It is killed when this is dropped; its command then reads the end of its input.
#[derive(Debug)]
pub(crate) struct Clinch {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

/// How a clinch ended, with what it and its command wrote and was not read before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As a shell would say it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn ended(code: i32, stderr: &str) -> Ended {
    Ended { code, stdout: String::new(), stderr: stderr.to_owned() }
}

/// All keys of the server but the records of the last fences, which outlive their locks so that the next one is higher.
pub(crate) fn held(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys("*");
    // Nor is what outlives them: numbers, and for a second that somebody waited.
    keys.retain(|key| !key.contains("fence:{") && !key.contains("writer:{"));
    keys
}

/// A folder for everything that a clinch keeps, and nobody else's.
pub(crate) fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// `clinch run` at this engine, with a command that runs until it is told to end.
pub(crate) fn holding(store: &str, args: &[&str]) -> Clinch {
    let mut job = plain(&[&["run", "--store", store], args, &["--", "sh", "-c", UNTIL_TOLD]].concat());
    job.expect_line("ready");
    job
}

/// `clinch` with these arguments at this engine, to its end.
pub(crate) fn at(store: &str, args: &[&str]) -> Ended {
    plain(&[args, &["--store", store]].concat()).end()
}

/// `clinch run` on this server.
pub(crate) fn clinch(server: &RedisServer, args: &[&str]) -> Clinch {
    plain(&[&["run", "--store", &server.url()], args].concat())
}

/// `clinch run` on this server, to its end.
pub(crate) fn run(server: &RedisServer, args: &[&str]) -> Ended {
    clinch(server, args).end()
}

/// `clinch` with these arguments and nothing of its own in its environment.
pub(crate) fn plain(args: &[&str]) -> Clinch {
    with_env(&[], args)
}

/// Time limits for a busy machine: files wait for its disk.
pub(crate) const PATIENT: [(&str, Option<&str>); 2] =
    [("CLINCH_CALL_TIMEOUT", Some("20s")), ("CLINCH_CONNECT_TIMEOUT", Some("20s"))];

/// `clinch` with these arguments and variables.
pub(crate) fn with_env(env: &[(&str, Option<&str>)], args: &[&str]) -> Clinch {
    // Whoever runs the tests in the background of a script has INT and QUIT ignored, and we would inherit that.
    let default_signals: &[&str] = if cfg!(target_os = "linux") { &["env", "--default-signal"] } else { &[] };
    let mut command = program(default_signals, args);
    for (name, value) in env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    start(command)
}

/// `clinch` with these arguments, started by a program that becomes it.
pub(crate) fn under(wrapper: &[&str], args: &[&str]) -> Clinch {
    start(program(wrapper, args))
}

/// A shell command in the foreground of a terminal of its own; stdin is its keyboard, stdout its screen.
pub(crate) fn terminal(command: &str) -> Clinch {
    // As in `with_env`: what is ignored at the start cannot be trapped.
    let mut script = Command::new("env");
    script.args([
        "--default-signal",
        "script",
        "--quiet",
        "--return",
        "--flush",
        "--command",
        command,
        "/dev/null",
    ]);
    start(script)
}

fn program(wrapper: &[&str], args: &[&str]) -> Command {
    let words = [wrapper, &[env!("CARGO_BIN_EXE_clinch")], args].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("XDG_STATE_HOME", STATE).env_remove("NO_COLOR");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CLINCH_")) {
        command.env_remove(name);
    }
    // Not in the foreground of whoever runs the tests in a terminal: there, clinch acts differently.
    command.process_group(0);
    command
}

/// `clinch` with these arguments, whose stdout goes elsewhere; its code and what it said.
pub(crate) fn writing_to(stdout: impl Into<Stdio>, args: &[&str]) -> (Option<i32>, String) {
    let done =
        program(&[], args).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

fn start(mut command: Command) -> Clinch {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (lines, stdout) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in out.lines() {
            let _ = lines.send(line.unwrap());
        }
    });
    let mut err = child.stderr.take().unwrap();
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).unwrap();
        text
    });
    Clinch { stdin: child.stdin.take(), child, stdout, stderr: Some(stderr) }
}

impl Clinch {
    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line on stdout.
    pub(crate) fn line(&mut self) -> String {
        let line = self.stdout.recv_timeout(PATIENCE).expect("no line came");
        line.trim_end_matches('\r').to_owned() // terminals send it
    }

    /// Waits for the next line on stdout, which must be this one.
    pub(crate) fn expect_line(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Writes a line to stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        self.type_in(&format!("{line}\n"));
    }

    /// Writes to stdin.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a signal to clinch itself.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    /// Tells its command to end, and waits until it has.
    pub(crate) fn finish(mut self) -> Ended {
        self.tell("0");
        self.end()
    }

    /// Waits until it has ended by itself, and stdout and stderr have come to their ends.
    pub(crate) fn end(mut self) -> Ended {
        let status = self.wait();
        let mut stdout = String::new();
        loop {
            match self.stdout.recv_timeout(PATIENCE) {
                Ok(line) => stdout = stdout + &line + "\n",
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("somebody keeps stdout open"),
            }
        }
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Ended { code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()), stdout, stderr }
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("clinch has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Clinch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Looks again until it holds; a bound, not a measure.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
