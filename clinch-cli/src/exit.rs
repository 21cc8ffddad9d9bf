//! Exit codes: the command's own, or one that says why it did not run to its end.
//!
//! They follow `sysexits.h` and the shell. A command may end with one of these codes by itself; what comes from clinch
//! comes with a line on stderr that begins with `clinch:`.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use clinch::config::Source;
use rustix::process::Signal;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// `inspect`: it is free; `release`: nothing was held, or nothing was to be released after all; `doctor`: there is
    /// something to change.
    pub(crate) const NO: Self = Self(1);
    /// Bad usage: an argument that is missing or cannot work. Nothing was run. `EX_USAGE`.
    pub(crate) const USAGE: Self = Self(64);
    /// The engine cannot be reached, refuses us, or is something else. `EX_UNAVAILABLE`.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// The lease was lost while the command ran; the command was stopped. `EX_SOFTWARE`.
    pub(crate) const LEASE_LOST: Self = Self(70);
    /// The system refused what clinch itself needs: signal handlers, the end of its child. `EX_OSERR`.
    pub(crate) const OS: Self = Self(71);
    /// What was to be written could not be: a result, or the audit log. `EX_IOERR`.
    pub(crate) const IO: Self = Self(74);
    /// Somebody else has the lock; later it may be free. `EX_TEMPFAIL`.
    pub(crate) const NOT_ACQUIRED: Self = Self(75);
    /// The configuration file cannot be used. Nothing was done. `EX_CONFIG`.
    pub(crate) const CONFIG: Self = Self(78);
    /// The command is there but cannot be started. As shells do.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// There is no such command. As shells do.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// The command's own code, or 128 + n if signal n ended it.
    pub(crate) fn of(status: ExitStatus) -> Self {
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        // Both are at most 255 wherever this runs; anything else is at least a failure.
        Self(code.and_then(|code| code.try_into().ok()).unwrap_or(u8::MAX))
    }

    /// As if the signal had ended clinch: 128 + n.
    pub(crate) fn signalled(signal: Signal) -> Self {
        Self::of(ExitStatus::from_raw(signal.as_raw()))
    }

    /// Why nothing was done.
    pub(crate) fn refused(error: &clinch::Error) -> Self {
        match error {
            clinch::Error::InvalidKey(_)
            | clinch::Error::InvalidOption { .. }
            | clinch::Error::InvalidUrl { .. } => Self::USAGE,
            clinch::Error::Config(error) => match error.place() {
                // An argument or a variable.
                Some(Source::Given(_) | Source::Variable(_)) => Self::USAGE,
                _ => Self::CONFIG,
            },
            clinch::Error::LockNotAcquired { .. } => Self::NOT_ACQUIRED,
            _ => Self::UNAVAILABLE,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_a_code_as_in_a_shell() {
        for (raw, code) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (9, 137), (15, 143), (15 | 0x80, 143)] {
            assert_eq!(Exit::of(ExitStatus::from_raw(raw)), Exit(code), "{raw}");
        }
        assert_eq!(Exit::signalled(Signal::INT), Exit(130));
    }
}
