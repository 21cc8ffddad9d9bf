//! Clients that speak to a socket themselves, so that they can leave when they like, and send what no good client sends.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{Answer, LONG};

/// A connection over which plain bytes go.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(LONG, self.stream.write_all(bytes.as_ref())).await.expect("the server reads").unwrap();
    }

    /// Sends a request of HTTP/1.1.
    pub(crate) async fn request(&mut self, request: &Request<Full<Bytes>>) {
        self.send(written(request).await).await;
    }

    /// Reads until what was read holds this text, and returns all of it.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.read).into_owned();
            if so_far.contains(text) {
                return so_far;
            }
            assert!(self.read_more().await, "the connection ended before `{text}` came: {so_far}");
        }
    }

    /// Reads until the server closes the connection.
    pub(crate) async fn read_to_end(&mut self) -> &[u8] {
        while self.read_more().await {}
        &self.read
    }

    /// The one answer that comes before the server closes the connection.
    pub(crate) async fn answer(&mut self) -> Answer {
        let read = self.read_to_end().await;
        parsed(read).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(read)))
    }

    /// False at the end of the connection. One that the server resets has ended as well.
    async fn read_more(&mut self) -> bool {
        let read = timeout(LONG, self.stream.read_buf(&mut self.read)).await.expect("the server answers");
        read.is_ok_and(|read| read > 0)
    }
}

/// A request as HTTP/1.1 has it on the wire.
pub(crate) async fn written(request: &Request<Full<Bytes>>) -> Vec<u8> {
    let body = request.body().clone().collect().await.unwrap().to_bytes();
    let mut text = format!("{} {} HTTP/1.1\r\nhost: test\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    text.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    text.extend(&body);
    text
}

/// Reads an answer of HTTP/1.1 that has a length or ends with the connection.
fn parsed(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = (str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.parse().ok()?, value.trim().parse().ok()?))
        })
        .collect::<Option<_>>()?;
    Some(Answer { status, headers, body: Bytes::copy_from_slice(body) })
}

/// A connection of HTTP/2, for any body.
pub(crate) struct Http2<B> {
    pub(crate) sender: SendRequest<B>,
    driving: JoinHandle<()>,
    /// The same socket, to cut the connection with.
    socket: std::net::TcpStream,
}

impl<B> Http2<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap().into_std().unwrap();
        let socket = stream.try_clone().unwrap();
        let stream = TokioIo::new(TcpStream::from_std(stream).unwrap());
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (sender, connection) = handshake.await.unwrap();
        let driving = tokio::spawn(async { drop(connection.await) });
        Self { sender, driving, socket }
    }

    /// Begins a request. If what it returns is dropped, the stream is reset.
    pub(crate) fn begin(
        &mut self,
        mut request: Request<B>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + use<B> {
        *request.uri_mut() = format!("http://test{}", request.uri()).parse().unwrap();
        self.sender.send_request(request)
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn send(&mut self, request: Request<B>) -> Answer {
        let response = timeout(LONG, self.begin(request)).await.expect("the server answers").unwrap();
        read(response).await
    }

    /// Closes the connection without a word, whatever is under way on it.
    pub(crate) async fn close(self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        timeout(LONG, self.driving).await.expect("the client sees its connection end").unwrap();
    }
}

/// Reads an answer to its end.
pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = timeout(LONG, body.collect()).await.expect("the body ends").unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// The ways in which a client goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It closes its connection of HTTP/1.1.
    Http1,
    /// It closes its connection of HTTP/2.
    Http2,
    /// It resets the stream, and keeps its connection of HTTP/2.
    Http2Stream,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http2Stream];
}

/// A client with one request under way.
pub(crate) enum Client {
    Http1(Wire),
    Http2(
        Http2<Full<Bytes>>,
        std::pin::Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>,
    ),
}

impl Client {
    /// Sends a request, and waits for nothing.
    pub(crate) async fn send(way: Way, address: SocketAddr, request: Request<Full<Bytes>>) -> Self {
        if way == Way::Http1 {
            let mut wire = Wire::connect(address).await;
            wire.request(&request).await;
            return Self::Http1(wire);
        }
        let mut connection = Http2::connect(address).await;
        let response = Box::pin(connection.begin(request));
        Self::Http2(connection, response)
    }

    /// Goes away. What is left of its connection, if it keeps it, is returned.
    pub(crate) async fn leave(self, way: Way) -> Option<Http2<Full<Bytes>>> {
        match self {
            Self::Http1(wire) => drop(wire),
            Self::Http2(connection, response) if way == Way::Http2Stream => {
                drop(response);
                return Some(connection);
            }
            Self::Http2(connection, _response) => connection.close().await,
        }
        None
    }
}
