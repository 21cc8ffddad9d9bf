//! `clinch release`: ends a lease by force, and writes down who did.
//!
//! Exactly the holders that were seen are ended, never a successor. In the audit log the wish comes before the act, and
//! what came of it after: a log that cannot be written stops the release, unless it was asked for without one.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clinch::{Holder, Key, LockManager};
use serde::Serialize;

use crate::audit::{Audit, Wish};
use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::holder::{self, View};
use crate::listing::holders_of;
use crate::output::{Output, write, write_json};
use crate::runtime::on_one_thread;

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    pub(crate) key: Key,
    pub(crate) which: Which,
    /// Not asked whether it is meant.
    pub(crate) yes: bool,
    /// `None`: without one.
    pub(crate) audit_log: Option<PathBuf>,
}

/// Which of a key's holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The only one.
    Only,
    All,
    /// The one of this id, or of this host and process.
    Named(String),
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    key: &'a str,
    released: Vec<View>,
    /// Those that were gone when it came to them.
    gone: Vec<View>,
}

impl Release {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(async { exit_of(self.release().await) })
    }

    async fn release(&self) -> Result<Exit, Failure> {
        let locks = self.engine.look().await?;
        let holders = self.chosen(holders_of(&locks, &self.key).await?)?;
        let mut answer = Answer { key: self.key.as_str(), released: Vec::new(), gone: Vec::new() };
        let mut ended = Ok(());
        if !holders.is_empty() {
            // Before anybody is asked: no answer helps if it cannot be done.
            let audit = self.audit()?;
            if !self.is_meant(&holders)? {
                return Err(Failure::new(Exit::NO, "nothing was released"));
            }
            ended = self.end_each(&locks, &holders, audit.as_ref(), &mut answer).await;
        } else if !self.output.json {
            let free = format!("`{}` is free; nothing was released\n", self.key);
            write(&free).map_err(|failure| failure.quiet_with(Exit::NO))?;
        }
        let exit = if answer.released.is_empty() { Exit::NO } else { Exit::OK };
        if self.output.json {
            write_json(&answer).map_err(|failure| failure.quiet_with(exit))?;
        }
        ended.map(|()| exit)
    }

    /// Those that are meant; none if nobody holds the key.
    fn chosen(&self, mut holders: Vec<Holder>) -> Result<Vec<Holder>, Failure> {
        if holders.is_empty() {
            return Ok(holders);
        }
        let several = holders.len();
        if let Which::Named(name) = &self.which {
            holders.retain(|holder| is_named(holder, name));
        }
        let hint = format!("`clinch inspect {}` shows them", self.key);
        match (&self.which, holders.len()) {
            (Which::All, _) | (_, 1) => Ok(holders),
            (Which::Only, _) => {
                let what = format!("`{}` has {several} holders: give --holder ID or --all; {hint}", self.key);
                Err(Failure::new(Exit::USAGE, what))
            }
            (Which::Named(name), 0) => {
                let what = format!("no holder of `{}` is `{name}`; nothing was released; {hint}", self.key);
                Err(Failure::new(Exit::NO, what))
            }
            (Which::Named(name), found) => {
                let what = format!("{found} holders of `{}` are `{name}`: give an ID; {hint}", self.key);
                Err(Failure::new(Exit::USAGE, what))
            }
        }
    }

    fn audit(&self) -> Result<Option<Audit>, Failure> {
        let Some(path) = &self.audit_log else { return Ok(None) };
        Audit::open(path, "clinch release").map(Some).map_err(|error| unlogged(path, &error))
    }

    /// Asks on a terminal whether it is meant; elsewhere it must have been said.
    fn is_meant(&self, holders: &[Holder]) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        let mut screen = io::stderr();
        if !io::stdin().is_terminal() || !screen.is_terminal() {
            let what = "there is no terminal to ask on: give --yes if it is meant; nothing was released";
            return Err(Failure::new(Exit::USAGE, what));
        }
        let table = holder::table(holders).render(Output { json: false, ..self.output });
        let leases = if holders.len() == 1 { "this lease" } else { "these leases" };
        let question =
            format!("{table}End {leases} by force? What runs under it may not notice at once. [y/N] ");
        let mut answer = String::new();
        let asked = screen.write_all(question.as_bytes()).and_then(|()| screen.flush());
        asked
            .and_then(|()| io::stdin().lock().read_line(&mut answer))
            .map_err(|error| Failure::new(Exit::IO, format!("cannot ask: {error}; nothing was released")))?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Ends them one after the other, until something goes wrong.
    async fn end_each(
        &self,
        locks: &LockManager,
        holders: &[Holder],
        audit: Option<&Audit>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Failure> {
        for holder in holders {
            let (released, logged) = self.end(locks, holder, audit).await?;
            if released { &mut answer.released } else { &mut answer.gone }.push(View::new(holder));
            self.told(holder, released)?;
            logged?;
        }
        Ok(())
    }

    /// Ends one lease, and writes it down: whether that one still had it, and whether that could be written.
    async fn end(
        &self,
        locks: &LockManager,
        holder: &Holder,
        audit: Option<&Audit>,
    ) -> Result<(bool, Result<(), Failure>), Failure> {
        let Some(audit) = audit else { return Ok((locks.force_release(holder).await?, Ok(()))) };
        let engine = self.engine.shown();
        let wish = Wish { holder, engine: &engine, prefix: &self.engine.config.prefix, from: None };
        let asked = audit.asked(wish).map_err(|error| unlogged(audit.path(), &error))?;
        let released = locks.force_release(holder).await;
        let logged = asked.ended(released.as_ref().copied()).map_err(|error| {
            let path = audit.path().display();
            let what = format!("what came of it could not be written to the audit log `{path}`: {error}");
            Failure::new(Exit::IO, what)
        });
        Ok((released?, logged))
    }

    fn told(&self, holder: &Holder, released: bool) -> Result<(), Failure> {
        if self.output.json {
            return Ok(());
        }
        let (kind, who) = (holder::kind(holder), holder::sentence(holder));
        let line = if released {
            format!("released `{}` ({kind}) from {who}\n", self.key)
        } else {
            format!("already gone: {who}\n")
        };
        // What was begun is carried on, whether or not somebody reads about it.
        write(&line).or_else(|failure| if failure.is_quiet() { Ok(()) } else { Err(failure) })
    }
}

/// By its id or the beginning of it, or by host and process as they are shown.
fn is_named(holder: &Holder, name: &str) -> bool {
    let process = || holder.owner().map(|owner| format!("{}:{}", owner.host, owner.pid));
    (name.len() >= 4 && holder::id(holder).starts_with(name)) || process().as_deref() == Some(name)
}

fn unlogged(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let what = format!(
        "the audit log `{path}` cannot be written: {error}; without it nothing is released: \
         give another one with --audit-log, or go without one with --no-audit"
    );
    Failure::new(Exit::IO, what)
}
