//! `Idempotency-Key`: while the first one runs, and how it can end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use clinch::LockManager;
use clinch::http::Web;
use clinch::submit::{Disconnect, Guards, IdempotencyPolicy, InFlight};
use clinch_testkit::server::{RedisServer, Reply};
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::common::{Answer, LONG, Service, engines};
use crate::keyed::{From, Work, eventually, from, keyed, kind, of, pairs, problem, send, serve, with};

const CROWD: usize = 100;

fn request() -> Request<Full<Bytes>> {
    keyed("k", "/orders", &json!({"item": 1}))
}

fn another() -> Request<Full<Bytes>> {
    keyed("k", "/orders", &json!({"item": 2}))
}

fn waiting() -> IdempotencyPolicy {
    IdempotencyPolicy::new().in_flight(InFlight::Wait(LONG * 2))
}

/// Of many at once one runs; the others are refused while it does, and get its result afterwards.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_runs_and_the_rest_are_refused() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, IdempotencyPolicy::new(), &work).await;
        let refused = AtomicUsize::new(0);
        let answers: Vec<Answer> = join_all((0..CROWD).map(async |_| {
            let answer = service.send(request()).await;
            if answer.status == 409 && refused.fetch_add(1, Ordering::SeqCst) + 2 == CROWD {
                // All others are refused: the first one may go on.
                work.let_go();
            }
            answer
        }))
        .await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
        assert_eq!((won.len(), work.ran()), (1, 1), "{engine}");
        assert_eq!(from(won[0]), From::Run(1), "{engine}");
        for answer in lost {
            assert_eq!((answer.status.as_u16(), from(answer)), (409, problem("idempotency-in-flight")));
            assert_eq!(answer.header("retry-after"), Some("1"), "{engine}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{engine}");
        }
        assert_eq!(from(&service.send(request()).await), From::Replay(1), "{engine}");
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Where they wait instead, all the others get the first one's result, and the engine hears nothing of their waiting.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_wait_one_runs_and_all_get_its_result() {
    for (engine, web, server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, waiting(), &work).await;
        let crowd: Vec<_> = (0..CROWD).map(|_| send(&service, request())).collect();
        eventually("all have come", async || web.guards().statistics().requests == CROWD as u64).await;
        work.let_go();
        let mut replays = 0;
        for task in crowd {
            let answer = of(task).await;
            assert_eq!(answer.status, 201, "{engine}: {answer:?}");
            replays += usize::from(from(&answer) == From::Replay(1));
        }
        assert_eq!((replays, work.ran()), (CROWD - 1, 1), "{engine}");
        if let Some(server) = &server {
            // One to take the key, one for each who asks what came of it, one to leave the result; and one more for each
            // script that the server did not know. Who waits does not ask.
            let calls = server.command_calls();
            let called = |name: &str| calls.get(name).copied().unwrap_or_default();
            let asked = called("evalsha") + called("eval");
            assert!(asked <= CROWD as u64 + 8, "{asked} calls: {calls:?}");
        }
    }
}

/// One that waits in another process is told by push.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_elsewhere_is_woken() {
    for (engine, [here, there], server) in pairs().await {
        let work = Work::gated();
        let (one, other) = (serve(&here, waiting(), &work).await, serve(&there, waiting(), &work).await);
        let first = send(&one, request());
        work.has_begun().await;
        let waits = send(&other, request());
        match &server {
            // It has subscribed to what the end of the first one is published on.
            Some(server) => {
                let channel = format!("clinch:wake:{{{}}}", server.keys("clinch:idem:*")[0]);
                eventually("it listens", async || {
                    let heard = server.command(&["PUBSUB", "NUMSUB", &channel]);
                    matches!(&heard, Reply::Array(found) if found.last() == Some(&Reply::Int(1)))
                })
                .await;
            }
            None => {
                eventually("it has come", async || there.guards().statistics().requests == 1).await;
            }
        }
        let published = |server: &RedisServer| server.command_calls().get("publish").copied().unwrap_or(0);
        let before = server.as_ref().map(published);
        work.let_go();
        assert_eq!(from(&of(waits).await), From::Replay(1), "{engine}");
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
        assert_eq!(work.ran(), 1, "{engine}");
        if let (Some(server), Some(before)) = (&server, before) {
            assert_eq!(published(server), before + 1, "{engine}");
        }
    }
}

/// Another payload is refused at once, also where repetitions wait, here and in another process.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_payload_does_not_wait() {
    for (engine, [here, there], _server) in pairs().await {
        let work = Work::gated();
        let (one, other) = (serve(&here, waiting(), &work).await, serve(&there, waiting(), &work).await);
        let first = send(&one, request());
        work.has_begun().await;
        let waits = send(&one, request());
        eventually("it has come", async || here.guards().statistics().requests == 2).await;
        for service in [&one, &other] {
            let answer = of(send(service, another())).await;
            assert_eq!((answer.status.as_u16(), from(&answer)), (422, problem("idempotency-key-reused")));
        }
        assert_eq!(work.ran(), 1, "{engine}");
        work.let_go();
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
        assert_eq!(from(&of(waits).await), From::Replay(1), "{engine}");
    }
}

/// One that waits too long is refused.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_too_long_is_refused() {
    for (engine, [here, there], _server) in pairs().await {
        let work = Work::gated();
        let wait = Duration::from_millis(200);
        let policy = || IdempotencyPolicy::new().in_flight(InFlight::Wait(wait));
        let (one, other) = (serve(&here, policy(), &work).await, serve(&there, policy(), &work).await);
        let first = send(&one, request());
        work.has_begun().await;
        for service in [&one, &other] {
            let began = Instant::now();
            let answer = of(send(service, request())).await;
            assert_eq!((answer.status.as_u16(), from(&answer)), (409, problem("idempotency-in-flight")));
            assert!(began.elapsed() >= wait, "{engine}: {:?}", began.elapsed());
        }
        work.let_go();
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
    }
}

/// If the first one fails, one of those who wait is carried out, and the rest get its result.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failure_one_of_those_who_wait_is_carried_out() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, waiting(), &work).await;
        let first = send(&service, with("x-status", "500", request()));
        work.has_begun().await;
        let waiting: Vec<_> = (0..10).map(|_| send(&service, request())).collect();
        eventually("all have come", async || web.guards().statistics().requests == 11).await;
        work.let_go();
        let failed = of(first).await;
        assert_eq!((failed.status.as_u16(), from(&failed)), (500, From::Run(1)), "{engine}");
        work.has_begun().await;
        work.let_go();
        let mut runs = 0;
        for task in waiting {
            match from(&of(task).await) {
                From::Run(2) => runs += 1,
                From::Replay(2) => {}
                other => panic!("{engine}: {other:?}"),
            }
        }
        assert_eq!((runs, work.ran()), (1, 2), "{engine}");
    }
}

/// What one process has done, another one answers.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_answer_with_each_others_results() {
    for (engine, [here, there], _server) in pairs().await {
        let work = Work::gated();
        let policy = IdempotencyPolicy::new;
        let (one, other) = (serve(&here, policy(), &work).await, serve(&there, policy(), &work).await);
        let first = send(&one, request());
        work.has_begun().await;
        assert_eq!(from(&other.send(request()).await), problem("idempotency-in-flight"), "{engine}");
        assert_eq!(from(&other.send(another()).await), problem("idempotency-key-reused"), "{engine}");
        work.let_go();
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
        assert_eq!(from(&other.send(request()).await), From::Replay(1), "{engine}");
        assert_eq!(from(&other.send(another()).await), problem("idempotency-key-reused"), "{engine}");
        work.let_go();
        assert_eq!(from(&other.send(keyed("l", "/orders", &json!({}))).await), From::Run(2), "{engine}");
        assert_eq!(from(&one.send(keyed("l", "/orders", &json!({}))).await), From::Replay(2), "{engine}");
    }
}

/// A handler that takes longer than the lease stays protected, because the lease is renewed.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_longer_than_the_lease_stays_protected() {
    let lease = Duration::from_secs(1);
    for (engine, [here, there], server) in pairs().await {
        let work = Work::gated();
        let policy = || IdempotencyPolicy::new().lease(lease);
        let (one, other) = (serve(&here, policy(), &work).await, serve(&there, policy(), &work).await);
        // By the engine's own clock, where it has one.
        let now = || match &server {
            Some(server) => engine_time(server),
            None => Instant::now().duration_since(*STARTED),
        };
        let first = send(&one, request());
        work.has_begun().await;
        let began = now();
        eventually("two leases have passed", async || {
            assert_eq!(from(&other.send(request()).await), problem("idempotency-in-flight"), "{engine}");
            now() > began + lease * 2 + lease / 10
        })
        .await;
        work.let_go();
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
        assert_eq!(from(&other.send(request()).await), From::Replay(1), "{engine}");
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// What the server's clock shows.
fn engine_time(server: &RedisServer) -> Duration {
    let time = server.command(&["TIME"]);
    let Reply::Array(parts) = &time else { panic!("{time:?}") };
    let part = |at: usize| parts[at].text().unwrap().parse().unwrap();
    Duration::from_secs(part(0)) + Duration::from_micros(part(1))
}

/// One whose lease is lost while it runs leaves nothing in the place of its successor's result.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_stores_nothing_over_its_successor() {
    let server = RedisServer::start();
    let web = async || Web::new(Guards::new(LockManager::connect(&server.url()).await.unwrap()));
    let (here, there) = (web().await, web().await);
    let (late, work) = (Work::gated(), Work::gated());
    let one = serve(&here, IdempotencyPolicy::new(), &late).await;
    let other = serve(&there, IdempotencyPolicy::new(), &work).await;
    let first = send(&one, request());
    late.has_begun().await;
    // The engine loses its memory, and another one comes: it runs, while the first one ends.
    server.flushall();
    let second = send(&other, with("x-status", "202", request()));
    work.has_begun().await;
    late.let_go();
    let first = of(first).await;
    assert_eq!((first.status.as_u16(), from(&first)), (201, From::Run(1)));
    for service in [&one, &other] {
        assert_eq!(from(&service.send(request()).await), problem("idempotency-in-flight"));
    }
    work.let_go();
    assert_eq!(from(&of(second).await), From::Run(1));
    for service in [&one, &other] {
        let again = service.send(request()).await;
        assert_eq!((again.status.as_u16(), from(&again)), (202, From::Replay(1)));
    }
    assert_eq!((late.ran(), work.ran()), (1, 1));

    // The same the other way round: the successor has stored its result when the first one ends.
    let first = send(&one, keyed("l", "/orders", &json!({})));
    late.has_begun().await;
    server.flushall();
    work.let_go();
    let done = with("x-status", "202", keyed("l", "/orders", &json!({})));
    assert_eq!(other.send(done).await.status, 202);
    late.let_go();
    assert_eq!(of(first).await.status, 201);
    for service in [&one, &other] {
        let again = service.send(keyed("l", "/orders", &json!({}))).await;
        assert_eq!((again.status.as_u16(), from(&again)), (202, From::Replay(2)));
    }
}

/// Sends a request by hand, and goes away when the handler has begun.
async fn leave(service: &Service, work: &Work) {
    let body = json!({"item": 1}).to_string();
    let text = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice\r\nidempotency-key: \"k\"\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(service.address).await.unwrap();
    client.write_all(text.as_bytes()).await.unwrap();
    work.has_begun().await;
    drop(client);
}

/// The client goes away: the handler runs on to its end, and its result is there for the one who comes back.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_finds_its_result_when_it_comes_back() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let service = serve(&web, IdempotencyPolicy::new(), &work).await;
        leave(&service, &work).await;
        assert_eq!(from(&service.send(request()).await), problem("idempotency-in-flight"), "{engine}");
        work.let_go();
        eventually("it is done", async || match from(&service.send(request()).await) {
            From::Replay(1) => true,
            other => {
                assert_eq!(other, problem("idempotency-in-flight"), "{engine}");
                false
            }
        })
        .await;
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Where the policy is to give up, the handler is dropped and the key is free; where it is to hold, the handler is dropped
/// and the key stays closed until its lease runs out.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_gives_its_key_up_or_keeps_it_as_the_policy_says() {
    for (engine, web, _server) in engines().await {
        let work = Work::gated();
        let policy = IdempotencyPolicy::new().disconnect(Disconnect::Release);
        let service = serve(&web, policy, &work).await;
        leave(&service, &work).await;
        let again = eventually_run(&service, &work).await;
        work.let_go();
        assert_eq!(from(&of(again).await), From::Run(2), "{engine}");

        let work = Work::gated();
        let policy = IdempotencyPolicy::new().disconnect(Disconnect::Hold).key_prefix("hold");
        let service = serve(&web, policy.lease(LONG), &work).await;
        leave(&service, &work).await;
        eventually("the handler is dropped", async || {
            let answer = service.send(request()).await;
            assert_eq!(answer.status, 409, "{engine}");
            let kind = kind(&answer);
            assert!(["idempotency-in-flight", "response-not-stored"].contains(&kind.as_str()), "{kind}");
            if kind == "response-not-stored" {
                // Nobody says that it was carried out, and it can be tried again when the lease is over.
                let told = answer.json();
                for text in [&told["detail"], &told["message"]] {
                    assert!(!text.as_str().unwrap().contains("was carried out"), "{told}");
                }
                assert!((1..=30).contains(&told["retryAfter"].as_u64().unwrap()), "{told}");
            }
            kind == "response-not-stored"
        })
        .await;
        assert_eq!(work.ran(), 1, "{engine}");
    }
}

/// Sends until a run has begun, and gives the one that has.
async fn eventually_run(service: &Arc<Service>, work: &Work) -> tokio::task::JoinHandle<Answer> {
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "the key is never free");
        let ran = work.ran();
        let mut sent = send(service, request());
        tokio::select! {
            answer = &mut sent => assert_eq!(from(&answer.unwrap()), problem("idempotency-in-flight")),
            () = work.has_begun() => {
                assert_eq!(work.ran(), ran + 1);
                return sent;
            }
        }
    }
}

/// A handler that panics frees its key, whatever is to happen to clients that leave.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_frees_the_key() {
    for (engine, web, _server) in engines().await {
        for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
            let label = format!("{engine}: {disconnect:?}");
            let work = Work::open();
            let policy =
                IdempotencyPolicy::new().disconnect(disconnect).key_prefix(format!("{disconnect:?}"));
            // The status is none, and the handler does not expect that.
            let service = serve(&web, policy, &work).await;
            let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
            let client = client.build_http();
            let mut panics = with("x-status", "none", request());
            *panics.uri_mut() = format!("http://{}/orders", service.address).parse().unwrap();
            client.request(panics).await.unwrap_err();
            eventually("the key is free", async || match from(&service.send(request()).await) {
                From::Run(2) => true,
                other => {
                    assert_eq!(other, problem("idempotency-in-flight"), "{label}");
                    false
                }
            })
            .await;
            assert_eq!(from(&service.send(request()).await), From::Replay(2), "{label}");
            assert_eq!(work.ran(), 2, "{label}");
        }
    }
}

/// The handler is given a look at the lease of its key.
#[tokio::test]
async fn the_handler_sees_the_lease_of_its_key() {
    for (engine, web, _server) in engines().await {
        let leases = Arc::new(AtomicUsize::new(0));
        let seen = leases.clone();
        let app = Router::new().route(
            "/lease",
            axum::routing::post(async move |request: axum::extract::Request| {
                let lease = request.extensions().get::<clinch::Lease>().unwrap();
                seen.fetch_add(usize::from(lease.is_valid()), Ordering::SeqCst);
            })
            .layer(web.idempotency(IdempotencyPolicy::new()).unwrap()),
        );
        let service = Service::start(app).await;
        service.send(keyed("k", "/lease", &json!({}))).await;
        service.send(keyed("k", "/lease", &json!({}))).await;
        assert_eq!(leases.load(Ordering::SeqCst), 1, "{engine}");
    }
}
