//! A small HTTP/1.1 client for tests: one request a connection, headers exactly as given, the answer as it comes.
//!
//! It shares no code with the servers under test, forges what it is told to, and never retries.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a test without its answer has nothing better to do than to stop with a message"
)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that is being put together.
#[derive(Debug, Clone)]
#[must_use = "it is not sent yet"]
pub struct Request {
    to: SocketAddr,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// An answer whose head has come.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    /// How much of the body is to come: so many bytes, chunks, or all until the end.
    body: Body,
}

#[derive(Debug)]
enum Body {
    Bytes(usize),
    Chunks,
    UntilEnd,
}

/// A GET.
pub fn get(to: SocketAddr, path: &str) -> Request {
    request(to, "GET", path)
}

/// A POST.
pub fn post(to: SocketAddr, path: &str) -> Request {
    request(to, "POST", path)
}

/// A request with any method. `Host` is the address, unless it is set.
pub fn request(to: SocketAddr, method: &str, path: &str) -> Request {
    Request { to, line: format!("{method} {path} HTTP/1.1"), headers: Vec::new(), body: Vec::new() }
}

impl Request {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Shows a token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// Sends this as JSON.
    pub fn json(mut self, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        self.header("Content-Type", "application/json")
    }

    /// Sends it and returns when the head of the answer has come.
    ///
    /// # Errors
    /// As they come from the connection.
    pub fn try_send(self) -> io::Result<Response> {
        let mut stream = TcpStream::connect(self.to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let has = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut text = format!("{}\r\nConnection: close\r\n", self.line);
        if !has("host") {
            text += &format!("Host: {}\r\n", self.to);
        }
        if !has("content-length") && !has("transfer-encoding") && !self.line.starts_with("GET") {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        stream.write_all(text.as_bytes())?;
        stream.write_all(&self.body)?;
        Response::read(stream)
    }

    /// The same.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn send(self) -> Response {
        let line = self.line.clone();
        self.try_send().unwrap_or_else(|error| panic!("no answer to {line}: {error}"))
    }
}

impl Response {
    /// Reads the head of an answer that comes on this stream.
    ///
    /// # Errors
    /// As they come from the connection.
    pub fn read(stream: TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Self { status, headers, reader, body: Body::UntilEnd };
        response.body = match (response.header("content-length"), response.header("transfer-encoding")) {
            (_, Some("chunked")) => Body::Chunks,
            (Some(length), _) => Body::Bytes(length.parse().map_err(io::Error::other)?),
            _ => Body::UntilEnd,
        };
        Ok(response)
    }

    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The next piece of a body that comes in pieces; `None` at its end.
    ///
    /// # Errors
    /// As they come from the connection.
    pub fn piece(&mut self) -> io::Result<Option<String>> {
        let bytes = match self.body {
            Body::Chunks => self.chunk()?,
            Body::Bytes(0) => return Ok(None),
            Body::Bytes(length) => {
                let mut bytes = vec![0; length];
                self.reader.read_exact(&mut bytes)?;
                self.body = Body::Bytes(0);
                bytes
            }
            Body::UntilEnd => {
                let mut bytes = Vec::new();
                self.reader.read_to_end(&mut bytes)?;
                bytes
            }
        };
        Ok(if bytes.is_empty() { None } else { Some(String::from_utf8_lossy(&bytes).into_owned()) })
    }

    fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16)
            .map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, "the body ended in the middle"))?;
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The whole body.
    ///
    /// # Panics
    /// If it ends too early.
    #[must_use]
    pub fn text(mut self) -> String {
        let mut text = String::new();
        while let Some(piece) = self.piece().expect("the body comes to its end") {
            text += &piece;
        }
        text
    }

    /// The whole body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(self) -> serde_json::Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
