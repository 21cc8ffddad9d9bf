//! Stopping a process: its tasks do not run, though time passes and the network goes on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// Stops the tasks of one process. Clones stop the same ones.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<Option<Instant>>>);

impl Gate {
    /// Nothing behind the gate runs before this instant.
    pub fn stop_until(&self, until: Instant) {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = (*closed).max(Some(until));
    }

    fn closed_until(&self) -> Option<Instant> {
        let closed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.filter(|until| *until > Instant::now())
    }

    /// The future, polled only while the gate is open. Whatever wakes it meanwhile is seen when it opens.
    pub fn behind<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Stoppable { inner: Box::pin(future), gate: self.clone(), opens: None }
    }
}

struct Stoppable<F> {
    inner: Pin<Box<F>>,
    gate: Gate,
    opens: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until) = self.gate.closed_until() {
            let opens = self.opens.insert(Box::pin(sleep_until(until)));
            if opens.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.opens = None;
        self.inner.as_mut().poll(context)
    }
}
