//! Clients that go away before they have their answer: over HTTP/1.1 and HTTP/2, with every policy, at every guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use clinch::submit::{Disconnect, DuplicatePolicy, LimitPolicy, LockPolicy, Settings};
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tokio::time::Instant;

use crate::bench::{Case, Engine, HELD, Kind, Probe};
use crate::common::{Answer, LONG, Service, post_as};
use crate::wire::{Client, Http2, Way};

fn submission() -> Request<Full<Bytes>> {
    post_as("alice", "/orders", &json!({"item": 7}))
}

/// A guarded handler, and clients that come and go.
struct Scene<'a> {
    what: String,
    case: Case<'a>,
    probe: Probe,
    service: Service,
    way: Way,
    /// The connection of a client that only reset its stream.
    kept: Option<Http2<Full<Bytes>>>,
}

impl<'a> Scene<'a> {
    async fn new(engine: &'a Engine, kind: Kind, way: Way, disconnect: Option<Disconnect>) -> Self {
        let what = format!("{}, {kind:?}, {way:?}, {disconnect:?}", engine.name());
        let (case, probe) = (engine.case().await, Probe::new());
        let guarded = kind.guard(&case.web, probe.handler(), disconnect);
        let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
        Self { what, case, probe, service, way, kept: None }
    }

    /// A client comes, its handler begins, and the client goes away.
    async fn come_and_go(&mut self) {
        let client = Client::send(self.way, self.service.address, submission()).await;
        self.probe.until("the handler runs", |seen| seen.entered == 1).await;
        self.kept = client.leave(self.way).await;
        self.probe.until("the request is given up", |seen| seen.left == 1).await;
    }

    /// The same is submitted again, over the connection that is left if there is one.
    async fn again(&mut self) -> Answer {
        match &mut self.kept {
            Some(connection) => connection.send(submission()).await,
            None => self.service.send(submission()).await,
        }
    }
}

/// Every engine, guard and way to go.
async fn everywhere(disconnect: Disconnect, mut show: impl AsyncFnMut(Kind, Scene<'_>)) {
    for engine in Engine::both() {
        for kind in Kind::ALL {
            for way in Way::ALL {
                show(kind, Scene::new(&engine, kind, way, Some(disconnect)).await).await;
            }
        }
    }
}

/// The handler runs on in a task of its own, in the way of its duplicates, and then makes room.
async fn it_finishes(kind: Kind, mut scene: Scene<'_>) {
    scene.come_and_go().await;
    let refused = scene.again().await;
    assert_eq!(refused.status, kind.status(), "{}", scene.what);
    if kind == Kind::Duplicate {
        assert_eq!(refused.json()["inProgress"], true, "{}", scene.what);
    }
    scene.probe.open(1);
    let seen = scene.probe.until("the handler ends", |seen| seen.finished + seen.dropped == 1).await;
    assert_eq!((seen.entered, seen.finished), (1, 1), "{}", scene.what);
    assert!(seen.ended_in.is_some() && seen.ended_in != seen.began_in, "{}: {seen:?}", scene.what);
    scene.case.free().await;
    scene.probe.open(1);
    assert_eq!(scene.again().await.status, 200, "{}", scene.what);
    scene.case.settle().await;
}

/// The handler is dropped, and makes room.
async fn it_releases(_: Kind, mut scene: Scene<'_>) {
    scene.come_and_go().await;
    let seen = scene.probe.until("the handler is dropped", |seen| seen.dropped == 1).await;
    assert_eq!(seen.finished, 0, "{}", scene.what);
    scene.case.free().await;
    scene.probe.open(1);
    assert_eq!(scene.again().await.status, 200, "{}", scene.what);
    scene.case.settle().await;
}

/// The handler is dropped, and stays in the way of its duplicates.
async fn it_holds(kind: Kind, mut scene: Scene<'_>) {
    scene.come_and_go().await;
    let seen = scene.probe.until("the handler is dropped", |seen| seen.dropped == 1).await;
    assert_eq!(seen.finished, 0, "{}", scene.what);
    let refused = scene.again().await;
    assert_eq!(refused.status, kind.status(), "{}", scene.what);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{}: {seconds}", scene.what);
    // Also after all is done that is done in the background.
    scene.case.settle().await;
    assert_eq!((scene.case.left(), scene.probe.seen().entered), (1, 1), "{}", scene.what);
}

/// Proves: D7, B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_finish_runs_the_handler_to_its_end_in_a_task_of_its_own() {
    everywhere(Disconnect::Finish, it_finishes).await;
}

/// Proves: D7, B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_release_drops_the_handler_and_makes_room() {
    everywhere(Disconnect::Release, it_releases).await;
}

/// The handler may have done half of its work: nobody else may until the interval is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_hold_drops_the_handler_and_keeps_its_place() {
    everywhere(Disconnect::Hold, it_holds).await;
}

/// A duplicate guard finishes, a lock and a limit release, unless told otherwise.
/// Proves: D7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unless_told_otherwise_duplicates_finish_and_locks_release() {
    let engine = Engine::Memory;
    it_finishes(Kind::Duplicate, Scene::new(&engine, Kind::Duplicate, Way::Http1, None).await).await;
    it_releases(Kind::Lock, Scene::new(&engine, Kind::Lock, Way::Http1, None).await).await;
    it_releases(Kind::Limit, Scene::new(&engine, Kind::Limit, Way::Http1, None).await).await;
}

/// What is held on for a client that went away is free again when its time is over, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_kept_is_free_when_its_interval_is_over() {
    const SHORT: Duration = Duration::from_millis(1_500);
    for engine in Engine::both() {
        for kind in Kind::ALL {
            let case = engine.case_with(Settings::new().intervals(SHORT, HELD)).await;
            let (web, probe, hold) = (&case.web, Probe::new(), Disconnect::Hold);
            let handler = probe.handler();
            let guarded = match kind {
                Kind::Duplicate => handler
                    .layer(web.duplicate(DuplicatePolicy::new().interval(SHORT).disconnect(hold)).unwrap()),
                Kind::Lock => {
                    handler.layer(web.lock(LockPolicy::new("a").ttl(SHORT).disconnect(hold)).unwrap())
                }
                Kind::Limit => {
                    handler.layer(web.limit(LimitPolicy::new("a", 1).ttl(SHORT).disconnect(hold)).unwrap())
                }
            };
            let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;
            let began = Instant::now();
            let client = Client::send(Way::Http1, service.address, submission()).await;
            probe.until("the handler runs", |seen| seen.entered == 1).await;
            client.leave(Way::Http1).await;
            probe.until("the handler is dropped", |seen| seen.dropped == 1).await;
            probe.open(1);
            let mut answer = service.send(submission()).await;
            while answer.status == kind.status() && began.elapsed() < LONG {
                answer = service.send(submission()).await;
            }
            assert_eq!(answer.status, 200, "{}, {kind:?}", engine.name());
            // The engine counts in milliseconds, and by its own clock.
            let early = Duration::from_millis(20);
            assert!(began.elapsed() + early > SHORT, "{}, {kind:?}: {:?}", engine.name(), began.elapsed());
        }
    }
}

/// One that still waits has begun nothing that could be finished or held, whatever the policy says.
/// Proves: B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_while_it_waits_leaves_nothing_behind() {
    for engine in Engine::both() {
        for disconnect in [Disconnect::Finish, Disconnect::Release, Disconnect::Hold] {
            for (way, fair) in Way::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]) {
                let what = format!("{}, {disconnect:?}, {way:?}, fair {fair}", engine.name());
                let (case, probe) = (engine.case().await, Probe::new());
                let policy = LockPolicy::new("order").ttl(HELD).wait(HELD).fair(fair).disconnect(disconnect);
                let guarded = probe.handler().layer(case.web.lock(policy).unwrap());
                let service = Service::start(probe.watch(Router::new().route("/orders", guarded))).await;

                let first = service.send(submission());
                let leaving = async {
                    probe.until("the first one runs", |seen| seen.entered == 1).await;
                    let second = Client::send(way, service.address, submission()).await;
                    probe.until("the second one waits", |seen| seen.arrived == 2).await;
                    let kept = second.leave(way).await;
                    probe.until("the second one is given up", |seen| seen.left == 1).await;
                    // One for whomever comes in, so that the second one would be seen.
                    probe.open(2);
                    kept
                };
                let (first, _kept) = tokio::join!(first, leaving);
                assert_eq!(first.status, 200, "{what}");
                case.free().await;
                case.settle().await;
                assert_eq!((case.left(), probe.seen().entered), (0, 1), "{what}");
            }
        }
    }
}

/// Counts what is logged as a warning.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("clinch")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What is kept on purpose is no release that failed.
#[tokio::test]
async fn to_hold_is_no_failure() {
    for engine in Engine::both() {
        for kind in Kind::ALL {
            let warnings = Warnings::default();
            let _logging = tracing::subscriber::set_default(warnings.clone());
            let mut scene = Scene::new(&engine, kind, Way::Http1, Some(Disconnect::Hold)).await;
            scene.come_and_go().await;
            scene.probe.until("the handler is dropped", |seen| seen.dropped == 1).await;
            scene.case.settle().await;
            assert_eq!((scene.case.left(), warnings.0.load(Ordering::SeqCst)), (1, 0), "{}", scene.what);
        }
    }
}
