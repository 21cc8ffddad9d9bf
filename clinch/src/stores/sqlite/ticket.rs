//! The right of one call to one step: until the step begins the caller may give up, and then it never does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Shared between the caller and the thread that carries the step out.
#[derive(Debug, Default)]
pub(super) struct Ticket(Mutex<State>);

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// In line, or waiting for the write lock.
    #[default]
    Waiting,
    Begun(Instant),
    GivenUp,
}

impl Ticket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step begins now, unless its caller has given up.
    pub(super) fn begin(&self) -> Option<Instant> {
        let mut state = self.state();
        match *state {
            State::GivenUp => None,
            State::Begun(at) => Some(at),
            State::Waiting => {
                let now = Instant::now();
                *state = State::Begun(now);
                Some(now)
            }
        }
    }

    /// The step is not to begin any more; or it has begun, and then.
    pub(super) fn give_up(&self) -> Option<Instant> {
        let mut state = self.state();
        match *state {
            State::Begun(at) => Some(at),
            _ => {
                *state = State::GivenUp;
                None
            }
        }
    }

    /// Whether the caller still waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(*self.state(), State::GivenUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_begins_or_is_given_up_and_never_both() {
        let ticket = Ticket::default();
        assert!(ticket.is_wanted());
        let began = ticket.begin();
        assert!(began.is_some() && ticket.give_up() == began && ticket.begin() == began);
        let ticket = Ticket::default();
        assert_eq!(ticket.give_up(), None);
        assert!(!ticket.is_wanted() && ticket.begin().is_none() && ticket.give_up().is_none());
    }
}
