//! S6: one handler over HTTP without a guard, with Clinch's duplicate guard and with axum-idempotent, on memory and on Redis.
//! *Accepted* is another request every time; *refused* is the same one again while its window is open (axum-idempotent
//! replays its response instead).
//!
//! Requests come from `wrk`, a process of its own, or from a client in this process where there is no `wrk`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, Guards, ReleaseWhen};
use clinch_testkit::server::RedisServer;
use fred::interfaces::ClientLike as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ruts::store::SessionStore;
use ruts::store::moka::MokaStore;
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

use crate::bench::Bench;
use crate::measure::Spread;
use crate::peers::{Kind, Locks as _, Reference};
use crate::results::{Goal, Row};

const CONNECTIONS: usize = 32;
/// Sessions that requests come from, which axum-idempotent cannot do without.
const SESSIONS: usize = 1_000;
const BY_HAND: [&str; 2] = ["bound: accepted, Redis by hand", "bound: refused, Redis by hand"];
const NEEDS: &str = "axum-idempotent on Redis: its store needs HEXPIRE (Redis 7.4, Valkey 9), which this server does not have; \
     CLINCH_TEST_REDIS_SERVER=$(scripts/servers valkey9) names one that does";

/// A service, and how it is asked.
struct Case {
    name: &'static str,
    kind: Kind,
    address: SocketAddr,
    /// Whether every request is another one.
    different: bool,
    /// Whether its answers are to be anything but 2xx, but for the first ones.
    refused: bool,
    rates: Vec<f64>,
    wrong: Vec<String>,
}

/// Who sends the requests.
enum Load {
    Wrk(tempfile::TempDir),
    Here,
}

/// What the server allows, from S2 and S4.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    pub(super) pairs: f64,
    pub(super) rejections: f64,
}

async fn handler(body: Bytes) -> Bytes {
    body
}

/// The handler with what one would write by hand around it: no user, no fingerprint, no release if the client goes away.
fn by_hand(reference: Arc<Reference>, given_back: bool) -> Router {
    let guarded = async move |body: Bytes| {
        let key = format!("by-hand:{}", String::from_utf8_lossy(&body));
        let Some(taken) = reference.take(&key, Duration::ZERO).await else {
            return (StatusCode::TOO_MANY_REQUESTS, Bytes::new());
        };
        let answer = handler(body).await;
        if given_back {
            taken.give_back().await;
        }
        (StatusCode::OK, answer)
    };
    Router::new().route("/orders", post(guarded))
}

fn plain() -> Router {
    Router::new().route("/orders", post(handler))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(super) async fn run(bench: &Bench, allowed: Option<Allowed>) -> (Vec<Row>, Vec<Goal>, Vec<String>) {
    let (mut cases, mut notes) = cases(&bench.plain).await;
    let load = Load::find();
    notes.push(match &load {
        Load::Wrk(_) => format!("S6: requests by wrk, {CONNECTIONS} connections"),
        Load::Here => {
            format!("S6: no wrk here; requests by a client in this process, {CONNECTIONS} connections")
        }
    });
    let length = Duration::from_secs(if bench.quick { 1 } else { 3 });
    for round in 0..5 {
        for case in &mut cases {
            bench.progress.now("S6", case.name, round);
            let (rate, refused) = load.round(case, length).await;
            let as_expected = if case.refused { refused > 0.99 } else { refused < 0.01 };
            if !as_expected {
                case.wrong.push(format!("{:.1} % were refused", refused * 100.0));
            }
            case.rates.push(rate);
        }
    }
    let mut rows = Vec::new();
    for case in cases {
        let mut row = Row::new("S6", case.name, case.kind, "requests/s");
        row.rate = Spread::of(case.rates);
        row.wrong = case.wrong;
        rows.push(row);
    }
    let unguarded = rows[0].rate.median;
    for row in &mut rows {
        row.ratio = Some(row.rate.median / unguarded);
    }
    let goals = goals(&rows, allowed);
    (rows, goals, notes)
}

fn goals(rows: &[Row], allowed: Option<Allowed>) -> Vec<Goal> {
    let rate = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.rate.median);
    let (Some(unguarded), Some(accepted), Some(refused)) =
        (rate("no guard"), rate("Clinch accepted, memory"), rate("Clinch refused, memory"))
    else {
        return Vec::new();
    };
    let mut goals = vec![
        Goal::at_least("S6", "memory, accepted, of the unguarded handler", accepted / unguarded, 0.85),
        Goal::at_least("S6", "memory, refused, of the unguarded handler", refused / unguarded, 0.85),
    ];
    let (on_redis, off_redis) = (rate("Clinch accepted, Redis"), rate("Clinch refused, Redis"));
    if let (Some(allowed), Some(accepted), Some(refused)) = (allowed, on_redis, off_redis) {
        // A request costs what it costs without a guard, and what its pair or its rejection costs by itself.
        let both = |other: f64| 1.0 / (1.0 / unguarded + 1.0 / other);
        let most = (both(allowed.pairs), both(allowed.rejections));
        goals.push(Goal::at_least("S6", "Redis, accepted, of what S2 allows", accepted / most.0, 0.9));
        goals.push(Goal::at_least("S6", "Redis, refused, of what S4 allows", refused / most.1, 0.9));
    }
    for engine in ["memory", "Redis"] {
        for (ours, theirs) in [("accepted", "first"), ("refused", "again")] {
            let ours = rate(&format!("Clinch {ours}, {engine}"));
            let theirs = rate(&format!("axum-idempotent {theirs}, {engine}"));
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                goals.push(Goal::at_least("S6", format!("{engine}, of axum-idempotent"), ours / theirs, 1.0));
            }
        }
    }
    goals
}

async fn cases(server: &RedisServer) -> (Vec<Case>, Vec<String>) {
    let mut cases = Vec::new();
    let mut add = async |name: &'static str, kind, app: Router, different, refused| {
        let address = serve(app).await;
        cases.push(Case { name, kind, address, different, refused, rates: Vec::new(), wrong: Vec::new() });
    };
    add("no guard", Kind::Reference, plain(), true, false).await;
    let engines = [
        ("Clinch accepted, memory", "Clinch refused, memory", LockManager::memory()),
        ("Clinch accepted, Redis", "Clinch refused, Redis", connected(server).await),
    ];
    for (accepted, refused, locks) in engines {
        let web = Web::new(Guards::new(locks));
        let accepting = web.duplicate(DuplicatePolicy::new().key_prefix("accepted")).expect("valid");
        let refusing = DuplicatePolicy::new().key_prefix("refused").release(ReleaseWhen::Never);
        let refusing = web.duplicate(refusing.interval(Duration::from_secs(300))).expect("valid");
        add(accepted, Kind::Clinch, plain().layer(accepting), true, false).await;
        add(refused, Kind::Clinch, plain().layer(refusing), false, true).await;
    }
    let reference = Arc::new(Reference::connect(server.url()).await);
    add(BY_HAND[0], Kind::Bound, by_hand(reference.clone(), true), true, false).await;
    add(BY_HAND[1], Kind::Bound, by_hand(reference, false), false, true).await;
    let memory = idempotent(MokaStore::builder().build());
    add("axum-idempotent first, memory", Kind::Peer, memory.clone(), true, false).await;
    add("axum-idempotent again, memory", Kind::Peer, memory, false, false).await;
    let mut notes = Vec::new();
    match redis_store(server).await {
        Some(store) => {
            let redis = idempotent(store);
            add("axum-idempotent first, Redis", Kind::Peer, redis.clone(), true, false).await;
            add("axum-idempotent again, Redis", Kind::Peer, redis, false, false).await;
        }
        None => notes.push(NEEDS.to_owned()),
    }
    (cases, notes)
}

async fn connected(server: &RedisServer) -> LockManager {
    LockManager::connect(&server.url()).await.expect("the server runs")
}

/// With its defaults: everything of a request is hashed.
fn idempotent<S: SessionStore>(store: S) -> Router {
    let cookies = CookieOptions::build().name("session").max_age(3600).path("/");
    plain()
        .layer(IdempotentLayer::<S>::new(IdempotentOptions::default()))
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(cookies))
        .layer(CookieManagerLayer::new())
}

/// Its store on Redis, if the server can do what it needs.
async fn redis_store(server: &RedisServer) -> Option<RedisStore<fred::clients::Client>> {
    server.command(&["HSET", "probe", "field", "value"]);
    if server.command(&["HEXPIRE", "probe", "1", "FIELDS", "1", "field"]).is_error() {
        return None;
    }
    let config = fred::types::config::Config::from_url(&server.url()).ok()?;
    let client = fred::clients::Client::new(config, None, None, None);
    client.init().await.ok()?;
    RedisStore::new(Arc::new(client)).await.ok()
}

impl Load {
    fn find() -> Self {
        let has_wrk = std::process::Command::new("wrk").arg("-v").output().is_ok();
        if !has_wrk {
            return Self::Here;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        for different in [true, false] {
            std::fs::write(script(folder.path(), different), lua(different)).expect("a script");
        }
        Self::Wrk(folder)
    }

    /// Requests a second, and the share of them that were refused.
    async fn round(&self, case: &Case, length: Duration) -> (f64, f64) {
        match self {
            Self::Wrk(folder) => wrk(case, length, folder.path()).await,
            Self::Here => here(case, length).await,
        }
    }
}

fn script(folder: &Path, different: bool) -> std::path::PathBuf {
    folder.join(if different { "different.lua" } else { "same.lua" })
}

fn session(number: usize) -> String {
    // 22 characters of which the last has four bits that count.
    format!("{number:021}A")
}

fn lua(different: bool) -> String {
    let sessions = if different { SESSIONS } else { 1 };
    let sessions: Vec<_> = (0..sessions).map(|number| format!("'session={}'", session(number))).collect();
    format!(
        "local sessions = {{{}}}\nmath.randomseed(os.time())\nlocal base = math.random(1, 1000000) * 1000000\nlocal n = 0\n\
         local headers = {{}}\nheaders['content-type'] = 'application/json'\n\
         headers['authorization'] = 'Bearer 0123456789abcdef'\n\
         function request()\n  n = n + {}\n  headers['cookie'] = sessions[n % #sessions + 1]\n\
           return wrk.format('POST', '/orders?a=1&b=2', headers, \
             string.format('{{\"item\": 7, \"number\": %d, \"note\": \"a short text\"}}', {} + n))\nend\n",
        sessions.join(", "),
        u8::from(different),
        if different { "base" } else { "0" },
    )
}

async fn wrk(case: &Case, length: Duration, folder: &Path) -> (f64, f64) {
    let output = tokio::process::Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{}s", length.as_secs()), "-s"])
        .arg(script(folder, case.different))
        .arg(format!("http://{}/orders", case.address))
        .output()
        .await
        .expect("wrk runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |before: &str| -> f64 {
        let rest = text.split(before).nth(1).unwrap_or_default().trim_start();
        rest.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
    };
    let requests = text.lines().find(|line| line.contains(" requests in "));
    let requests: f64 = requests
        .and_then(|line| line.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(1.0);
    (number("Requests/sec:"), number("Non-2xx or 3xx responses:") / requests)
}

/// The same from this process.
async fn here(case: &Case, length: Duration) -> (f64, f64) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let client = Arc::new(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
    let (began, refused) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let connections = (0..CONNECTIONS).map(|_| {
        let (client, refused, address, different) =
            (client.clone(), refused.clone(), case.address, case.different);
        tokio::spawn(async move {
            let mut done = 0u64;
            while began.elapsed() < length {
                let number = if different { NUMBER.fetch_add(1, Ordering::Relaxed) } else { 0 };
                let request = request(address, number);
                let response = client.request(request).await.expect("an answer");
                refused.fetch_add(u64::from(!response.status().is_success()), Ordering::Relaxed);
                response.into_body().collect().await.expect("a body");
                done += 1;
            }
            done
        })
    });
    let mut done = 0;
    for connection in connections.collect::<Vec<_>>() {
        done += connection.await.expect("no panic");
    }
    let share = refused.load(Ordering::Relaxed) as f64 / done.max(1) as f64;
    (done as f64 / began.elapsed().as_secs_f64(), share)
}

fn request(address: SocketAddr, number: u64) -> Request<Full<Bytes>> {
    let session = session(usize::try_from(number).unwrap_or_default() % SESSIONS);
    Request::post(format!("http://{address}/orders?a=1&b=2"))
        .header("content-type", "application/json")
        .header("authorization", "Bearer 0123456789abcdef")
        .header("cookie", format!("session={session}"))
        .body(Full::from(format!(r#"{{"item": 7, "number": {number}, "note": "a short text"}}"#)))
        .expect("a valid request")
}
