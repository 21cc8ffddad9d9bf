//! Counting commands where they cannot be mistaken: between the client and the server.
//!
//! `INFO commandstats` and `total_commands_processed` count what scripts call inside the server as well. So a scenario is run
//! once more, briefly, through this relay, which counts whole commands and passes bytes on as they come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A relay in front of a server; it ends with this value.
pub(crate) struct Wire {
    addr: SocketAddr,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    commands: AtomicU64,
    connections: AtomicU64,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("a listener has an address");
        let counts = Arc::new(Counts::default());
        let counting = counts.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counting.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(relay(client, server, counting.clone()));
            }
        });
        Self { addr, counts, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Whole commands that clients have sent so far.
    pub(crate) fn commands(&self) -> u64 {
        self.counts.commands.load(Ordering::Relaxed)
    }

    /// Connections that were opened so far.
    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn relay(client: TcpStream, server: SocketAddr, counts: Arc<Counts>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut counter = Counter::default();
    let there = pass_on(from_client, to_server, |bytes| {
        counts.commands.fetch_add(counter.count(bytes), Ordering::Relaxed);
    });
    tokio::join!(there, pass_on(from_server, to_client, |_| {}));
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        look(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Counts the commands in a stream of bytes that may be cut anywhere: arrays of bulk strings.
#[derive(Default)]
struct Counter {
    /// Bulk strings of the command that are still to come.
    strings: u64,
    /// Bytes of a bulk string, its line end included, that are still to come.
    bytes: u64,
    line: Vec<u8>,
}

impl Counter {
    /// How many commands end in these bytes.
    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut commands = 0;
        while !bytes.is_empty() {
            if self.bytes > 0 {
                let some = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(bytes.len());
                self.bytes -= some as u64;
                bytes = &bytes[some..];
                if self.bytes == 0 {
                    self.strings -= 1;
                    commands += u64::from(self.strings == 0);
                }
                continue;
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let (head, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.line.extend_from_slice(head);
            bytes = rest;
            if end.is_some() {
                let line = String::from_utf8_lossy(&self.line[1..]).trim().parse().unwrap_or(0);
                match self.line[0] {
                    b'*' => self.strings = line,
                    _ => self.bytes = line + 2,
                }
                self.line.clear();
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    const TWO: &[u8] = b"*2\r\n$3\r\nGET\r\n$5\r\n*1\r\nx\r\n*1\r\n$4\r\nPING\r\n";

    #[test]
    fn commands_are_counted_wherever_the_bytes_are_cut() {
        for cut in 0..TWO.len() {
            let (first, second) = TWO.split_at(cut);
            let mut counter = Counter::default();
            assert_eq!(counter.count(first) + counter.count(second), 2, "cut at {cut}");
        }
    }
}
