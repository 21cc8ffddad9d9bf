//! What the duplicate guard was asked to do from the beginning, as its first users wrote it down.

mod release;
mod same;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use clinch::http::Web;
use clinch::submit::{Disconnect, DuplicatePolicy, Guards, ReleaseWhen, Settings};
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::common::{LONG, Service, engines, post_as};
use crate::stage::{Bench, DONE, End};

/// A handler that runs until it is let go, and counts.
#[derive(Clone)]
struct Work {
    gate: Arc<Semaphore>,
    ran: Arc<AtomicUsize>,
}

impl Work {
    fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ran: Arc::default() }
    }

    async fn run(self) -> &'static str {
        self.ran.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        "done"
    }
}

/// Of a crowd that submits the same at once, one runs, and all others are told to wait for it.
///
/// Proves: D2, D6, D7, O7
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_submissions_at_once_one_runs_and_the_rest_are_refused() {
    for (engine, web, _server) in engines().await {
        for crowd in [100, 1_000] {
            let work = Work::new();
            let handler = {
                let work = work.clone();
                move || work.clone().run()
            };
            // Longer than a crowd takes, on a busy machine too.
            let policy = DuplicatePolicy::new().interval(2 * LONG).message("请勿重复提交");
            let guard = web.duplicate(policy).unwrap();
            let app = Router::new().route("/orders", on_post(handler).layer(guard));
            let service = Service::start(app).await;
            let body = json!({"item": 7});
            let send = |_| service.send(post_as("alice", "/orders", &body));
            let refusals = AtomicUsize::new(0);
            let answers = join_all((0..crowd).map(|n| {
                let (refusals, work) = (&refusals, &work);
                async move {
                    let answer = send(n).await;
                    if answer.status == 429 && refusals.fetch_add(1, Ordering::SeqCst) + 2 == crowd {
                        // All others are refused: the first one may go on.
                        work.gate.add_permits(1);
                    }
                    answer
                }
            }))
            .await;
            let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
            assert_eq!(
                (won.len(), lost.len(), work.ran.load(Ordering::SeqCst)),
                (1, crowd - 1, 1),
                "{engine}"
            );
            for answer in lost {
                assert_eq!(answer.status, 429);
                assert_eq!(answer.header("content-type"), Some("application/problem+json"));
                let told = answer.json();
                let (seconds, millis) =
                    (told["retryAfter"].as_u64().unwrap(), told["remainingTime"].as_u64().unwrap());
                assert_eq!(answer.header("retry-after"), Some(seconds.to_string().as_str()));
                assert!((1..=60_000).contains(&millis) && seconds == millis.div_ceil(1_000), "{told}");
                assert_eq!(
                    (&told["message"], &told["status"], &told["inProgress"]),
                    (&json!("请勿重复提交"), &json!(429), &json!(true))
                );
            }
            // Its answer is out, so the same can be submitted again.
            work.gate.add_permits(1);
            assert_eq!(send(0).await.status, 200, "{engine}");
        }
    }
}

/// Who is refused is told the rest of the interval that the policy has, and that is what the engine keeps.
///
/// Proves: D1, D5, D6
#[tokio::test]
async fn a_custom_interval_is_what_the_refused_are_told_and_the_engine_keeps() {
    for (engine, web, server) in engines().await {
        let policy = DuplicatePolicy::new().interval(4 * LONG);
        let bench = Bench::duplicate("/orders", &web, policy).await;
        let order = || post_as("alice", "/orders", &json!({"item": 7}));
        let first = bench.submit(order()).await.running();
        let refused = bench.submit(order()).await.refused();
        let told = refused.json();
        let (seconds, millis) =
            (told["retryAfter"].as_u64().unwrap(), told["remainingTime"].as_u64().unwrap());
        assert_eq!(refused.status, 429);
        assert!((60_001..=120_000).contains(&millis), "{engine}: {told}");
        assert_eq!(
            (seconds, refused.header("retry-after")),
            (millis.div_ceil(1_000), Some(&*seconds.to_string()))
        );
        if let Some(server) = &server {
            let keys = server.keys("*");
            assert_eq!(keys.len(), 1, "{keys:?}");
            let left = server.pttl(&keys[0]);
            assert!((60_001..=120_000).contains(&left), "{left}");
        }
        assert_eq!(first.finish(DONE).await.status, 200);
    }
}

/// An interval that has passed is no longer in the way, neither of one that was kept nor while the first one still runs.
///
/// Proves: D1
#[tokio::test]
async fn an_interval_ends_by_itself() {
    for (engine, web, _server) in engines().await {
        let settings = Settings::new().intervals(Duration::from_millis(10), LONG);
        let web = Web::new(Guards::new(web.guards().locks().clone()).with_settings(settings).unwrap());
        let short = DuplicatePolicy::new().interval(Duration::from_millis(100));
        let order = || post_as("alice", "/orders", &json!({"item": 7}));

        let kept = Bench::duplicate("/orders", &web, short.clone().release(ReleaseWhen::Never)).await;
        for _ in 0..2 {
            assert_eq!(kept.submit_until_let_in(order).await.finish(DONE).await.status, 200, "{engine}");
        }

        let runs = Bench::duplicate("/orders", &web, short.key_prefix("runs")).await;
        let first = runs.submit_until_let_in(order).await;
        let second = runs.submit_until_let_in(order).await;
        assert_eq!(first.finish(DONE).await.status, 200, "{engine}");
        assert_eq!(second.finish(DONE).await.status, 200, "{engine}");
    }
}

/// A form is free again when it has ended, not when its interval is over.
///
/// Proves: D7
#[tokio::test]
async fn a_form_blocks_as_long_as_it_runs_and_not_for_its_interval() {
    for (engine, web, server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        let order = || post_as("alice", "/orders", &json!({"item": 7}));
        for _ in 0..3 {
            let first = bench.submit(order()).await.running();
            for _ in 0..2 {
                let told = bench.submit(order()).await.refused().json();
                assert_eq!(told["inProgress"], true, "{engine}");
                assert!(told["remainingTime"].as_u64().unwrap() > 1_000, "{engine}: {told}");
            }
            assert_eq!(first.finish(DONE).await.status, 200, "{engine}");
            // Whoever has the answer can submit again at once: nothing is left of it.
            if let Some(server) = &server {
                assert_eq!(server.keys("*"), Vec::<String>::new());
            }
        }
        assert_eq!(bench.run(order()).await.status, 200, "{engine}");
        let counts = web.guards().statistics();
        assert_eq!((counts.requests, counts.admitted, counts.duplicates, bench.ran()), (10, 4, 6, 4));
    }
}

/// Two users with the same form do not stand in each other's way.
///
/// Proves: D2
#[tokio::test]
async fn two_users_at_once_both_pass() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        let order = |user| post_as(user, "/orders", &json!({"item": 7}));
        let alice = bench.submit(order("alice")).await.running();
        let bob = bench.submit(order("bob")).await.running();
        for user in ["alice", "bob"] {
            assert_eq!(bench.submit(order(user)).await.refused().status, 429, "{engine}");
        }
        // The end of the one says nothing of the other.
        assert_eq!(bob.finish(DONE).await.status, 200, "{engine}");
        assert_eq!(bench.submit(order("alice")).await.refused().status, 429, "{engine}");
        assert_eq!(bench.run(order("bob")).await.status, 200, "{engine}");
        assert_eq!(alice.finish(DONE).await.status, 200, "{engine}");
    }
}

/// Whoever was let in and failed can submit again at once.
///
/// Proves: D7
/// Fault: 43
#[tokio::test]
async fn a_handler_that_fails_gives_it_back() {
    for (engine, web, _server) in engines().await {
        let bench = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;
        let order = || post_as("alice", "/orders", &json!({"item": 7}));
        for (end, answer) in [
            (End::Status(400), Some(400)),
            (End::Status(500), Some(500)),
            (End::Error, Some(500)),
            (End::Panic, None),
        ] {
            let first = bench.submit(order()).await.running();
            assert_eq!(bench.submit(order()).await.refused().status, 429, "{engine} {end:?}");
            let status = first.end_by(end).await.map(|answer| answer.status.as_u16());
            assert_eq!(status, answer, "{engine}");
            assert_eq!(bench.run(order()).await.status, 200, "{engine} {end:?}");
        }
        // A client that goes away, where the handler is not to go on without it.
        let policy = DuplicatePolicy::new().interval(2 * LONG).disconnect(Disconnect::Release);
        let bench = Bench::duplicate("/orders", &web, policy).await;
        bench.submit(order()).await.running().leave().await;
        assert_eq!(bench.submit_until_let_in(order).await.finish(DONE).await.status, 200, "{engine}");
    }
}
