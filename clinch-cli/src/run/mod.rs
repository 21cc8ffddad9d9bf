//! `clinch run`: a command under a lock.
//!
//! The lock is taken, the command started, the lock given back when the command has ended. In between the manager
//! renews the lease, signals are passed on, and the loss of the lease ends the command. Every way out goes through
//! [`LockManager::shutdown`], so nothing is left in the engine as long as the engine answers.

mod child;
mod signals;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use clinch::{Denied, DeniedBy, Error, Key, Lease, LockGuard, LockManager, LockOptions, Loss, Strategy};
use humantime::format_duration;
use rustix::process::Signal;
use tokio::time::sleep;

use self::child::Child;
use self::signals::{Signals, name};
use crate::engine::Engine;
use crate::exit::Exit;
use crate::holder;
use crate::message::say;
use crate::output::span;
use crate::runtime::on_one_thread;

/// How long releases that the engine has not answered are tried at the end.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// The same for a lease that was lost.
const LOST_RELEASE: Duration = Duration::from_millis(200);

/// The command and its lock.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) key: Key,
    pub(crate) place: Place,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    /// From TERM to KILL, once the lease is lost.
    pub(crate) grace: Duration,
    pub(crate) label: String,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// Which place on the key the command wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The only one.
    Alone,
    /// One of any number; nobody is alone meanwhile.
    Shared,
    /// One of so many.
    OneOf(NonZeroU32),
}

impl Job {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(run(self))
    }
}

/// Runs the command under its lock.
async fn run(job: &Job) -> Exit {
    // Before anything that a signal would have to undo.
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            say(&format!("cannot catch signals: {error}"));
            return Exit::OS;
        }
    };
    let locks = tokio::select! {
        biased;
        signal = signals.next() => return gave_up(job, signal),
        locks = job.engine.connect() => match locks {
            Ok(locks) => locks,
            Err(failure) => return failure.without("nothing was run").tell(),
        },
    };
    if !job.engine.config.enabled {
        say(
            "warning: clinch is turned off by its configuration (`enabled`): the command runs without a lock",
        );
    }
    let exit = run_locked(job, &locks, &mut signals).await;
    // A lost lease is over soon in any case: nobody waits for an engine that may be gone.
    locks.shutdown(if exit == Exit::LEASE_LOST { LOST_RELEASE } else { LAST_RELEASES }).await;
    exit
}

async fn run_locked(job: &Job, locks: &LockManager, signals: &mut Signals) -> Exit {
    let guard = tokio::select! {
        biased;
        // What the dropped call may have been granted is given back by the shutdown.
        signal = signals.next() => return gave_up(job, signal),
        guard = take(job, locks) => match guard {
            Ok(guard) => guard,
            Err(error) => return refused(job, &error),
        },
    };
    let exit = match Child::start(job, guard.fence()) {
        Ok(mut child) => attend(job, &mut child, &guard.lease(), signals).await,
        Err(error) => {
            say(&format!("cannot run `{}`: {error}", job.program.display()));
            match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NOT_FOUND,
                _ => Exit::NOT_EXECUTABLE,
            }
        }
    };
    give_back(job, guard).await;
    exit
}

/// Takes the lock, or the permit.
async fn take(job: &Job, locks: &LockManager) -> Result<LockGuard, Error> {
    // Whatever the configuration says for others: the command runs under its lock or not at all.
    let options = LockOptions::new(job.ttl)
        .wait(job.wait)
        .renew_for(Duration::MAX)
        .label(job.label.as_str())
        .strategy(Strategy::FailFast);
    match job.place {
        Place::Alone if locks.capabilities().fences => locks.lock(job.key.clone(), options.fenced()).await,
        Place::Alone => locks.lock(job.key.clone(), options).await,
        Place::Shared => locks.lock(job.key.clone(), options.shared()).await,
        Place::OneOf(limit) => locks.limit(job.key.clone(), limit.get())?.acquire(options).await,
    }
}

/// Waits for the end of the command, passes signals on, and ends it if the lease is lost first.
async fn attend(job: &Job, child: &mut Child, lease: &Lease, signals: &mut Signals) -> Exit {
    let mut lost = pin!(lease.lost());
    let loss = loop {
        tokio::select! {
            biased;
            status = child.wait() => match status {
                // By the time its end is known the lease may be over too, if clinch was stopped or the machine slept.
                Ok(status) if lease.is_valid() => return Exit::of(status),
                Ok(_) => break lost.await,
                Err(error) => {
                    say(&format!("cannot tell how `{}` ended: {error}", job.program.display()));
                    return Exit::OS;
                }
            },
            loss = &mut lost => break loss,
            signal = signals.next() => child.pass_on(signal),
        }
    };
    end(job, child, loss, signals).await;
    Exit::LEASE_LOST
}

/// TERM, and KILL to what is left after the grace. Signals first and words second: writing words may block.
async fn end(job: &Job, child: &mut Child, loss: Loss, signals: &mut Signals) {
    child.send(Signal::TERM);
    let then =
        if child.has_ended() { "the command has ended by itself" } else { "the command was sent TERM" };
    say(&format!("lease lost on `{}`: {}; {then}", job.key, reason(loss)));
    let mut grace = pin!(sleep(job.grace));
    loop {
        tokio::select! {
            biased;
            () = child.gone() => return,
            () = &mut grace => break,
            signal = signals.next() => child.pass_on(signal),
        }
    }
    child.send(Signal::KILL);
    let grace = format_duration(job.grace);
    say(&format!("the command under `{}` did not end within {grace} and was sent KILL", job.key));
    // An error can only mean that there is nothing to wait for.
    let _ = child.wait().await;
}

fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "it could not be renewed in time",
        Loss::TakenOver => "the engine no longer has it, or gave it to somebody else",
        Loss::Revoked => "somebody ended it by force",
        _ => "it is over",
    }
}

/// Gives the lock back. What goes wrong here does not change how the command ended.
async fn give_back(job: &Job, guard: LockGuard) {
    if !guard.is_valid() {
        // Lost, and said so. What may be left of it in the engine is taken back by the shutdown, if the engine answers.
        return;
    }
    match guard.release().await {
        Ok(true) => {}
        Ok(false) => say(&format!(
            "warning: the lease on `{}` was gone when the command had ended; others may have had the lock meanwhile",
            job.key
        )),
        Err(error) => {
            let ttl = format_duration(job.ttl);
            say(&format!("warning: the lock was not given back: {error}; it is free in {ttl} at the latest"));
        }
    }
}

/// Says why nothing was run: who is in the way, if somebody is.
fn refused(job: &Job, error: &Error) -> Exit {
    let said = match error {
        Error::LockNotAcquired { denied, .. } => not_acquired(job, denied),
        _ => None,
    };
    say(&said.unwrap_or_else(|| format!("{error}; nothing was run")));
    Exit::refused(error)
}

fn not_acquired(job: &Job, denied: &Denied) -> Option<String> {
    let (key, holder) = (&job.key, holder::sentence(denied.holder.as_ref()?));
    let what = match denied.cause {
        DeniedBy::Lock => format!("lock not acquired: `{key}` is held by {holder}"),
        DeniedBy::Limit => format!("no permit: all of `{key}` are taken; the first to end is {holder}"),
        _ => return None,
    };
    let tried = match job.wait {
        Duration::ZERO => "use --wait to wait for it".to_owned(),
        wait => format!("waited {}", span(wait)),
    };
    Some(format!("{what}; nothing was run ({tried})"))
}

fn gave_up(job: &Job, signal: Signal) -> Exit {
    say(&format!("gave up waiting for `{}`: got {}; nothing was run", job.key, name(signal)));
    Exit::signalled(signal)
}
