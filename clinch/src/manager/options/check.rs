//! What can be wrong with how a lock is wanted.

use std::time::Duration;

use super::{LockOptions, Rest};
use crate::error::Error;
use crate::manager::time::Time;

/// The shortest pause between two polls.
const MIN_RETRY: Duration = Duration::from_millis(1);
/// The longest time for which a fair lock may be kept for one whose turn it is.
const LONGEST_CONFIRM: Duration = Duration::from_secs(60);

impl LockOptions {
    /// Checks everything that can be wrong, and cuts the TTL to whole milliseconds.
    pub(crate) fn check(&mut self, max_ttl: Duration) -> Result<(), Error> {
        self.ttl = checked_ttl("ttl", self.ttl, max_ttl)?;
        if let Some(rest) = &mut self.rest {
            for limited in &mut rest.limits {
                limited.ttl = checked_ttl("permit_ttl", Time::of(limited.ttl), max_ttl)?.get();
            }
        }
        if !self.is_try() {
            self.check_waiting()?;
        }
        if let Some(every) = self.renewal.and_then(|renewal| renewal.every) {
            self.check_renewal(every.get())?;
        }
        if let Some(rest) = &self.rest {
            rest.check()?;
        }
        if self.fenced || self.fair.is_some() {
            return self.check_kind();
        }
        Ok(())
    }

    fn check_waiting(&self) -> Result<(), Error> {
        let (wait, retry) = (self.wait.get(), self.retry_interval.get());
        if wait > Self::MAX_WAIT {
            return Err(Error::option("wait", &format!("{wait:?}"), "accepted is 0 to 366 days"));
        }
        if !(MIN_RETRY..=Self::MAX_WAIT).contains(&retry) {
            let accepted = "with a `wait`, accepted is 1 ms to 366 days; a waiter never spins";
            return Err(Error::option("retry_interval", &format!("{retry:?}"), accepted));
        }
        Ok(())
    }

    fn check_renewal(&self, every: Duration) -> Result<(), Error> {
        if !(MIN_RETRY..=self.shortest_ttl() / 2).contains(&every) {
            let accepted = format!("accepted is 1 ms to half the TTL of {:?}", self.shortest_ttl());
            return Err(Error::option("renew_every", &format!("{every:?}"), accepted));
        }
        Ok(())
    }

    /// Checks what cannot go together.
    fn check_kind(&self) -> Result<(), Error> {
        if self.fenced && self.shared {
            return Err(Error::option("fenced", &true, "accepted is an exclusive lock, not a `shared` one"));
        }
        let Some(confirm) = self.kept_for() else { return Ok(()) };
        if self.shared || !self.limits().is_empty() {
            let accepted = "accepted is an exclusive lock without a limit";
            return Err(Error::option("fair", &true, accepted));
        }
        if !(Self::MIN_TTL..=LONGEST_CONFIRM).contains(&confirm) {
            let accepted = format!("accepted is {:?} to {LONGEST_CONFIRM:?}", Self::MIN_TTL);
            return Err(Error::option("fair_within", &format!("{confirm:?}"), accepted));
        }
        Ok(())
    }
}

impl Rest {
    fn check(&self) -> Result<(), Error> {
        if let Some(label) = &self.label
            && (label.len() > LockOptions::MAX_LABEL_BYTES || label.contains(char::is_control))
        {
            let accepted = format!(
                "accepted is at most {} bytes without control characters",
                LockOptions::MAX_LABEL_BYTES
            );
            return Err(Error::option("label", &format!("{label:?}"), accepted));
        }
        check_name(self.name.as_deref())
    }
}

/// Checks the name of a guard.
pub(crate) fn check_name(name: Option<&str>) -> Result<(), Error> {
    match name {
        Some(name)
            if !(1..=LockOptions::MAX_NAME_BYTES).contains(&name.len())
                || name.contains(char::is_control) =>
        {
            let accepted =
                format!("accepted is 1 to {} bytes without control characters", LockOptions::MAX_NAME_BYTES);
            Err(Error::option("name", &format!("{name:?}"), accepted))
        }
        _ => Ok(()),
    }
}

/// In whole milliseconds.
fn checked_ttl(field: &'static str, ttl: Time, max_ttl: Duration) -> Result<Time, Error> {
    if ttl < Time::of(LockOptions::MIN_TTL) || ttl > Time::of(max_ttl) {
        let accepted =
            format!("accepted is {:?} to {max_ttl:?} (the manager's `max_ttl`)", LockOptions::MIN_TTL);
        return Err(Error::option(field, &format!("{ttl:?}"), accepted));
    }
    Ok(ttl.in_whole_millis())
}
