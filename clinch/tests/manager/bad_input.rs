//! Bad input: each a clear error that names what is wrong, and nothing changed.

use std::time::Duration;

use clinch::store::ErrorKind;
use clinch::{Error, Key, LockManager, LockOptions};
use clinch_testkit::server::RedisServer;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::common::{Bench, LONG, TTL, both, list_all};

const HOUR: Duration = Duration::from_secs(3_600);

/// Proves: L4, L1
#[tokio::test]
async fn options_that_cannot_work_are_refused_before_anything_is_sent() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.proxy.reset_counts();
    let ms = Duration::from_millis;
    for (options, field) in [
        (LockOptions::new(Duration::ZERO), "ttl"),
        (LockOptions::new(ms(9)), "ttl"),
        (LockOptions::new(HOUR * 24 + ms(1)), "ttl"),
        (LockOptions::new(Duration::MAX), "ttl"),
        (LockOptions::new(TTL).wait(TTL).retry_interval(Duration::ZERO), "retry_interval"),
        (LockOptions::new(TTL).wait(Duration::MAX), "wait"),
        (LockOptions::new(TTL).renew_every(TTL), "renew_every"),
        (LockOptions::new(TTL).renew_every(Duration::ZERO), "renew_every"),
        (LockOptions::new(TTL).label("x".repeat(65)), "label"),
        (LockOptions::new(TTL).label("a\nb"), "label"),
    ] {
        match manager.try_lock("k", options).await {
            Err(error @ Error::InvalidOption { field: named, .. }) => {
                assert_eq!(named, field);
                assert!(error.to_string().contains("accepted"), "{error}");
                assert!(!error.is_retryable());
            }
            other => panic!("{field}: {other:?}"),
        }
    }
    assert_eq!(bench.proxy.commands(), 0);
    assert_eq!(bench.server.keys("*"), Vec::<String>::new());
    // Without a wait the interval plays no part, and a longer TTL can be allowed.
    let options = LockOptions::new(TTL).retry_interval(Duration::ZERO);
    assert!(manager.try_lock("k", options).await.unwrap().is_some());
    let manager = LockManager::builder().max_ttl(HOUR * 48).connect(&bench.server.url()).await.unwrap();
    assert!(manager.try_lock("long", HOUR * 47).await.unwrap().is_some());
}

#[tokio::test]
async fn bad_keys_are_refused_before_anything_is_sent() {
    for (manager, server) in both().await {
        for key in ["", "a\0b", "a{b", "a}b", "{}", "{a}{b}", &"x".repeat(513)] {
            assert!(matches!(manager.try_lock(key, TTL).await, Err(Error::InvalidKey(_))), "{key:?}");
            assert!(matches!(manager.inspect(key).await, Err(Error::InvalidKey(_))), "{key:?}");
        }
        if let Some(server) = &server {
            assert_eq!(server.keys("*"), Vec::<String>::new());
        }
        assert!(manager.try_lock(Key::new("{user:1}:cart").unwrap(), TTL).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let field = |result: Result<LockManager, Error>| match result {
        Err(Error::InvalidOption { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let builder = LockManager::builder;
    assert_eq!(field(builder().prefix("a{b").connect("memory:").await), "prefix");
    assert_eq!(field(builder().max_ttl(Duration::ZERO).connect("memory:").await), "max_ttl");
    assert_eq!(field(builder().call_timeout(Duration::ZERO).connect("memory:").await), "call_timeout");
    assert_eq!(field(builder().connect_timeout(Duration::MAX).connect("memory:").await), "connect_timeout");
    assert_eq!(field(builder().max_in_flight(0).connect("memory:").await), "max_in_flight");
    assert_eq!(field(builder().max_ttl(Duration::ZERO).memory().build()), "max_ttl");
}

#[tokio::test]
async fn addresses_that_cannot_work_are_refused_without_showing_the_password() {
    for url in [
        "",
        "order:42",
        "http://h",
        "memory:x",
        "redis:",
        "redis://",
        "redis://u:secret@:notaport",
        "redis://u:secret@h/notadatabase",
        "redis://u:secret@h:1/0#insecure",
        "postgres://u:secret@h/db",
        "secret",
    ] {
        match timeout(LONG, LockManager::connect(url)).await.unwrap() {
            Err(error @ Error::InvalidUrl { .. }) => {
                let text = format!("{error} {error:?}");
                assert!(!text.contains("secret"), "{text}");
                assert!(text.contains("accepted") || text.contains("memory:"), "{text}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}

fn kind(error: &Error) -> ErrorKind {
    let text = format!("{error} {error:?}");
    assert!(!text.contains("secret"), "no password in errors: {text}");
    match error {
        Error::Engine { cause: source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_told_apart() {
    let limited = || LockManager::builder().connect_timeout(Duration::from_millis(300));

    // Nobody listens.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = limited().connect(&format!("redis://u:secret@{gone}/0")).await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&gone.to_string()), "{error}");

    // Somebody listens and never answers: within the connect limit.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://u:secret@{}", silent.local_addr().unwrap());
    let error = timeout(LONG, limited().connect(&url)).await.unwrap().unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unavailable);
    assert!(error.to_string().contains("300ms"), "{error}");

    // Somebody listens who is not Redis.
    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", web.local_addr().unwrap());
    let answer = async {
        let (mut socket, _) = web.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        result = LockManager::connect(&url) => result.unwrap_err(),
        () = answer => unreachable!(),
    };
    assert_eq!(kind(&error), ErrorKind::Protocol, "{error}");

    // A wrong password, none, and an unknown user.
    let server = RedisServer::builder().password("right").start();
    for (user, password) in [(None, Some("secret")), (None, None), (Some("nobody"), Some("secret"))] {
        let error = LockManager::connect(&server.url_with(0, user, password)).await.unwrap_err();
        assert_eq!(kind(&error), ErrorKind::Auth, "{error}");
    }
    // A database that is not there.
    let error = LockManager::connect(&server.url_with(999, None, Some("right"))).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// A key that holds another type is reported, never overwritten.
#[tokio::test]
async fn a_key_of_another_type_is_reported_and_not_touched() {
    let bench = Bench::start().await;
    let manager = bench.manager().await;
    bench.server.command(&["RPUSH", "clinch:lock:list", "precious"]);
    let error = manager.try_lock("list", TTL).await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::WrongType);
    assert!(error.to_string().contains("`list`") && error.to_string().contains("not touched"), "{error}");
    assert!(!error.is_retryable());
    let error = manager.lock("list", LockOptions::new(TTL).wait(LONG)).await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::WrongType, "not waited for: {error}");
    let error = manager.inspect("list").await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::WrongType, "{error}");
    assert!(list_all(&manager).await.is_empty());
    assert_eq!(bench.server.command(&["LLEN", "clinch:lock:list"]).int(), Some(1));

    // It becomes one while the lock is held: the release leaves it alone.
    let guard = manager.try_lock("k", TTL).await.unwrap().unwrap();
    bench.server.command(&["DEL", "clinch:lock:k"]);
    bench.server.command(&["RPUSH", "clinch:lock:k", "precious"]);
    assert!(!guard.release().await.unwrap());
    assert_eq!(bench.server.command(&["LLEN", "clinch:lock:k"]).int(), Some(1));
}
