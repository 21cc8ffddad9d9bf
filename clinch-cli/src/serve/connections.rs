//! Connections: accepted within bounds, given up on when their client does nothing, drained at the end.
//!
//! - At most so many live at a time; who comes on top waits in the kernel's queue.
//! - A client has a few seconds for the head of each request, which is also how long an idle connection is kept.
//! - A client that does not take its answer is dropped: a stalled reader holds a place no longer than a stalled writer.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};
use tower_service::Service;

use super::Limits;

/// The largest head of a request, in bytes; hyper answers a larger one with 431.
const HEAD_BYTES: usize = 32 * 1024;

/// What `accept` waits when the process has no file descriptor left: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long connections have to notice that it is over.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// How far the server is towards its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    Serving,
    /// No new connection, no new request; what runs goes on.
    Draining,
    /// Nothing goes on.
    Over,
}

/// Hears of the server's end.
#[derive(Debug, Clone)]
pub(super) struct Phases(watch::Receiver<Phase>);

impl Phases {
    pub(super) fn new() -> (watch::Sender<Phase>, Self) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (sender, Self(receiver))
    }

    /// Waits until the server is that far. Cancel safe.
    pub(super) async fn reached(&mut self, phase: Phase) {
        // An error means that the server is gone, which is further than any phase.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    places: Arc<Semaphore>,
    all: u32,
    limits: Limits,
    phases: Phases,
}

impl Connections {
    pub(super) fn new(limits: &Limits, phases: Phases) -> Self {
        let places = Arc::new(Semaphore::new(limits.connections));
        // The configuration allows no more than fit.
        let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        Self { places, all, limits: limits.clone(), phases }
    }

    /// Accepts and serves until the server drains; the listener is closed then.
    pub(super) async fn accept(&self, listener: TcpListener, app: Router) {
        let mut phases = self.phases.clone();
        loop {
            let next = async {
                let place = self.places.clone().acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                biased;
                () = phases.reached(Phase::Draining) => return,
                next = next => next,
            };
            let (Ok(place), Ok((stream, peer))) = (place, accepted) else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (app, limits, phases) = (app.clone(), self.limits.clone(), self.phases.clone());
            tokio::spawn(async move {
                serve(stream, peer, app, &limits, phases).await;
                drop(place);
            });
        }
    }

    /// Waits until all have ended.
    pub(super) async fn drained(&self) {
        // Closed never; and an error would mean that there is nothing to wait for.
        let _ = self.places.acquire_many(self.all).await;
    }

    /// The same, after it was said that it is over.
    pub(super) async fn ended(&self) {
        let _ = timeout(LAST_MOMENT, self.drained()).await;
    }
}

/// Serves one connection to its end. How it went is the client's business: there is nobody else to tell.
async fn serve(stream: TcpStream, peer: SocketAddr, app: Router, limits: &Limits, mut phases: Phases) {
    // Small answers as soon as they are there. If it cannot be set, they are only slower.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut app = app.clone();
        async move { app.call(request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.stall_time)), answer);
    let mut connection = pin!(connection);
    let mut over = phases.clone();
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = phases.reached(Phase::Draining) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = connection => {}
        () = over.reached(Phase::Over) => {}
    }
}

/// A stream whose writes fail when the other side takes nothing for too long.
struct Patient {
    stream: TcpStream,
    limit: Duration,
    /// Since the last write that the other side had no room for.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    const fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    /// The clock is paused: it goes on when nothing else does.
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stalls_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limit = Duration::from_secs(20);
        let mut patient = Patient::new(stream, limit);
        let began = Instant::now();
        let chunk = vec![0; 1 << 20];
        let error = loop {
            // The kernel takes some of it.
            if let Err(error) = patient.write_all(&chunk).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limit);
        drop(reader);
    }
}
