//! What nodes tell by themselves, as one stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::QuorumStore;
use super::ballot::majority;
use super::contention::Contention;
use crate::lease::{ClaimKey, Token};
use crate::store::{Notice, Revocations, Wakeups};

/// How many revocations a slow listener may fall behind.
const BACKLOG: usize = 256;
/// When only some of the nodes have told that a place became free: mostly it was a vote that somebody took back.
const FEW_MS: (u64, u64) = (100, 200);

/// Ends a task when it is dropped.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Fires for the streams of a key: soon after more than half of them have, but not for all contenders at the same instant;
/// later if fewer did.
async fn merge(mut streams: Vec<Wakeups>, on: ClaimKey, signal: Arc<Notify>, contention: Arc<Contention>) {
    let enough = majority(streams.len());
    loop {
        let mut fired = vec![false; streams.len()];
        let mut few = None;
        loop {
            let firing = select_all(streams.iter_mut().map(|stream| Box::pin(stream.next())));
            let far = Instant::now() + Duration::from_secs(86_400);
            match timeout_at(few.unwrap_or(far), firing).await {
                Ok(((), number, _)) => fired[number] = true,
                Err(_) if few.is_none() => continue,
                Err(_) => break,
            }
            if fired.iter().filter(|fired| **fired).count() >= enough {
                sleep(contention.pause(&on)).await;
                break;
            }
            few.get_or_insert_with(|| Instant::now() + contention.ms(FEW_MS.0, FEW_MS.1));
        }
        // What the others told meanwhile was about the same.
        for stream in &mut streams {
            let _ = stream.next().now_or_never();
        }
        signal.notify_one();
    }
}

/// The revocations of all nodes, once somebody has asked for them.
#[derive(Debug)]
pub(super) struct Heard {
    sender: broadcast::Sender<Notice>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Which nodes are listened to.
    listening: Vec<bool>,
    tasks: Vec<AbortHandle>,
}

impl State {
    fn is_listening(&self) -> bool {
        let listening = self.listening.iter().filter(|listening| **listening).count();
        listening >= majority(self.listening.len())
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    pub(super) fn new() -> Self {
        Self { sender: broadcast::channel(BACKLOG).0, state: Arc::default() }
    }

    pub(super) fn close(&self) {
        locked(&self.state).tasks.drain(..).for_each(|task| task.abort());
    }
}

/// Hands on what one node tells. A revocation is carried out by more than half of the nodes, so whoever listens to as many
/// hears of every one.
async fn forward(
    mut notices: Revocations,
    number: usize,
    state: Arc<Mutex<State>>,
    sender: broadcast::Sender<Notice>,
) {
    while let Some(notice) = notices.next().await {
        let told = match notice {
            Notice::Listening => {
                let mut state = locked(&state);
                state.listening[number] = true;
                state.is_listening()
            }
            Notice::Revoked(_) => true,
        };
        if told {
            // An error only says that nobody listens.
            let _ = sender.send(notice);
        }
    }
}

impl QuorumStore {
    pub(super) fn merged_wakeups(&self, on: &ClaimKey, queued: Option<&Token>) -> Wakeups {
        let Ok(runtime) = Handle::try_current() else { return Wakeups::never() };
        let streams = self.nodes.iter().map(|node| node.wakeups(on, queued)).collect();
        let signal = Arc::new(Notify::new());
        let task = runtime.spawn(merge(streams, on.clone(), signal.clone(), self.contention.clone()));
        Wakeups::new(signal, Ends(task.abort_handle()))
    }

    pub(super) fn merged_revocations(&self) -> Revocations {
        let events = self.heard.sender.subscribe();
        let mut state = locked(&self.heard.state);
        // They end with the runtime that they were started on; another one begins anew.
        let all_run = !state.tasks.is_empty() && !state.tasks.iter().any(AbortHandle::is_finished);
        if let (false, Ok(runtime)) = (all_run, Handle::try_current()) {
            state.tasks.drain(..).for_each(|task| task.abort());
            state.listening = vec![false; self.nodes.len()];
            for (number, node) in self.nodes.iter().enumerate() {
                let (shared, sender) = (self.heard.state.clone(), self.heard.sender.clone());
                let task = runtime.spawn(forward(node.revocations(), number, shared, sender));
                state.tasks.push(task.abort_handle());
            }
        }
        let listening = !state.listening.is_empty() && state.is_listening();
        Revocations::new(events, listening)
    }
}
