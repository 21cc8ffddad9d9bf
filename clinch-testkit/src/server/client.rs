//! A tiny synchronous client, independent of the library under test.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::RedisServer;

/// How long the server may take for one answer. A test that stops the server and then asks it is told so by
/// this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A server's answer (RESP2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR …`, without the dash.
    Error(String),
    /// `:1`
    Int(i64),
    /// `$3…`; `None` is the null reply (`$-1`, and the null array `*-1` too).
    Bulk(Option<Vec<u8>>),
    /// `*2…`
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a simple, error or bulk reply, the digits of an integer; `None` for null and for arrays.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) | Self::Error(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Bulk(bytes) => bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            Self::Array(_) => None,
        }
    }

    /// The number of an integer reply.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// Whether it is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply {line:?}"));
        let text = line.strip_suffix("\r\n").ok_or_else(malformed)?;
        let (kind, rest) = text.split_at_checked(1).ok_or_else(malformed)?;
        let number = || rest.parse::<i64>().map_err(|_| malformed());
        Ok(match kind {
            "+" => Self::Simple(rest.to_owned()),
            "-" => Self::Error(rest.to_owned()),
            ":" => Self::Int(number()?),
            "$" | "*" if number()? == -1 => Self::Bulk(None),
            "$" => {
                let length = usize::try_from(number()?).map_err(|_| malformed())?;
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Self::Bulk(Some(bytes))
            }
            "*" => Self::Array((0..number()?).map(|_| Self::read(from)).collect::<io::Result<_>>()?),
            _ => return Err(malformed()),
        })
    }
}

/// One connection, logged in if there is a password.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(addr: SocketAddr, password: Option<&str>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, ANSWER_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        if let Some(password) = password {
            let reply = connection.command(&["AUTH", password])?;
            if reply.is_error() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("AUTH: {reply:?}")));
            }
        }
        Ok(connection)
    }

    pub(super) fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        Reply::read(&mut self.stream)
    }

    /// Whether the server has closed this connection (`CLIENT KILL`, `timeout`, a restart).
    fn is_closed(&self) -> bool {
        let stream = self.stream.get_ref();
        let unread = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let restored = stream.set_nonblocking(false);
        // Only "nothing to read yet" is as it should be; unread bytes would be a reply that nobody asked for.
        restored.is_err() || !unread.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl RedisServer {
    /// Sends one command on the server's control connection, as the default user, and returns the answer.
    ///
    /// The connection is the one on which the server first answered. It is made anew only when the server is
    /// found to have closed it *before* the command is sent, so a command is never sent twice.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached or does not answer within ten seconds. An error reply is not a panic.
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.try_command(args).unwrap_or_else(|error| {
            let name = args.first().map(|name| String::from_utf8_lossy(name.as_ref()).into_owned());
            panic!(
                "{} from the server at {}: {error} (is it stopped, paused or killed?)",
                name.map_or_else(String::new, |name| format!("no answer to {name}")),
                self.addr(),
            )
        })
    }

    /// As [`RedisServer::command`], with the error returned when the server cannot be reached.
    ///
    /// # Errors
    ///
    /// When it cannot be connected to, closes the connection, or does not answer within ten seconds.
    pub fn try_command<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        let mut control = self.control();
        // Taken out, and put back only after success: a connection that failed may still bring a late reply.
        let mut connection = match control.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => Connection::open(self.addr(), self.password.as_deref())?,
        };
        let reply = connection.command(args)?;
        *control = Some(connection);
        Ok(reply)
    }
}
