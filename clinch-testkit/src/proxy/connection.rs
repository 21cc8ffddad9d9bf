//! One connection: commands in one direction, replies in the other, and the faults between.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::frame::{Frames, Kind, kind};
use super::rule::{Action, Command, is_subscription};
use super::state::Shared;

/// How many commands may wait for their replies; more are not read from the client.
const PIPELINE: usize = 1024;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client sends no more; replies may still be on their way to it.
    ClientDone,
    /// Both sides are closed.
    Close,
    /// Both sides are closed, the client's with a reset.
    Reset,
}

/// What the client is to get next, in the order of its commands.
#[derive(Debug)]
enum Due {
    /// The server's reply to a command. `confirmations` is not zero for `SUBSCRIBE` and its like: that many
    /// frames make up the reply, or a single error.
    Reply { confirmations: usize, fate: Fate },
    /// An answer of the proxy's own.
    Answer(Vec<u8>),
    /// Nothing: the connection is closed when it comes to this.
    Cut,
    /// From here on the bytes are no longer replies.
    Raw,
}

/// What happens to a reply when it has come from the server.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Deliver,
    Delay(Duration),
    Hold,
    Swallow,
    Cut,
    CutMid(usize),
}

/// Runs an accepted connection to its end.
pub(super) async fn run(index: usize, client: TcpStream, upstream: SocketAddr, shared: Arc<Shared>) {
    let _entry = Entry { index, shared: &shared };
    let client = client; // dropped before the entry: a parameter would be dropped after it
    if let Ok(server) = TcpStream::connect(upstream).await {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        // Any other error means that one side is gone, which is no surprise here.
        if let Err(error) = relay(index, client, server, &shared).await
            && error.kind() == io::ErrorKind::InvalidData
        {
            shared.update(|state| state.protocol_errors.push(format!("connection {index}: {error}")));
        }
    }
}

/// Takes the connection off the list of open ones, also when its task is aborted. The sockets are closed by
/// then.
struct Entry<'a> {
    index: usize,
    shared: &'a Shared,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.update(|state| state.connections.remove(&self.index));
    }
}

async fn relay(
    index: usize,
    mut client: TcpStream,
    mut server: TcpStream,
    shared: &Shared,
) -> io::Result<()> {
    let (due, dues) = mpsc::channel(PIPELINE);
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests = requests(index, from_client, to_server, due, shared);
        let replies = replies(from_server, to_client, dues, shared);
        tokio::pin!(requests, replies);
        tokio::select! {
            end = &mut replies => end?,
            end = &mut requests => match end? {
                End::ClientDone => replies.await?,
                end => end,
            },
        }
    };
    if end == End::Reset {
        reset_on_close(&client);
    }
    Ok(())
}

/// Makes the close that follows send a reset instead of an orderly end.
#[allow(deprecated, reason = "deprecated because a linger time above zero blocks; zero does not")]
fn reset_on_close(stream: &TcpStream) {
    let _ = stream.set_linger(Some(Duration::ZERO));
}

/// Passes commands on from the client to the server.
async fn requests(
    index: usize,
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    due: mpsc::Sender<Due>,
    shared: &Shared,
) -> io::Result<End> {
    let mut from = Frames::new(from);
    let mut black_hole = false;
    loop {
        let (mut bytes, parts) = match from.command().await {
            Ok(Some(command)) => command,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            // The client closed the connection, in order or not. All that it sent before is still delivered.
            Ok(None) | Err(_) => break,
        };
        let (command, action) = shared.take_up(index, parts, !black_hole);
        if black_hole {
            continue;
        }
        shared.pass_stall().await;
        let mut fate = Fate::Deliver;
        let mut twice = false;
        match action {
            None => {}
            Some(Action::CutBeforeRequest) => return Ok(End::Close),
            Some(Action::DropRequestThenCut) => {
                enqueue(&due, Due::Cut).await?;
                std::future::pending::<()>().await; // the other direction ends the connection
            }
            Some(Action::DropRequestThenStall) => {
                black_hole = true;
                continue;
            }
            Some(Action::ReplaceReply(answer)) => {
                enqueue(&due, Due::Answer(answer)).await?;
                continue;
            }
            Some(Action::DelayRequest(delay)) => tokio::time::sleep(delay).await,
            Some(Action::HoldRequest) => shared.hold().await,
            Some(Action::DelayReply(delay)) => fate = Fate::Delay(delay),
            Some(Action::HoldReply) => fate = Fate::Hold,
            Some(Action::CutAfterRequest) => fate = Fate::Cut,
            Some(Action::CutMidReply(length)) => fate = Fate::CutMid(length),
            Some(Action::Duplicate) => twice = true,
        }
        shared.pass_stall().await; // it may have been stalled during the delay

        // The reply is announced before the command can cause it.
        if matches!(command.name.as_str(), "PSYNC" | "SYNC" | "MONITOR") {
            enqueue(&due, Due::Raw).await?;
            to.write_all(&bytes).await?;
            copy(from, &mut to, shared).await?;
            break;
        }
        let confirmations = confirmations(&command);
        enqueue(&due, Due::Reply { confirmations, fate }).await?;
        if twice {
            enqueue(&due, Due::Reply { confirmations, fate: Fate::Swallow }).await?;
            bytes.extend_from_within(..);
        }
        to.write_all(&bytes).await?;
    }
    // The server sees that the client is done, after all that the client had sent.
    to.shutdown().await?;
    Ok(End::ClientDone)
}

async fn enqueue(due: &mpsc::Sender<Due>, next: Due) -> io::Result<()> {
    due.send(next).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// How many frames confirm this command; zero for one with an ordinary reply.
fn confirmations(command: &Command) -> usize {
    // Without arguments, UNSUBSCRIBE is confirmed for each channel there is, or once. The first is taken for
    // the reply, and the others are passed on as out-of-band frames.
    if is_subscription(&command.name) { command.args.len().max(1) } else { 0 }
}

/// Passes replies on from the server to the client.
async fn replies(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut dues: mpsc::Receiver<Due>,
    shared: &Shared,
) -> io::Result<End> {
    let mut from = Frames::new(from);
    let mut subscribed = false;
    let mut due: Option<Due> = None;
    let mut frame: Option<Vec<u8>> = None;
    loop {
        // A reply is announced before it can come, so for a frame that is here, its `Due` is here too.
        due = due.or_else(|| dues.try_recv().ok());
        match due.take() {
            Some(Due::Answer(answer)) => {
                shared.pass_stall().await;
                to.write_all(&answer).await?;
                continue;
            }
            Some(Due::Cut) => return Ok(End::Close),
            Some(Due::Raw) => {
                if let Some(frame) = frame {
                    shared.pass_stall().await;
                    to.write_all(&frame).await?;
                }
                copy(from, &mut to, shared).await?;
                return Ok(End::Close);
            }
            reply => due = reply,
        }
        let Some(frame) = frame.take() else {
            // Also without a command that waits for its reply, as the server may send messages.
            tokio::select! {
                biased; // what comes after `Due::Raw` cannot be read as a reply
                Some(next) = dues.recv(), if due.is_none() => due = Some(next),
                next = from.reply() => match next? {
                    Some(next) => frame = Some(next),
                    None => return Ok(End::Close),
                },
            }
            continue;
        };
        let Some(Due::Reply { confirmations, fate }) = due.take() else {
            // Nobody asked for it: a message, or an error like "max number of clients reached".
            shared.pass_stall().await;
            to.write_all(&frame).await?;
            continue;
        };
        subscribed |= confirmations > 0;
        let kind = kind(&frame, subscribed);
        if kind == Kind::Message || (kind == Kind::Confirmation && confirmations == 0) {
            due = Some(Due::Reply { confirmations, fate });
            shared.pass_stall().await;
            to.write_all(&frame).await?;
            continue;
        }
        if kind == Kind::Confirmation && confirmations > 1 {
            let fate = if matches!(fate, Fate::Swallow) { Fate::Swallow } else { Fate::Deliver };
            due = Some(Due::Reply { confirmations: confirmations - 1, fate });
        }
        match fate {
            Fate::Deliver => {}
            Fate::Delay(delay) => tokio::time::sleep(delay).await,
            Fate::Hold => shared.hold().await,
            Fate::Swallow => continue,
            Fate::Cut => return Ok(End::Close),
            Fate::CutMid(length) => {
                shared.pass_stall().await;
                to.write_all(&frame[..length.min(frame.len() - 1)]).await?;
                return Ok(End::Reset);
            }
        }
        shared.pass_stall().await;
        to.write_all(&frame).await?;
    }
}

/// Passes bytes on until the end of the stream.
async fn copy(
    mut from: Frames<impl AsyncRead + Unpin>,
    to: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
) -> io::Result<()> {
    while let Some(bytes) = from.bytes().await? {
        shared.pass_stall().await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}
