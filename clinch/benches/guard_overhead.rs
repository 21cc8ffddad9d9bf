//! What a guard costs: the same handler with and without one, over HTTP, on the memory engine and on Redis, in turns.
//!
//! `cargo bench -p clinch --all-features --bench guard_overhead`. Machines are noisy: what counts are the ratios within a run.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, Guards, LockPolicy, ReleaseWhen};
use clinch_testkit::server::RedisServer;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

const CONNECTIONS: usize = 32;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(1_000);

async fn handler(body: Bytes) -> Bytes {
    body
}

/// A service, and what its requests are to be answered with.
struct Case {
    name: &'static str,
    address: SocketAddr,
    expected: StatusCode,
    /// Whether every request is another one.
    different: bool,
    rates: Vec<f64>,
}

async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

fn request(address: SocketAddr, number: u64) -> Request<Full<Bytes>> {
    Request::post(format!("http://{address}/orders?a=1&b=2"))
        .header("content-type", "application/json")
        .header("authorization", "Bearer 0123456789abcdef")
        .body(Full::from(format!(r#"{{"item": 7, "number": {number}, "note": "a short text"}}"#)))
        .unwrap()
}

/// Requests a second, from all connections together.
async fn round(case: &Case) -> f64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let client = Arc::new(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
    let (began, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let connections = (0..CONNECTIONS).map(|_| {
        let (client, done, address) = (client.clone(), done.clone(), case.address);
        let (expected, different) = (case.expected, case.different);
        tokio::spawn(async move {
            while began.elapsed() < ROUND {
                let number = if different { NUMBER.fetch_add(1, Ordering::Relaxed) } else { 0 };
                let response = client.request(request(address, number)).await.unwrap();
                assert_eq!(response.status(), expected);
                response.into_body().collect().await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for connection in connections.collect::<Vec<_>>() {
        connection.await.unwrap();
    }
    done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let engines =
        [("memory", LockManager::memory()), ("Redis", LockManager::connect(&server.url()).await.unwrap())];
    let plain = || Router::new().route("/orders", post(handler));
    let mut cases = vec![Case {
        name: "no guard",
        address: serve(plain()).await,
        expected: StatusCode::OK,
        different: true,
        rates: Vec::new(),
    }];
    for (engine, locks) in engines {
        let web = Web::new(Guards::new(locks));
        let name = |text: &str| -> &'static str { format!("{text}, {engine}").leak() };
        let accepted = web.duplicate(DuplicatePolicy::new().key_prefix("accepted")).unwrap();
        let refusing = DuplicatePolicy::new().key_prefix("refused").release(ReleaseWhen::Never);
        let refusing = web.duplicate(refusing.interval(Duration::from_secs(300))).unwrap();
        let locked = web.lock(LockPolicy::new("order:{a}").wait(Duration::from_secs(10))).unwrap();
        for (text, app, expected, different) in [
            ("layer for attributes only", plain().layer(web.layer()), StatusCode::OK, true),
            ("duplicate guard, accepted", plain().layer(accepted), StatusCode::OK, true),
            ("duplicate guard, refused", plain().layer(refusing), StatusCode::TOO_MANY_REQUESTS, false),
            ("one lock for all", plain().layer(locked), StatusCode::OK, true),
        ] {
            let case =
                Case { name: name(text), address: serve(app).await, expected, different, rates: Vec::new() };
            if expected != StatusCode::OK {
                // The first one is let in.
                let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
                assert_eq!(client.request(request(case.address, 0)).await.unwrap().status(), StatusCode::OK);
            }
            cases.push(case);
        }
    }
    for _ in 0..ROUNDS {
        for case in &mut cases {
            let rate = round(case).await;
            case.rates.push(rate);
        }
    }
    let median = |rates: &[f64]| {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        (rates[0], rates[rates.len() / 2], rates[rates.len() - 1])
    };
    let (_, reference, _) = median(&cases[0].rates);
    println!("{:<36} {:>10} {:>8}   least … most", "", "requests/s", "ratio");
    for case in &cases {
        let (least, middle, most) = median(&case.rates);
        println!("{:<36} {middle:>10.0} {:>7.2}×   {least:.0} … {most:.0}", case.name, middle / reference);
    }
}
