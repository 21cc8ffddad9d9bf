//! A connection for pushes, by RESP3: what comes over it is handed on where it is read, without a task or a queue in between.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;

use super::wake::Wake;

/// What comes over a connection without being asked for.
#[derive(Default)]
pub(super) struct Ear {
    /// The connection is gone, or answers on it can no longer be told apart.
    deaf: AtomicBool,
    changed: Notify,
    /// Channels whose subscription we are ending ourselves.
    leaving: Mutex<BTreeSet<String>>,
}

impl Ear {
    /// Opens a connection to this server and listens on it.
    pub(super) async fn open(
        self: &Arc<Self>,
        wake: &Arc<Wake>,
        client: &Client,
    ) -> RedisResult<MultiplexedConnection> {
        let (ear, wake) = (self.clone(), wake.clone());
        let push = move |push: PushInfo| {
            ear.hear(&wake, &push);
            Ok::<_, Infallible>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push);
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire)
    }

    /// Waits until it is deaf.
    pub(super) async fn deafened(&self) {
        while !self.is_deaf() {
            self.changed.notified().await;
        }
    }

    /// The channels that are being unsubscribed.
    pub(super) fn leaving(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, wake: &Wake, push: &PushInfo) {
        let text = |at: usize| match push.data.get(at) {
            Some(Value::BulkString(bytes)) => Some(bytes.as_slice()),
            _ => None,
        };
        // We name none that is not text.
        let channel = text(0).and_then(|name| std::str::from_utf8(name).ok());
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let (Some(channel), Some(payload)) = (channel, text(1)) {
                    wake.dispatch(channel, payload);
                }
                return;
            }
            PushKind::SUnsubscribe if channel.is_some_and(|name| self.leaving().contains(name)) => {
                return;
            }
            PushKind::SUnsubscribe | PushKind::Disconnection => {}
            _ => return,
        }
        self.deaf.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// The same server by RESP3, in which what is pushed is told apart from what is answered.
pub(super) fn pushing(client: &Client) -> RedisResult<Client> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    Client::open(info.clone().set_redis_settings(settings))
}
