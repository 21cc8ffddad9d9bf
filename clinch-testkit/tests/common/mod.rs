//! A client that speaks bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy does not see that these are tests"
)]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No step of a test takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(addr).await.unwrap() }
    }

    /// Sends one command; words are separated by spaces.
    pub(crate) async fn send(&mut self, command: &str) {
        self.send_all(&[command]).await;
    }

    /// Sends commands in one write.
    pub(crate) async fn send_all(&mut self, commands: &[&str]) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encoded(command)).collect();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Reads exactly this.
    pub(crate) async fn expect(&mut self, expected: &str) {
        let mut bytes = vec![0; expected.len()];
        let read = timeout(PATIENCE, self.stream.read_exact(&mut bytes)).await;
        read.unwrap_or_else(|_| panic!("no {expected:?} within {PATIENCE:?}")).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    /// Sends a command and reads exactly this reply.
    pub(crate) async fn ask(&mut self, command: &str, expected: &str) {
        self.send(command).await;
        self.expect(expected).await;
    }

    /// Reads the end of the stream, and nothing before it.
    pub(crate) async fn expect_closed(&mut self) {
        match timeout(PATIENCE, self.stream.read(&mut [0; 64])).await.expect("still open") {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("expected the end of the stream, got {other:?}"),
        }
    }

    /// Nothing comes. The short wait is no synchronisation: it only gives a wrong byte the time to show up.
    pub(crate) async fn expect_silence(&mut self) {
        let read = timeout(Duration::from_millis(30), self.stream.read(&mut [0; 64])).await;
        assert!(read.is_err(), "expected silence, got {read:?}");
    }
}

/// A command in the protocol's form.
pub(crate) fn encoded(command: &str) -> Vec<u8> {
    let words: Vec<_> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
