//! `Idempotency-Key`: an engine that fails, before and after the handler.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clinch::http::Web;
use clinch::stores::memory::MemoryStore;
use clinch::submit::{Guards, IdempotencyPolicy, InFlight, Settings};
use clinch::{LockManager, Strategy};
use clinch_testkit::proxy::{Action, Command, FaultProxy, Rule};
use clinch_testkit::server::{RedisServer, Reply};
use http::Request;
use http_body_util::Full;
use serde_json::json;

use crate::common::{LONG, Service, engines};
use crate::keyed::{From, Work, eventually, from, keyed, of, on_memory, problem, send, serve};

fn request() -> Request<Full<Bytes>> {
    keyed("k", "/orders", &json!({"item": 1}))
}

/// A lease that does not run out while a test looks.
fn policy() -> IdempotencyPolicy {
    IdempotencyPolicy::new().lease(LONG * 2)
}

/// Two services on one server: the first one behind a proxy, the second one not.
struct Bench {
    server: RedisServer,
    proxy: FaultProxy,
    web: Web,
    service: Arc<Service>,
    other: Arc<Service>,
    work: Work,
}

impl Bench {
    async fn start(server: RedisServer) -> Self {
        let proxy = FaultProxy::start(server.addr()).await;
        let work = Work::gated();
        // So that nobody has to wait long for an answer that does not come, and all have the time for one that does.
        let limit = Duration::from_secs(2);
        let settings = Settings::new().release_within(limit);
        let web = async |url: &str| {
            let guards = Guards::new(LockManager::builder().call_timeout(limit).connect(url).await.unwrap());
            Web::new(guards.with_settings(settings.clone()).unwrap())
        };
        let (behind, direct) = (web(&proxy.url()).await, web(&server.url()).await);
        let service = serve(&behind, policy(), &work).await;
        let other = serve(&direct, policy(), &work).await;
        Self { server, proxy, web: behind, service, other, work }
    }

    /// What the key holds.
    fn value(&self) -> Option<String> {
        let keys = self.server.keys("clinch:idem:*");
        assert!(keys.len() <= 1, "{keys:?}");
        keys.first().and_then(|key| {
            let value = self.server.command(&["GETRANGE", key, "0", "4"]);
            value.text()
        })
    }

    fn is_stored(&self) -> bool {
        self.value().as_deref() == Some("done:")
    }

    /// The result is stored, and everybody is answered with it.
    async fn is_replayed(&self) {
        for service in [&self.service, &self.other] {
            assert_eq!(from(&service.send(request()).await), From::Replay(1));
        }
        assert_eq!(self.work.ran(), 1);
    }
}

/// The step that stores a result: the only one with so many arguments.
fn stores(command: &Command) -> bool {
    matches!(command.name.as_str(), "EVALSHA" | "EVAL") && command.args.len() == 8
}

/// Without an engine a request is refused, or carried out unprotected, as the strategy says.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_engine_the_strategy_decides() {
    let server = RedisServer::start();
    let web = Web::new(Guards::new(LockManager::connect(&server.url()).await.unwrap()));
    server.kill();
    for strategy in [Strategy::FailFast, Strategy::RetryOnce] {
        let work = Work::open();
        let service = serve(&web, policy().strategy(strategy), &work).await;
        let answer = service.send(request()).await;
        assert_eq!((answer.status.as_u16(), from(&answer)), (503, problem("unavailable")), "{strategy:?}");
        assert_eq!(work.ran(), 0, "{strategy:?}");
    }
    assert_eq!(web.guards().statistics().engine_failures, 2);
    let work = Work::open();
    let service = serve(&web, policy().strategy(Strategy::Proceed), &work).await;
    for run in [1, 2] {
        assert_eq!(from(&service.send(request()).await), From::Run(run));
    }
    let counted = web.guards().statistics();
    assert_eq!((counted.unprotected, counted.admitted, counted.replayed), (2, 0, 0), "{counted:?}");
    // What ran unprotected was not stored; from then on it is as if it had not been.
    server.restart();
    eventually("the engine is asked again", async || match from(&service.send(request()).await) {
        From::Replay(_) => true,
        From::Run(_) => false,
        other => panic!("{other:?}"),
    })
    .await;
}

/// The connection is lost when the handler is done: the client has its answer, nobody carries the request out again, and as
/// soon as the connection is back the result is stored.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_could_not_be_stored_at_once_is_stored_later() {
    let bench = Bench::start(RedisServer::start()).await;
    let first = send(&bench.service, request());
    bench.work.has_begun().await;
    bench.proxy.refuse(true).await;
    bench.proxy.cut_all().await;
    bench.work.let_go();
    assert_eq!(from(&of(first).await), From::Run(1));
    // The key is kept: another process sees that it is taken.
    assert_eq!(from(&bench.other.send(request()).await), problem("idempotency-in-flight"));
    assert!(!bench.is_stored());
    assert_eq!(bench.web.guards().statistics().late_releases, 1);
    bench.proxy.refuse(false).await;
    eventually("the result is stored", async || bench.is_stored()).await;
    bench.is_replayed().await;
}

/// The step that stores is lost on its way, or its answer is: it is sent again, and does no harm twice.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_lost_is_sent_again() {
    for action in [
        Action::CutBeforeRequest,
        Action::DropRequestThenCut,
        Action::CutAfterRequest,
        Action::CutMidReply(1),
        Action::Duplicate,
    ] {
        let bench = Bench::start(RedisServer::start()).await;
        let first = send(&bench.service, request());
        bench.work.has_begun().await;
        bench.proxy.add(Rule::new(action).matching(stores));
        bench.work.let_go();
        assert_eq!(from(&of(first).await), From::Run(1));
        eventually("the result is stored", async || bench.is_stored()).await;
        assert_eq!(bench.proxy.rules_left(), 0);
        bench.is_replayed().await;
    }
}

/// The engine dies when the handler is done, and comes back with what it knew: the request is not carried out again. As long
/// as the one that carried it out cannot reach it, others are told that it still runs.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_before_the_result_is_stored_keeps_the_key() {
    let server = RedisServer::builder().appendonly(true).arg("appendfsync", "always").start();
    let bench = Bench::start(server).await;
    let first = send(&bench.service, request());
    bench.work.has_begun().await;
    bench.server.kill();
    bench.proxy.refuse(true).await;
    bench.work.let_go();
    assert_eq!(from(&of(first).await), From::Run(1));
    bench.server.restart();
    eventually("the other one reaches it", async || match from(&bench.other.send(request()).await) {
        From::Problem(kind) if kind == "unavailable" => false,
        other => {
            assert_eq!(other, problem("idempotency-in-flight"));
            true
        }
    })
    .await;
    bench.proxy.refuse(false).await;
    eventually("the result is stored", async || bench.is_stored()).await;
    bench.is_replayed().await;
}

/// The engine does not answer when the result is to be stored: the client does not wait for that for ever.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_does_not_answer_holds_up_nobody() {
    let bench = Bench::start(RedisServer::start()).await;
    let first = send(&bench.service, request());
    bench.work.has_begun().await;
    bench.proxy.stall();
    bench.work.let_go();
    assert_eq!(from(&of(first).await), From::Run(1));
    assert_eq!(from(&bench.other.send(request()).await), problem("idempotency-in-flight"));
    assert_eq!(bench.web.guards().statistics().late_releases, 1);
    bench.proxy.resume();
    eventually("the result is stored", async || bench.is_stored()).await;
    bench.is_replayed().await;
}

/// The engine has no memory left for the result: the client has its answer, the key is kept, and as soon as there is memory
/// again the result is stored.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_does_not_fit_keeps_the_key() {
    let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start();
    let bench = Bench::start(server).await;
    let first = send(&bench.service, request());
    bench.work.has_begun().await;
    bench.server.config_set("maxmemory", "1");
    bench.work.let_go();
    assert_eq!(from(&of(first).await), From::Run(1));
    assert_eq!(bench.web.guards().statistics().late_releases, 1);
    assert!(bench.value().is_some() && !bench.is_stored());
    // Nobody can take anything from an engine without memory, so nobody is told more than that.
    let again = bench.other.send(request()).await;
    assert_eq!((again.status.as_u16(), from(&again)), (503, problem("unavailable")));
    assert_eq!(bench.work.ran(), 1);
    bench.server.config_set("maxmemory", "0");
    eventually("the result is stored", async || bench.is_stored()).await;
    bench.is_replayed().await;
}

/// The same in memory, where the bytes of all records have a bound of their own.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_does_not_fit_into_memory_keeps_the_key() {
    let store = Arc::new(MemoryStore::new().with_max_record_bytes(16));
    let (here, there) = (on_memory(&store), on_memory(&store));
    let work = Work::open();
    let (one, other) = (serve(&here, policy(), &work).await, serve(&there, policy(), &work).await);
    assert_eq!(from(&one.send(request()).await), From::Run(1));
    assert_eq!(here.guards().statistics().late_releases, 1);
    let again = other.send(request()).await;
    assert_eq!((again.status.as_u16(), from(&again)), (409, problem("idempotency-in-flight")));
    assert_eq!((work.ran(), store.len(), store.record_bytes()), (1, 1, 0));
}

/// What cannot be read, because another version wrote it or it was damaged, is not carried out again.
///
/// Proves: B9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_is_not_carried_out_again() {
    let bench = Bench::start(RedisServer::start()).await;
    bench.work.let_go();
    assert_eq!(from(&bench.service.send(request()).await), From::Run(1));
    let key = &bench.server.keys("clinch:idem:*")[0];
    let Reply::Bulk(Some(value)) = bench.server.command(&["GET", key]) else { panic!("no record") };
    let begins = value.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(value[begins], 1, "the form of the record");
    // One byte is enough: `SETRANGE` leaves the rest, and the expiry, as it is.
    for (at, byte, what) in
        [(0, "\u{2}", "another form"), (1, "\u{7}", "another kind"), (2, "\u{7f}", "damaged")]
    {
        bench.server.command(&["SETRANGE", key, &(begins + at).to_string(), byte]);
        for service in [&bench.service, &bench.other] {
            let answer = service.send(request()).await;
            assert_eq!(
                (answer.status.as_u16(), from(&answer)),
                (409, problem("response-not-stored")),
                "{what}"
            );
        }
        let before = String::from_utf8(vec![value[begins + at]]).unwrap();
        bench.server.command(&["SETRANGE", key, &(begins + at).to_string(), &before]);
    }
    bench.is_replayed().await;
}

/// A key that was granted too late to be used is nobody's: the engine was too slow, and no first request is running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_too_slow_is_not_a_request_in_flight() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let builder = LockManager::builder().call_timeout(LONG);
    let web = Web::new(Guards::new(builder.connect(&proxy.url()).await.unwrap()));
    let work = Work::open();
    let service = serve(&web, policy().lease(Duration::from_secs(2)), &work).await;
    // The server knows the script by then.
    assert_eq!(from(&service.send(keyed("l", "/orders", &json!({}))).await), From::Run(1));
    server.flushall();
    proxy.add(Rule::new(Action::HoldReply).named("SET"));
    let late = send(&service, request());
    proxy.wait_until_held().await;
    eventually("the lease is over", async || server.keys("clinch:idem:*").is_empty()).await;
    proxy.release_held();
    let answer = of(late).await;
    assert_eq!((answer.status.as_u16(), from(&answer)), (503, problem("unavailable")));
    assert_eq!(work.ran(), 1);
}

/// A guard that no engine can serve is refused when it is made.
#[tokio::test]
async fn a_guard_that_cannot_work_is_refused_when_it_is_made() {
    for (engine, web, _server) in engines().await {
        let short = IdempotencyPolicy::new().lease(Duration::from_millis(1));
        let never = IdempotencyPolicy::new().retention(Duration::ZERO);
        let long = IdempotencyPolicy::new().in_flight(InFlight::Wait(Duration::MAX));
        let teapot = IdempotencyPolicy::new().status(200);
        for (policy, field) in
            [(short, "lease"), (never, "retention"), (long, "in_flight"), (teapot, "status")]
        {
            let error = web.idempotency(policy).unwrap_err().to_string();
            assert!(error.contains(&format!("invalid {field}")), "{engine}: {error}");
        }
    }
}
