//! Many attempts or leases in one exchange.

use std::sync::Arc;
use std::time::Duration;

use clinch::lease::{Attempt, Claim, Fence};
use clinch::store::{Effect, ErrorKind, Renewal, Store};
use clinch::stores::StoreOptions;
use clinch::stores::redis::RedisStore;
use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use tokio::time::{Instant, timeout};

use crate::common::{
    Bench, LONG, TTL, denied, eventually, fence, granted, holder, key, lock, of, one, queued, several,
};

/// Proves: B3
#[tokio::test]
async fn many_leases_are_renewed_in_few_commands_each_with_its_own_answer() {
    let bench = Bench::start().await;
    let mut leases: Vec<Arc<Attempt>> = Vec::new();
    for i in 0..300 {
        let name = key(&format!("k{i}"));
        let claims = match i % 4 {
            0 => vec![Claim::exclusive(name, TTL)],
            1 => vec![Claim::permit(name, of(1), TTL)],
            2 => vec![Claim::shared(name, TTL)],
            _ => vec![Claim::exclusive(name.clone(), TTL), Claim::permit(name, of(1), TTL)],
        };
        leases.push(Arc::new(several(claims)));
    }
    for answer in bench.store.acquire_each(&leases).await {
        granted(answer);
    }
    bench.ask(&["DEL", "clinch:lock:k0"]);
    bench.ask(&["DEL", "clinch:sem:k7"]);
    for wrong in ["clinch:lock:k4", "clinch:sem:k129", "clinch:shared:{clinch:lock:k258}"] {
        bench.ask(&["DEL", wrong]);
        bench.ask(&["RPUSH", wrong, "precious"]);
    }
    for shortened in ["clinch:lock:k8", "clinch:lock:k7"] {
        bench.ask(&["PEXPIRE", shortened, "1000"]);
    }
    bench.forget_statistics();
    let asked = Instant::now();
    let answers = bench.store.renew_each(&leases).await;
    assert_eq!(answers.len(), 300);
    for (i, answer) in answers.into_iter().enumerate() {
        match (i, answer) {
            (0 | 7, Ok(Renewal::Lost)) => {}
            (4 | 129 | 258, Err(error)) => {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::WrongType, Effect::NotApplied));
            }
            (0 | 7 | 4 | 129 | 258, other) => panic!("{i}: {other:?}"),
            (_, Ok(Renewal::Extended { sent_at })) => assert!(sent_at >= asked),
            (_, other) => panic!("{i}: {other:?}"),
        }
    }
    assert!(bench.server.pttl("clinch:lock:k8") > 50_000);
    assert!(bench.server.pttl("clinch:lock:k7") <= 1_000, "all of a lease or nothing");
    // Three, of which each was asked for again by its source if the server did not know it yet.
    assert!((3..=6).contains(&bench.scripts_run()), "{}", bench.scripts_run());
    bench.forget_statistics();
    bench.store.renew_each(&leases).await;
    assert_eq!(bench.scripts_run(), 3);
    assert!(bench.store.renew_each(&[]).await.is_empty());

    bench.server.kill();
    let answers = bench.store.renew_each(&leases).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 300, "no answer is nobody's answer");
}

/// Proves: D13, T6
#[tokio::test]
async fn attempts_of_one_exchange_go_out_together_on_one_place() {
    let bench = Bench::start().await;
    let proxy = FaultProxy::start(bench.server.addr()).await;
    let mut options = StoreOptions::default();
    (options.max_in_flight, options.call_timeout) = (1, LONG);
    let narrow = RedisStore::connect(&proxy.url(), &options).await.unwrap();
    bench.granted(&lock()).await; // the script is known
    let attempts: Vec<_> =
        (0..20).map(|i| Arc::new(one(Claim::exclusive(key(&format!("{i}")), TTL)))).collect();
    proxy.add(Rule::new(Action::HoldReply).named("EVALSHA"));
    let asking = narrow.acquire_each(&attempts);
    let all_out = async {
        eventually("all go out before the first is answered", || proxy.commands_named("EVALSHA") == 20).await;
        proxy.wait_until_held().await;
        proxy.release_held();
    };
    let (answers, ()) = tokio::join!(asking, all_out);
    answers.into_iter().for_each(|answer| drop(granted(answer)));
    assert_eq!(proxy.commands_named("EVALSHA"), 20);
}

/// Proves: D13
#[tokio::test]
async fn attempts_of_one_exchange_have_nothing_to_do_with_each_other() {
    let bench = Bench::start().await;
    let mut options = StoreOptions::default();
    (options.max_in_flight, options.call_timeout) = (1, Duration::from_secs(2));
    let narrow = RedisStore::connect(&bench.server.url(), &options).await.unwrap();
    let taken = lock();
    bench.granted(&taken).await;
    bench.ask(&["RPUSH", "clinch:lock:wrong", "precious"]);
    let free = |name: &str| Arc::new(one(Claim::exclusive(key(name), TTL)));
    for round in ["known", "flushed"] {
        if round == "flushed" {
            bench.server.script_flush();
        }
        let permit = Claim::permit(key(round), of(1), TTL);
        let attempts = [
            free(round),
            Arc::new(lock()),
            free("wrong"),
            Arc::new(one(permit.clone().fenced(Fence::new(0)))),
            Arc::new(one(permit)),
            Arc::new(queued(one(Claim::exclusive(key(&format!("fair {round}")), TTL).fenced(Fence::new(0))))),
        ];
        let answers = timeout(LONG, narrow.acquire_each(&attempts)).await.unwrap();
        let [a, b, c, d, e, f] = <[_; 6]>::try_from(answers).unwrap();
        granted(a);
        assert_eq!(holder(&denied(b)), taken.token());
        assert_eq!(c.unwrap_err().kind(), ErrorKind::WrongType);
        assert_eq!(d.unwrap_err().kind(), ErrorKind::Unsupported);
        granted(e);
        fence(&granted(f));
        for (i, attempt) in attempts.iter().enumerate() {
            assert_eq!(attempt.sent_at().is_some(), i != 3, "{i}");
            assert!(attempt.route().is_answered(), "{i}");
            assert!(narrow.release(attempt).await.unwrap().conclusive, "{i}");
        }
    }
    assert!(narrow.acquire_each(&[]).await.is_empty());

    // No answer is an unknown outcome, for each of them.
    let attempts = [free("a"), free("b")];
    bench.server.stop();
    let answers = narrow.acquire_each(&attempts).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|e| e.effect() == Effect::Unknown)));
    assert!(attempts.iter().all(|attempt| !attempt.route().is_answered()));
    bench.server.cont();
    for attempt in &attempts {
        assert!(narrow.release(attempt).await.unwrap().conclusive);
    }
    assert!(!bench.server.exists("clinch:lock:a"));
}
