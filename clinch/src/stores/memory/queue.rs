//! The queue for one key: first come, first served.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Token;

/// One that waits for its turn.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) token: Token,
    /// It gives up then.
    pub(super) until: Instant,
    /// How long the place is kept for it.
    pub(super) confirm: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Queued>);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<&Token> {
        self.0.front().map(|queued| &queued.token)
    }

    /// How many are before it, if it is in the queue.
    pub(super) fn position(&self, token: &Token) -> Option<usize> {
        self.0.iter().position(|queued| queued.token == *token)
    }

    /// Puts it at the end. One that is in the queue keeps its place, with what it says now.
    pub(super) fn enter(&mut self, queued: Queued) {
        match self.0.iter_mut().find(|other| other.token == queued.token) {
            Some(same) => *same = queued,
            None => self.0.push_back(queued),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        self.0.pop_front()
    }

    /// Whether it was in the queue.
    pub(super) fn remove(&mut self, token: &Token) -> bool {
        self.position(token).and_then(|index| self.0.remove(index)).is_some()
    }

    /// Removes those whose time is over.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.0.retain(|queued| queued.until > now);
    }
}
