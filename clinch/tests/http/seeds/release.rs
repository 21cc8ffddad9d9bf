//! Who may open a guard again: the one who closed it, in whichever process, and nobody else.

use std::time::Duration;

use clinch::http::Web;
use clinch::submit::{DuplicatePolicy, Guards, ReleaseWhen, Settings};
use serde_json::json;

use crate::common::{LONG, post_as};
use crate::stage::{Bench, DONE, End, Engine, holders};

/// A duplicate that is sent to another instance of the service is refused there, until the first instance is done.
///
/// Proves: D2, D5, D7
#[tokio::test]
async fn a_duplicate_sent_to_another_instance_is_refused() {
    for engine in Engine::both() {
        let policy = DuplicatePolicy::new().interval(2 * LONG);
        let (here, there) = (engine.web().await, engine.web().await);
        let one = Bench::duplicate("/orders/{id}", &here, policy.clone()).await;
        let two = Bench::duplicate("/orders/{id}", &there, policy).await;
        let order = |user, id| post_as(user, &format!("/orders/{id}?a=1"), &json!({"item": 7}));

        let first = one.submit(order("alice", 1)).await.running();
        let told = two.submit(order("alice", 1)).await.refused();
        assert_eq!((told.status.as_u16(), &told.json()["inProgress"]), (429, &json!(true)), "{engine}");
        for other in [order("bob", 1), order("alice", 2)] {
            assert_eq!(two.run(other).await.status, 200, "{engine}");
        }
        assert_eq!(first.finish(DONE).await.status, 200, "{engine}");
        // And back.
        let second = two.submit(order("alice", 1)).await.running();
        assert_eq!(one.submit(order("alice", 1)).await.refused().status, 429, "{engine}");
        assert_eq!(second.finish(DONE).await.status, 200, "{engine}");
        assert_eq!((one.ran(), two.ran()), (1, 3), "{engine}");
    }
}

/// How the first one loses the key while its handler runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loses {
    ByForce,
    ByExpiry,
}

/// Whoever has lost the key meanwhile leaves its successor's alone, however it ends and whatever its policy leaves behind.
///
/// Proves: D7, D8
#[tokio::test]
async fn a_late_end_never_touches_the_successors_key() {
    for engine in Engine::both() {
        let mut case = 0;
        for loses in [Loses::ByForce, Loses::ByExpiry] {
            for release in [ReleaseWhen::OnCompletion, ReleaseWhen::OnFailure, ReleaseWhen::Never] {
                for end in [DONE, End::Status(500), End::Panic] {
                    case += 1;
                    let shown = format!("{engine}: {loses:?} {release:?} {end:?}");
                    let order = || post_as("alice", &format!("/orders?case={case}"), &json!({"item": 7}));
                    late_end(&engine, loses, release, end, &order, &shown).await;
                }
            }
        }
    }
}

async fn late_end(
    engine: &Engine,
    loses: Loses,
    release: ReleaseWhen,
    end: End,
    order: &(impl Fn() -> http::Request<http_body_util::Full<bytes::Bytes>> + Sync),
    shown: &str,
) {
    let (here, there) = (engine.connect().await, engine.connect().await);
    let settings = Settings::new().intervals(Duration::from_millis(10), 4 * LONG);
    let web = Web::new(Guards::new(here.clone()).with_settings(settings).unwrap());
    let interval = if loses == Loses::ByForce { 2 * LONG } else { Duration::from_millis(50) };
    let policy = DuplicatePolicy::new().interval(interval).release(release);
    let first = Bench::duplicate("/orders", &web, policy).await;
    let web = Web::new(Guards::new(there.clone()));
    let next = Bench::duplicate("/orders", &web, DuplicatePolicy::new().interval(2 * LONG)).await;

    let running = first.submit_until_let_in(order).await;
    if loses == Loses::ByForce {
        assert_eq!(next.submit(order()).await.refused().status, 429, "{shown}");
        let holder = holders(&there).await.pop().unwrap();
        assert!(there.force_release(&holder).await.unwrap(), "{shown}");
    }
    let successor = next.submit_until_let_in(order).await;
    let before = holders(&there).await;
    let value = stored(engine);
    assert_eq!((before.len(), value.is_some()), (1, matches!(engine, Engine::Redis(_))), "{shown}");

    let answer = running.end_by(end).await;
    assert_eq!(answer.is_none(), end == End::Panic, "{shown}");
    // All that the first one still had to say to the engine is said after this.
    let left = here.shutdown(LONG).await;
    assert!(left.is_clean(), "{shown}: {left:?}");

    let after = holders(&there).await;
    assert_eq!((after.len(), after[0].token() == before[0].token()), (1, true), "{shown}");
    assert_eq!(stored(engine), value, "{shown}");
    let told = next.submit(order()).await.refused();
    assert_eq!((told.status.as_u16(), &told.json()["inProgress"]), (429, &json!(true)), "{shown}");
    assert_eq!(successor.finish(DONE).await.status, 200, "{shown}");
    assert!(holders(&there).await.is_empty(), "{shown}");
}

/// The one key that Redis has, and its value.
fn stored(engine: &Engine) -> Option<(String, String)> {
    let Engine::Redis(server) = engine else { return None };
    let keys = server.keys("*");
    assert_eq!(keys.len(), 1, "{keys:?}");
    Some((keys[0].clone(), server.get(&keys[0]).unwrap()))
}
