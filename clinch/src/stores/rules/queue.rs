//! The queue for one key: first come, first served.

use std::collections::VecDeque;
use std::time::Duration;

use super::Moment;
use crate::lease::Token;

/// One that waits for its turn.
#[derive(Debug)]
pub(in crate::stores) struct Queued<M> {
    pub(in crate::stores) token: Token,
    /// It gives up then.
    pub(in crate::stores) until: M,
    /// How long the place is kept for it.
    pub(in crate::stores) confirm: Duration,
}

#[derive(Debug)]
pub(in crate::stores) struct Queue<M>(VecDeque<Queued<M>>);

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M: Moment> Queue<M> {
    pub(in crate::stores) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::stores) fn first(&self) -> Option<&Token> {
        self.0.front().map(|queued| &queued.token)
    }

    /// How many are before it, if it is in the queue.
    pub(in crate::stores) fn position(&self, token: &Token) -> Option<usize> {
        self.0.iter().position(|queued| queued.token == *token)
    }

    /// Puts it at the end. One that is in the queue keeps its place, with what it says now.
    pub(in crate::stores) fn enter(&mut self, queued: Queued<M>) {
        match self.0.iter_mut().find(|other| other.token == queued.token) {
            Some(same) => *same = queued,
            None => self.0.push_back(queued),
        }
    }

    pub(in crate::stores) fn pop(&mut self) -> Option<Queued<M>> {
        self.0.pop_front()
    }

    /// Whether it was in the queue.
    pub(in crate::stores) fn remove(&mut self, token: &Token) -> bool {
        self.position(token).and_then(|index| self.0.remove(index)).is_some()
    }

    /// Removes those whose time is over.
    pub(in crate::stores) fn tidy(&mut self, now: M) {
        self.0.retain(|queued| queued.until > now);
    }
}

#[cfg(feature = "sqlite")]
impl<M> Queue<M> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued<M>> {
        self.0.iter()
    }
}

#[cfg(feature = "sqlite")]
impl<M> FromIterator<Queued<M>> for Queue<M> {
    fn from_iter<I: IntoIterator<Item = Queued<M>>>(queued: I) -> Self {
        Self(queued.into_iter().collect())
    }
}
