//! `POST /demo/storm`: many real requests to this very server, at the same moment, with their answers as they come.
//!
//! A browser opens six connections to a host and queues the rest, so it cannot send a hundred requests at once. This does:
//! it opens a connection for each first, and then sends them all. They arrive at the socket like everybody else's and go
//! through the same guards. What is told about them is what was answered; nothing is counted into shape.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::handlers::{MOST_WORK_MS, WORK_MS};
use crate::serve::access::Access;
use crate::serve::problem::Problem;

/// The most requests of one storm. Each takes two of the process's file descriptors.
const MOST: u32 = 100;

/// How long a storm may take: the longest wait and the longest work, and a little.
const LONGEST: Duration = Duration::from_secs(25);

/// Sends storms, one at a time.
#[derive(Debug)]
pub(super) struct Storms {
    own: SocketAddr,
    access: Arc<Access>,
    one: Arc<Semaphore>,
}

impl Storms {
    /// `listening` is where we listen.
    pub(super) fn new(listening: SocketAddr, access: Arc<Access>) -> Self {
        let ip = match listening.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Self { own: SocketAddr::new(ip, listening.port()), access, one: Arc::new(Semaphore::new(1)) }
    }
}

/// What is sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    target: Target,
    #[serde(default = "most")]
    count: u32,
    #[serde(default = "usual")]
    work_ms: u64,
    /// Submissions with the same number are the same; unless given, it is a new one.
    #[serde(default = "rand::random")]
    number: u32,
}

const fn most() -> u32 {
    MOST
}

const fn usual() -> u64 {
    WORK_MS
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    Orders,
    Pay,
    Seats,
    Export,
    Reports,
    Payments,
}

/// A line of the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
enum Line {
    /// One was answered, perhaps with what another one was answered before. `number` is that of what was done, if something
    /// was.
    Answer { n: u32, status: u16, ms: u64, replayed: bool, number: Option<u64> },
    /// One was not.
    Failed { n: u32, problem: String },
    /// That was all.
    Done { ms: u64 },
}

pub(super) async fn storm(
    State(storms): State<Arc<Storms>>,
    Query(order): Query<Order>,
) -> Result<Response, Problem> {
    if order.count == 0 || order.count > MOST {
        let detail = format!("`count` is {}; accepted is 1 to {MOST}", order.count);
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-storm", detail));
    }
    let Ok(place) = storms.one.clone().try_acquire_owned() else {
        let detail = "another storm is under way; one at a time";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "storm-under-way", detail));
    };
    // Room for every line, so that no answer waits for a slow reader.
    let (tell, told) = mpsc::channel(order.count as usize + 1);
    tokio::spawn(async move {
        tokio::select! {
            _ = timeout(LONGEST, fire(&storms, &order, &tell)) => {}
            // Nobody reads any more: what is under way ends with its connection.
            () = tell.closed() => {}
        }
        drop(place);
    });
    let lines = stream::unfold(told, async |mut told| {
        let line: Line = told.recv().await?;
        let text = serde_json::to_string(&line).map(|line| Bytes::from(line + "\n"));
        Some((text, told))
    });
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    Ok((content_type, Body::from_stream(lines)).into_response())
}

/// Opens all connections, sends all requests, tells every answer when it comes.
async fn fire(storms: &Storms, order: &Order, tell: &Sender<Line>) {
    let mut under_way = JoinSet::new();
    let connections = join_all((0..order.count).map(|_| connect(storms.own))).await;
    let began = Instant::now();
    for (n, connection) in (0..).zip(connections) {
        let (tell, request) = (tell.clone(), request(storms, order, n));
        under_way.spawn(async move {
            let sent = Instant::now();
            let line = match exchange(connection, request).await {
                Ok(Answered { status, replayed, number }) => {
                    Line::Answer { n, status: status.as_u16(), ms: millis(sent.elapsed()), replayed, number }
                }
                Err(problem) => Line::Failed { n, problem },
            };
            // An error means that nobody reads any more.
            let _ = tell.send(line).await;
        });
    }
    while under_way.join_next().await.is_some() {}
    let _ = tell.send(Line::Done { ms: millis(began.elapsed()) }).await;
}

type Connection = (SendRequest<Full<Bytes>>, http1::Connection<TokioIo<TcpStream>, Full<Bytes>>);

async fn connect(to: SocketAddr) -> Result<Connection, String> {
    let stream = TcpStream::connect(to).await.map_err(|error| error.to_string())?;
    http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
}

/// What came back.
struct Answered {
    status: StatusCode,
    replayed: bool,
    number: Option<u64>,
}

/// Sends the request and reads the whole answer. The connection lives in this very future, so it ends with it.
async fn exchange(
    connection: Result<Connection, String>,
    request: Result<Request<Full<Bytes>>, http::Error>,
) -> Result<Answered, String> {
    let (mut sender, mut connection) = connection?;
    let request = request.map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let (status, replayed) = (answer.status(), answer.headers().contains_key("idempotency-replayed"));
        let body = answer.into_body().collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Answered { status, replayed, number: done(&body) })
    };
    let answer = tokio::select! {
        answer = exchange => answer,
        ended = &mut connection => Err(match ended {
            Err(error) => error,
            Ok(()) => return Err("the connection was closed before the answer".to_owned()),
        }),
    };
    answer.map_err(|error| error.to_string())
}

/// The number of what a handler says it has done.
fn done(body: &[u8]) -> Option<u64> {
    let body: Value = serde_json::from_slice(body).ok()?;
    ["order", "ticket", "export", "report", "payment"].iter().find_map(|name| body.get(name)?.as_u64())
}

/// The `n`th request of a storm. What the guards count as the same is the same, also in one that the page sends itself; the
/// rest differs.
fn request(storms: &Storms, order: &Order, n: u32) -> Result<Request<Full<Bytes>>, http::Error> {
    let (number, work_ms) = (order.number, order.work_ms.min(MOST_WORK_MS));
    let (path, body) = match order.target {
        Target::Orders => ("orders", json!({"item": 7, "form": number, "timestamp": n})),
        Target::Pay => ("orders/42/pay", json!(null)),
        Target::Seats => ("seats/7", json!(null)),
        Target::Export => ("export", json!({"userId": n, "format": "csv"})),
        Target::Reports => ("reports", json!({"userId": n})),
        Target::Payments => ("payments", json!({"amount": 100, "form": number})),
    };
    let mut request = Request::post(format!("/demo/{path}?work_ms={work_ms}"))
        .header(header::HOST, storms.own.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "clinch-playground");
    if order.target == Target::Payments {
        request = request.header("Idempotency-Key", format!("\"form-{number}\""));
    }
    if storms.access.guards_reading() {
        request = request.header(header::AUTHORIZATION, storms.access.token().header());
    }
    request.body(Full::new(Bytes::from(body.to_string())))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
