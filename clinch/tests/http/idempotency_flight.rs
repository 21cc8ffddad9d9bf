//! `Idempotency-Key`: those who come while the first one runs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clinch::submit::{IdempotencyPolicy, InFlight};
use clinch_testkit::server::{RedisServer, Reply};
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tokio::time::Instant;

use crate::common::{Answer, LONG, engines};
use crate::keyed::{From, Work, by_hand, eventually, from, keyed, of, pairs, problem, send, serve, with};

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
    for (engine, [here, there], shared) in pairs().await {
        let work = Work::gated();
        let (one, other) = (serve(&here, waiting(), &work).await, serve(&there, waiting(), &work).await);
        let first = send(&one, request());
        work.has_begun().await;
        let waits = send(&other, request());
        match shared.server() {
            // It has subscribed to what the end of the first one is published on.
            Some(server) => {
                eventually("it listens", async || listeners(server) == 1).await;
            }
            None => {
                eventually("it has come", async || there.guards().statistics().requests == 1).await;
            }
        }
        let published = |server: &RedisServer| server.command_calls().get("publish").copied().unwrap_or(0);
        let before = shared.server().map(published);
        work.let_go();
        assert_eq!(from(&of(waits).await), From::Replay(1), "{engine}");
        assert_eq!(from(&of(first).await), From::Run(1), "{engine}");
        assert_eq!(work.ran(), 1, "{engine}");
        if let (Some(server), Some(before)) = (shared.server(), before) {
            assert_eq!(published(server), before + 1, "{engine}");
        }
    }
}

/// How many listen to what becomes of the only key.
fn listeners(server: &RedisServer) -> i64 {
    let channel = format!("clinch:wake:{{{}}}", server.keys("clinch:idem:*")[0]);
    let heard = server.command(&["PUBSUB", "NUMSUB", &channel]);
    let Reply::Array(heard) = &heard else { panic!("{heard:?}") };
    heard[1].int().unwrap()
}

/// One that leaves while it waits is not carried out, and leaves nothing behind.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_leaves_while_it_waits_is_not_carried_out() {
    let [_, (_, [here, there], shared)] = pairs().await;
    let server = shared.server().unwrap();
    let work = Work::gated();
    let (one, other) = (serve(&here, waiting(), &work).await, serve(&there, waiting(), &work).await);
    let first = send(&one, with("x-status", "500", request()));
    work.has_begun().await;
    let client = by_hand(&other).await;
    eventually("it listens", async || listeners(server) == 1).await;
    drop(client);
    eventually("it listens no more", async || listeners(server) == 0).await;
    work.let_go();
    assert_eq!(of(first).await.status, 500);
    work.let_go();
    assert_eq!(from(&other.send(request()).await), From::Run(2));
    assert_eq!(from(&one.send(request()).await), From::Replay(2));
}

/// Another payload is refused at once, also where repetitions wait, here and in another process.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_payload_does_not_wait() {
    for (engine, [here, there], _engine) in pairs().await {
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
    for (engine, [here, there], _engine) in pairs().await {
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
    for (engine, [here, there], _engine) in pairs().await {
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
    let lease = Duration::from_secs(2);
    for (engine, [here, there], shared) in pairs().await {
        let work = Work::gated();
        let policy = || IdempotencyPolicy::new().lease(lease);
        let (one, other) = (serve(&here, policy(), &work).await, serve(&there, policy(), &work).await);
        // By the engine's own clock, where it has one.
        let now = || match shared.server() {
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

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What the server's clock shows.
fn engine_time(server: &RedisServer) -> Duration {
    let time = server.command(&["TIME"]);
    let Reply::Array(parts) = &time else { panic!("{time:?}") };
    let part = |at: usize| parts[at].text().unwrap().parse().unwrap();
    Duration::from_secs(part(0)) + Duration::from_micros(part(1))
}
