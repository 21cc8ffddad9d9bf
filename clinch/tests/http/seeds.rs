//! What the duplicate guard was asked to do from the beginning, as its first users wrote it down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post as on_post;
use clinch::submit::DuplicatePolicy;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::common::{Service, engines, post_as};

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
            let app = Router::new().route(
                "/orders",
                on_post(handler)
                    .layer(web.duplicate(DuplicatePolicy::new().message("请勿重复提交")).unwrap()),
            );
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
                assert!((1..=5_000).contains(&millis) && seconds == millis.div_ceil(1_000), "{told}");
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
