//! What the proxy's connections and the test share, behind one lock and one signal of change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::WAIT_TIMEOUT;
use super::frame::Parts;
use super::rule::{self, Action, Command, Rule};

/// The log keeps this many commands.
const LOG_LENGTH: usize = 10_000;

#[derive(Debug)]
pub(super) struct State {
    pub(super) upstream: SocketAddr,
    /// Commands by name since the last reset.
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) log: VecDeque<Command>,
    /// All commands ever.
    ordinal: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) opened: usize,
    pub(super) connections: HashMap<usize, JoinHandle<()>>,
    pub(super) stalled: bool,
    /// How many commands and replies are held in this generation.
    pub(super) held: usize,
    /// Rises with each release; what is held waits for it to change.
    generation: u64,
    /// The proxy was dropped.
    pub(super) closed: bool,
    pub(super) protocol_errors: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Shared {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        let state = State {
            upstream,
            counts: BTreeMap::new(),
            log: VecDeque::new(),
            ordinal: 0,
            rules: Vec::new(),
            opened: 0,
            connections: HashMap::new(),
            stalled: false,
            held: 0,
            generation: 0,
            closed: false,
            protocol_errors: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    pub(super) fn update<T>(&self, update: impl FnOnce(&mut State) -> T) -> T {
        let result = update(&mut self.lock());
        self.changed.send_replace(());
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A predicate of a test may panic under the lock; the state is whole all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state has what is looked for.
    async fn until<T>(&self, mut find: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        loop {
            if let Some(found) = self.look(&mut find) {
                return found;
            }
            // The sender is part of `self`, so it cannot be gone.
            let _ = changes.changed().await;
        }
    }

    /// As `until`, for tests: panics when it takes too long.
    pub(super) async fn wait<T>(&self, what: &str, find: impl FnMut(&State) -> Option<T>) -> T {
        match tokio::time::timeout(WAIT_TIMEOUT, self.until(find)).await {
            Ok(found) => found,
            Err(_) => panic!("waited {WAIT_TIMEOUT:?} for {what}; {}", self.look(describe)),
        }
    }

    /// Counts and logs a command, and says what is to happen to it.
    pub(super) fn take_up(
        &self,
        connection: usize,
        parts: Parts,
        with_rules: bool,
    ) -> (Command, Option<Action>) {
        let mut parts = parts.into_iter();
        let name = parts.next().unwrap_or_default();
        let name = String::from_utf8_lossy(&name).to_ascii_uppercase();
        self.update(|state| {
            state.ordinal += 1;
            let command = Command { connection, ordinal: state.ordinal, name, args: parts.collect() };
            *state.counts.entry(command.name.clone()).or_default() += 1;
            if state.log.len() == LOG_LENGTH {
                state.log.pop_front();
            }
            state.log.push_back(command.cut_short());
            let action = if with_rules { rule::strike(&mut state.rules, &command) } else { None };
            (command, action)
        })
    }

    /// Returns at once, unless the proxy is stalled.
    pub(super) async fn pass_stall(&self) {
        self.until(|state| (!state.stalled).then_some(())).await;
    }

    /// Returns when what is held now is released.
    pub(super) async fn hold(&self) {
        let generation = self.update(|state| {
            state.held += 1;
            state.generation
        });
        let _held = Held { shared: self, generation };
        self.until(|state| (state.generation != generation).then_some(())).await;
    }

    pub(super) fn release_held(&self) {
        self.update(|state| {
            // Set here and not by those that wake up: the next `wait_until_held` must not see what was
            // released.
            state.held = 0;
            state.generation += 1;
        });
    }

    /// Ends everything; for the proxy's drop.
    pub(super) fn close(&self) {
        self.update(|state| {
            state.closed = true;
            state.connections.values().for_each(JoinHandle::abort);
        });
    }
}

/// One held command or reply; takes itself off the count when its connection is cut.
struct Held<'a> {
    shared: &'a Shared,
    generation: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.update(|state| {
            if state.generation == self.generation {
                state.held -= 1;
            }
        });
    }
}

/// The state in a test's failure message.
fn describe(state: &State) -> String {
    const SHOWN: usize = 20;
    let mut text = format!(
        "{} of {} connections open, {} held, stalled: {}, rules left: {:?}, protocol errors: {:?}, commands:",
        state.connections.len(),
        state.opened,
        state.held,
        state.stalled,
        state.rules,
        state.protocol_errors,
    );
    for command in state.log.iter().skip(state.log.len().saturating_sub(SHOWN)) {
        let _ = write!(text, "\n  {command}"); // writing to a String cannot fail
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "#1 on 7: SET key a\\r")]
    async fn a_wait_that_takes_too_long_says_what_was_seen() {
        let shared = Shared::new(([127, 0, 0, 1], 1).into());
        shared.take_up(7, vec![b"set".to_vec(), b"key".to_vec(), b"a\r".to_vec()], true);
        shared.wait("the moon", |_| None::<()>).await;
    }
}
