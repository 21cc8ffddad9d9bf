//! The server's process: started, watched until it answers, always ended.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Instant;
use std::{fmt, io, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::client::{Connection, Reply};
use super::{LIFECYCLE_TIMEOUT, POLL_INTERVAL, binary, clock};

/// A child process that is killed and waited for when this value is dropped.
///
/// It is not waited for before, so its id cannot come to mean another process while this value exists.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it writes, if that is a pipe and was not taken before.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Sends SIGSTOP and returns when the process has stopped.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::STOP);
        // NOWAIT: the end of the process, should that come instead, is left for `Child` to collect.
        let stopped_or_ended = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped_or_ended)
            .expect("cannot wait for the server to stop");
    }

    pub(super) fn cont(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        assert!(!self.has_ended(), "the server has ended");
        kill_process(Pid::from_child(&self.child), signal).expect("cannot signal the server");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has ended already. SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a server did not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// Someone else has the port; another port may do.
    PortTaken(String),
    /// Anything else, with the server's log.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::PortTaken(reason) | Self::Failed(reason)) = self;
        f.write_str(reason)
    }
}

/// Runs the server with a configuration file, and returns when it answers at `addr`, with the connection on
/// which it did. That one is kept for the test's own questions: a second one, just closed, could still count
/// as a client.
pub(super) fn start(
    config: &Path,
    log: &Path,
    addr: SocketAddr,
    password: Option<&str>,
    sentinel: bool,
) -> Result<(Process, Connection), StartError> {
    let failed = |error: io::Error| StartError::Failed(format!("cannot start the server: {error}"));
    let output = File::options().create(true).append(true).open(log).map_err(failed)?;
    let logged_before = output.metadata().map_err(failed)?.len();

    let mut command = guarded(&binary::program());
    command.arg(config).args(sentinel.then_some("--sentinel")).stdin(Stdio::null());
    if let Some(folder) = config.parent() {
        clock::load(&mut command, folder);
    }
    command.stderr(output.try_clone().map_err(failed)?).stdout(output);
    let mut process = spawn(command).map_err(failed)?;

    let deadline = Instant::now() + LIFECYCLE_TIMEOUT;
    let mut connection = None;
    loop {
        if process.has_ended() {
            let log = read_log(log, logged_before);
            let reason = format!("the server ended at its start:\n{log}");
            let taken = log.contains("Address already in use");
            return Err(if taken { StartError::PortTaken(reason) } else { StartError::Failed(reason) });
        }
        connection = connection.or_else(|| Connection::open(addr, password).ok());
        if let Some(mut open) = connection.take() {
            match answers(&mut open, process.id()) {
                Ok(true) => return Ok((process, open)),
                Ok(false) => connection = Some(open),
                Err(_) => {} // it is about to end
            }
        }
        if Instant::now() >= deadline {
            let log = read_log(log, logged_before);
            return Err(StartError::Failed(format!("no answer after {LIFECYCLE_TIMEOUT:?}:\n{log}")));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether our own server answers PING. Another one could have the port while ours is about to find that out,
/// so the process id is compared.
fn answers(connection: &mut Connection, pid: u32) -> io::Result<bool> {
    if connection.command(&["PING"])? != Reply::Simple("PONG".into()) {
        return Ok(false); // still loading
    }
    let info = connection.command(&["INFO", "server"])?.text().unwrap_or_default();
    Ok(info.lines().any(|line| line.strip_prefix("process_id:") == Some(pid.to_string().as_str())))
}

/// What was logged after the first `from` bytes.
pub(super) fn read_log(log: &Path, from: u64) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

/// A command that the kernel kills when the thread that spawned it ends, where `setpriv` is there to ask for
/// it.
pub(crate) fn guarded(program: &OsStr) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    const PREFIX: [&str; 3] = ["--pdeathsig", "KILL", "--"];
    let has_setpriv = *SETPRIV.get_or_init(|| {
        let probe = Command::new("setpriv").args(PREFIX).arg("true").stdin(Stdio::null()).output();
        probe.is_ok_and(|output| output.status.success())
    });
    if !has_setpriv {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(PREFIX).arg(program); // it replaces itself by the program, which keeps the process id
    command
}

/// Spawns from a thread that lives as long as this test process.
///
/// The parent-death signal comes when the *thread* that spawned the child ends, and each test has a thread of
/// its own, while a server may be passed on to another test or kept in a static.
pub(crate) fn spawn(command: Command) -> io::Result<Process> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        let run = move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        };
        thread::Builder::new().name("server-spawner".into()).spawn(run).expect("cannot start a thread");
        sender
    });
    let (answer, child) = mpsc::channel();
    spawner.send((command, answer)).expect("the spawner thread never ends");
    let child = child.recv().expect("the spawner thread answers every job")?;
    Ok(Process { child })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::RedisServer;

    #[test]
    fn a_port_taken_by_another_server_is_not_mistaken_for_our_own() {
        let other = RedisServer::start();
        let folder = tempfile::tempdir().unwrap();
        let (config, log) = (folder.path().join("conf"), folder.path().join("log"));
        std::fs::write(&config, format!("bind 127.0.0.1\nport {}\nsave \"\"\n", other.port())).unwrap();

        let started = start(&config, &log, other.addr(), None, false);

        assert!(matches!(started, Err(StartError::PortTaken(_))), "{started:?}");
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let (config, log) = (folder.path().join("conf"), folder.path().join("log"));
        std::fs::write(&config, "no-such-option yes\n").unwrap();

        let Err(StartError::Failed(reason)) = start(&config, &log, ([127, 0, 0, 1], 1).into(), None, false)
        else {
            panic!("started with an unknown option");
        };

        assert!(reason.contains("no-such-option"), "{reason}");
    }
}
