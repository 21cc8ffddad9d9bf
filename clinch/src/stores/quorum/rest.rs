//! What goes on after the answer: calls to nodes that were slower than the majority.
//!
//! Nobody waits for them, and no later step of the same attempt may overtake them or be overtaken: whoever takes one ends
//! what is left of the one before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::lease::Token;

/// The most attempts that can have something left. What is more is dropped: its outcome is unknown, as after a time-out.
const MOST: usize = 4096;

/// How long it may take until what was aborted has ended: as long as one poll of it takes.
const ENDING: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Clone)]
pub(super) struct Rests(Arc<Mutex<HashMap<Token, Rest>>>);

#[derive(Debug, Clone)]
struct Rest {
    what: What,
    abort: AbortHandle,
    ended: Shared<BoxFuture<'static, ()>>,
}

/// What is left of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Votes that nobody needs any more, or releases that will be asked for again.
    Answers,
    /// Votes that are being given back: without an answer to that, they are lost to the attempt.
    GivingBack,
}

impl Rests {
    fn locked(&self) -> MutexGuard<'_, HashMap<Token, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the rest of a step of this token.
    pub(super) fn leave(&self, token: &Token, what: What, rest: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut rests = self.locked();
        if rests.len() >= MOST {
            return;
        }
        let (all, own) = (self.clone(), token.clone());
        let task = runtime.spawn(async move {
            rest.await;
            // Unless another has taken its place meanwhile.
            let mut rests = all.locked();
            if rests.get(&own).is_some_and(|rest| rest.abort.id() == tokio::task::id()) {
                rests.remove(&own);
            }
        });
        let abort = task.abort_handle();
        let ended = task.map(|_| ()).boxed().shared();
        if let Some(before) = rests.insert(token.clone(), Rest { what, abort, ended }) {
            before.abort.abort();
        }
    }

    /// Waits for what is left of the step before, at most for so long.
    pub(super) async fn wait(&self, token: &Token, limit: Duration) {
        let rest = self.locked().get(token).cloned();
        if let Some(rest) = rest {
            let _ = timeout(limit, rest.ended).await;
        }
    }

    /// Ends what is left of the step before, and returns when nothing more of it will be sent. Votes that are being given
    /// back have so much time for it.
    pub(super) async fn end(&self, token: &Token, patience: Duration) {
        let Some(rest) = self.locked().get(token).cloned() else { return };
        if rest.what == What::GivingBack {
            let _ = timeout(patience, rest.ended.clone()).await;
        }
        rest.abort.abort();
        // It is over as soon as it is not polled any more; that it has ended is told by its runtime, which may not run now.
        let _ = timeout(ENDING, rest.ended.clone()).await;
        let mut rests = self.locked();
        if rests.get(token).is_some_and(|other| other.ended.ptr_eq(&rest.ended)) {
            rests.remove(token);
        }
    }

    /// Ends all of it.
    pub(super) fn close(&self) {
        self.locked().drain().for_each(|(_, rest)| rest.abort.abort());
    }
}
