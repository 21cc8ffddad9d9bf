//! A connection for pushes: what is published is handed on where it is read, without a task, a queue or a copy in between.
//!
//! One task reads and asks. While it waits for an answer it goes on handing on what is published. It asks for one thing at a
//! time, so that what is answered is never taken for the answer to something else.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::{Client, RedisError, RedisResult};
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use super::wake::Wake;
use super::wire::{Line, Packed, Push, dial, read_push};

/// How much is read at a time; what is longer makes more room for itself.
const CHUNK: usize = 4 * 1024;

/// What has come that is no news of a key.
#[derive(Debug)]
pub(super) enum Said {
    Subscribed(String),
    /// Be it that nobody asked for that.
    Unsubscribed(String),
    Answer,
    Refused(RedisError),
}

/// The connection.
pub(super) struct Ear {
    line: Line,
    /// What has come and is not understood yet.
    buffer: Vec<u8>,
    fresh: Range<usize>,
}

impl Ear {
    /// Connects to this server. `roots`: the certificates that its own must come from, in PEM.
    pub(super) async fn open(client: &Client, roots: Option<&[u8]>) -> RedisResult<Self> {
        Ok(Self::over(dial(client, roots).await?))
    }

    fn over(line: Line) -> Self {
        Self { line, buffer: vec![0; CHUNK], fresh: 0..0 }
    }

    /// Hands on what is published until something else comes.
    ///
    /// # Cancel safety
    /// Safe: what has come is kept.
    pub(super) async fn hear(&mut self, wake: &Wake) -> RedisResult<Said> {
        loop {
            if let Some(said) = self.hear_some(wake).await? {
                return Ok(said);
            }
        }
    }

    /// The same until all is handed on that has come, if somebody may wait no longer now.
    ///
    /// # Cancel safety
    /// Safe: what has come is kept.
    pub(super) async fn hear_some(&mut self, wake: &Wake) -> RedisResult<Option<Said>> {
        poll_fn(|cx| self.poll_hear(cx, wake)).await
    }

    fn poll_hear(&mut self, cx: &mut Context<'_>, wake: &Wake) -> Poll<RedisResult<Option<Said>>> {
        let mut told = false;
        loop {
            while let Some((push, length)) = read_push(&self.buffer[self.fresh.clone()])? {
                self.fresh.start += length;
                // We name no channel that is not text.
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                match push {
                    Push::Message { channel, payload } => {
                        if let Ok(channel) = std::str::from_utf8(channel) {
                            told |= wake.dispatch(channel, payload);
                        }
                    }
                    Push::Subscribed(name) => return Poll::Ready(Ok(Some(Said::Subscribed(text(name))))),
                    Push::Unsubscribed(name) => return Poll::Ready(Ok(Some(Said::Unsubscribed(text(name))))),
                    Push::Answer => return Poll::Ready(Ok(Some(Said::Answer))),
                    Push::Refused(error) => return Poll::Ready(Ok(Some(Said::Refused(error)))),
                }
            }
            if told {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
    }

    /// Reads once.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fresh.is_empty() {
            self.fresh = 0..0;
            if self.buffer.len() > CHUNK {
                // What made it larger is gone.
                self.buffer = vec![0; CHUNK];
            }
        } else if self.fresh.end == self.buffer.len() {
            if self.fresh.start > 0 {
                self.buffer.copy_within(self.fresh.clone(), 0);
                self.fresh = 0..self.fresh.len();
            } else {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
        let mut space = ReadBuf::new(&mut self.buffer[self.fresh.end..]);
        ready!(Pin::new(&mut self.line).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.fresh.end += count;
        Poll::Ready(Ok(()))
    }

    /// Subscribes to these channels with one command, or with one for each where `command` differs; says which were refused,
    /// and why.
    ///
    /// # Errors
    /// The connection failed, or a channel was taken from it meanwhile.
    pub(super) async fn subscribe(
        &mut self,
        wake: &Wake,
        names: &[String],
        commands: Vec<Packed>,
    ) -> RedisResult<Vec<(String, RedisError)>> {
        let (together, mut refused) = (commands.len() < names.len(), Vec::new());
        self.say(&commands).await?;
        let mut due: VecDeque<&String> = names.iter().collect();
        while let Some(first) = due.front() {
            match self.hear(wake).await? {
                Said::Subscribed(name) if name == **first => _ = due.pop_front(),
                Said::Refused(error) if together => {
                    refused.extend(due.drain(..).map(|name| (name.clone(), error.clone())));
                }
                Said::Refused(error) => refused.extend(due.pop_front().map(|name| (name.clone(), error))),
                _ => return Err(out_of_order()),
            }
        }
        Ok(refused)
    }

    /// Ends the subscription of these channels.
    ///
    /// # Errors
    /// The connection failed, or another channel was taken from it meanwhile.
    pub(super) async fn unsubscribe(
        &mut self,
        wake: &Wake,
        names: &[String],
        commands: Vec<Packed>,
    ) -> RedisResult<()> {
        self.say(&commands).await?;
        for name in names {
            match self.hear(wake).await? {
                Said::Unsubscribed(left) if left == *name => {}
                // Who may not even leave hears what nobody waits for.
                Said::Refused(_) if commands.len() == names.len() => {}
                Said::Refused(_) => return Ok(()),
                _ => return Err(out_of_order()),
            }
        }
        Ok(())
    }

    /// Makes a round trip.
    ///
    /// # Errors
    /// The connection failed, or a channel was taken from it meanwhile.
    pub(super) async fn ping(&mut self, wake: &Wake) -> RedisResult<()> {
        self.say(&[Packed::command(1, 4).word("PING")]).await?;
        match self.hear(wake).await? {
            // Refused or not, it was answered.
            Said::Answer | Said::Refused(_) => Ok(()),
            _ => Err(out_of_order()),
        }
    }

    async fn say(&mut self, commands: &[Packed]) -> io::Result<()> {
        let bytes: Vec<&[u8]> = commands.iter().map(Packed::bytes).collect();
        self.line.write_all(&bytes.concat()).await?;
        self.line.flush().await
    }
}

/// What is told a connection whose answers can no longer be told apart.
fn out_of_order() -> RedisError {
    io::Error::new(io::ErrorKind::InvalidData, "what came is no answer to what was asked").into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;
    use crate::key::Key;
    use crate::lease::ClaimKey;
    use crate::stores::StoreOptions;
    use crate::stores::redis::connection::Target;
    use crate::stores::redis::keys::Names;
    use crate::stores::redis::link::Link;
    use crate::stores::redis::wake::{Source, command};

    fn ear() -> (Ear, DuplexStream, Arc<Wake>) {
        let (ours, theirs) = duplex(1 << 16);
        let client = Arc::new(Client::open("redis://nowhere.invalid").unwrap());
        let target = Target::Fixed(client, Arc::from(""));
        let link = Arc::new(Link::new(target, StoreOptions::default(), String::new()));
        let wake = Arc::new(Wake::new(Source::One(link), Names::new(""), Arc::default()));
        (Ear::over(Box::new(ours)), theirs, wake)
    }

    fn names(names: [&str; 2]) -> Vec<String> {
        names.map(str::to_owned).into()
    }

    fn each(word: &str, names: &[String]) -> Vec<Packed> {
        names.iter().map(|name| command(word, std::slice::from_ref(name))).collect()
    }

    /// What is published while an answer is waited for is handed on, however it is cut, and each refusal is its own channel's.
    #[tokio::test]
    async fn what_is_published_is_heard_while_an_answer_is_waited_for() {
        let (mut ear, mut server, wake) = ear();
        // It cannot connect, and is fired by nothing but what is published here.
        let mut wakeups = wake.wakeups(&ClaimKey::lock(Key::new("k").unwrap()), None);
        let names = names(["a", "b"]);
        let commands = each("SSUBSCRIBE", &names);
        let serve = async {
            let mut said = [0; 256];
            assert!(server.read(&mut said).await.unwrap() > 0);
            let come = b"*3\r\n$7\r\nmessage\r\n$13\r\nwake:{lock:k}\r\n$0\r\n\r\n*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n-NOPERM no\r\n";
            for byte in come {
                server.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (refused, ()) = tokio::join!(ear.subscribe(&wake, &names, commands), serve);
        let refused: Vec<_> = refused.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(refused, ["b"]);
        assert!(wakeups.next().now_or_never().is_some());
    }

    /// A command for several channels is refused for all of them at once.
    #[tokio::test]
    async fn a_command_is_refused_as_a_whole() {
        let (mut ear, mut server, wake) = ear();
        let names = names(["a", "b"]);
        server.write_all(b"-NOPERM no\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n").await.unwrap();
        let refused = ear.subscribe(&wake, &names, vec![command("SUBSCRIBE", &names)]).await.unwrap();
        assert_eq!(refused.len(), 2);
        ear.ping(&wake).await.unwrap();
    }

    /// A channel that is taken from the connection is never taken for an answer; nor is an end of the connection.
    #[tokio::test]
    async fn what_is_no_answer_ends_the_connection() {
        for come in ["*3\r\n$12\r\nsunsubscribe\r\n$1\r\nx\r\n:0\r\n", ""] {
            let (mut ear, mut server, wake) = ear();
            let names = names(["a", "b"]);
            server.write_all(come.as_bytes()).await.unwrap();
            server.shutdown().await.unwrap();
            let commands = each("SSUBSCRIBE", &names);
            assert!(ear.subscribe(&wake, &names, commands).await.is_err());
        }
    }
}
