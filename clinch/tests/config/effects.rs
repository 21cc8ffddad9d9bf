//! What a configuration does.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use clinch::config::Config;
use clinch::submit::{DuplicatePolicy, Guards, Identity, LockPolicy, ReleaseWhen, Submission};
use clinch::{Error, LockManager};
use clinch_testkit::server::RedisServer;
use http::Request;
use tower::ServiceExt as _;

/// An address at which nobody listens.
const DEAD: &str = "redis://127.0.0.1:1";

fn on(toml: &str) -> Guards {
    let config = Config::from_toml(toml).unwrap();
    config.guards(LockManager::memory()).unwrap()
}

/// What is in the file is what the manager works with.
///
/// Proves: O5
#[tokio::test]
async fn a_manager_is_as_the_file_says() {
    let server = RedisServer::builder().password("hunter2").start();
    let mut config = Config::from_toml(
        "prefix = \"shop\"\ndatabase = 3\nhost = \"web-1\"\ncall_timeout = \"2s\"\nmax_ttl = \"1m\"",
    );
    let error = config.unwrap_err().to_string();
    assert!(error.contains("has no databases"), "{error}");
    config = Config::loader()
        .text(
            "clinch.toml",
            "prefix = \"shop\"\ndatabase = 3\nhost = \"web-1\"\ncall_timeout = \"2s\"\nmax_ttl = \"1m\"",
        )
        .variables([("CLINCH_STORE", server.url_with(3, None, Some("hunter2")).trim_end_matches("/3"))])
        .load();
    let locks = config.unwrap().connect().await.unwrap();
    let guard = locks.try_lock("order:42", Duration::from_secs(30)).await.unwrap().unwrap();
    assert!(guard.token().as_str().contains("@web-1:"));
    server.command(&["SELECT", "3"]);
    assert_eq!(server.get("shop:lock:order:42").as_deref(), Some(guard.token().as_str()));
    let error = locks.try_lock("b", Duration::from_secs(61)).await.unwrap_err().to_string();
    assert!(error.contains("`max_ttl`"), "{error}");

    server.stop();
    let started = std::time::Instant::now();
    assert!(locks.ping().await.is_err());
    // Unless it is set, it is one second.
    assert!(started.elapsed() >= Duration::from_millis(1_900), "the time limit of a call is 2 s");
    server.cont();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_an_error_of_the_engine() {
    let config = Config::loader().variables([("CLINCH_STORE", DEAD)]).load().unwrap();
    assert!(matches!(config.connect().await, Err(Error::Engine { operation: "connect", .. })));
    // One that was changed after it was read is checked again.
    let mut config = config;
    config.max_in_flight = 0;
    let error = config.connect().await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert_eq!(error.to_string(), "default: max_in_flight: 0 is not accepted; accepted is 1 to 100000");
}

#[clinch::lock(key = "order:{id}", manager = guards)]
async fn pay(guards: &Guards, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[clinch::prevent_duplicate(user = "{user}", manager = guards)]
async fn order(guards: &Guards, user: u32) -> Result<u32, Error> {
    Ok(user)
}

/// Turned off, everybody is let through, and nothing is asked of any engine: there is none.
///
/// Proves: D12
#[tokio::test]
async fn turned_off_it_needs_no_engine() {
    let config =
        Config::loader().variables([("CLINCH_STORE", DEAD), ("CLINCH_ENABLED", "false")]).load().unwrap();
    let locks = config.connect().await.unwrap();
    let guards = config.guards(locks.clone()).unwrap();
    let _held = locks.lock("order:42", Duration::from_secs(30)).await.unwrap();
    assert_eq!(pay(&guards, 42).await.unwrap(), 42);
    let submission = Submission::of("f").user(Identity::user("u"));
    let policy = guards.duplicate_policy();
    let first = guards.duplicate(&policy, &submission).await.unwrap();
    let second = guards.duplicate(&policy, &submission).await.unwrap();
    assert!(first.lease().is_none() && second.lease().is_none());

    // And so they are by their own section, while locks that are taken by hand still exclude.
    let guards = on("[guards]\nenabled = false");
    let _held = guards.locks().lock("order:42", Duration::from_secs(30)).await.unwrap();
    assert_eq!(pay(&guards, 42).await.unwrap(), 42);
    assert!(guards.locks().try_lock("order:42", Duration::from_secs(30)).await.unwrap().is_none());
    // And by the section of their kind.
    let guards = on("[lock]\nenabled = false");
    let _held = guards.locks().lock("order:42", Duration::from_secs(30)).await.unwrap();
    assert_eq!(pay(&guards, 42).await.unwrap(), 42);
}

/// Rounded up: a little of it has gone by, by the clock that does not stop while a machine sleeps.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_millis().div_ceil(1_000).try_into().unwrap())
}

#[clinch::lock(key = "order:{id}", ttl = "20s", manager = guards, lease = lease)]
async fn remaining(guards: &Guards, id: u32) -> Result<Duration, Error> {
    let _ = id;
    Ok(whole_seconds(lease.unwrap().remaining()))
}

#[clinch::lock(key = "order:{id}", manager = guards, lease = lease)]
async fn configured(guards: &Guards, id: u32) -> Result<(Duration, bool), Error> {
    let _ = id;
    let lease = lease.unwrap();
    Ok((whole_seconds(lease.remaining()), lease.fence().is_some()))
}

#[clinch::lock(key = "order:{id}", fenced = false, manager = guards, lease = lease)]
async fn unfenced(guards: &Guards, id: u32) -> Result<bool, Error> {
    let _ = id;
    Ok(lease.unwrap().fence().is_some())
}

/// What an attribute does not state is as it is configured; what it states is as it says.
///
/// Proves: O5
#[tokio::test(start_paused = true)]
async fn attributes_begin_with_what_is_configured() {
    let guards = on("[lock]\nttl = \"1m\"\nfenced = true");
    assert_eq!(remaining(&guards, 1).await.unwrap(), Duration::from_secs(20));
    assert_eq!(configured(&guards, 1).await.unwrap(), (Duration::from_secs(60), true));
    assert!(!unfenced(&guards, 1).await.unwrap());
    // Other guards in the same process, and none at all that are configured.
    let other = on("[lock]\nttl = \"2m\"");
    assert_eq!(configured(&other, 1).await.unwrap(), (Duration::from_secs(120), false));
    let plain = Guards::new(LockManager::memory());
    assert_eq!(configured(&plain, 1).await.unwrap(), (Duration::from_secs(10), false));
    assert_eq!(configured(&guards, 1).await.unwrap(), (Duration::from_secs(60), true));
}

#[clinch::limit(key = "export", limit = 2, manager = guards, lease = lease)]
async fn export(guards: &Guards) -> Result<Duration, Error> {
    Ok(whole_seconds(lease.unwrap().remaining()))
}

#[clinch::prevent_duplicate(user = "{user}", exclude_params = ["nonce"], manager = guards)]
async fn by_nonce(guards: &Guards, user: u32, nonce: u32, item: u32) -> Result<u32, Error> {
    Ok(user + nonce + item)
}

#[clinch::prevent_duplicate(user = "{user}", exclude_params = [], manager = guards)]
async fn by_everything(guards: &Guards, user: u32, nonce: u32, item: u32) -> Result<u32, Error> {
    Ok(user + nonce + item)
}

#[clinch::prevent_duplicate(user = "{user}", min_hold = "8s", manager = guards)]
async fn held(guards: &Guards, user: u32) -> Result<u32, Error> {
    Ok(user)
}

#[tokio::test(start_paused = true)]
async fn attributes_of_all_kinds_begin_with_what_is_configured() {
    let guards = on(
        "[limit]\nttl = \"5m\"\n[duplicate]\ninterval = \"20s\"\nrelease = \"never\"\nmessage = \"langsam\"\n\
         exclude_params = [\"item\", \"guards\"]",
    );
    assert_eq!(export(&guards).await.unwrap(), Duration::from_secs(300));

    order(&guards, 1).await.unwrap();
    let error = order(&guards, 1).await.unwrap_err();
    let Error::DuplicateSubmit { message, remaining, .. } = error else { panic!("{error}") };
    assert_eq!((message.as_str(), remaining), ("langsam", Duration::from_secs(20)));

    // A list that is stated takes the place of the configured one, also an empty one.
    by_nonce(&guards, 1, 1, 1).await.unwrap();
    assert!(by_nonce(&guards, 1, 2, 1).await.is_err());
    by_nonce(&guards, 1, 2, 2).await.unwrap();
    by_everything(&guards, 1, 1, 1).await.unwrap();
    by_everything(&guards, 1, 1, 2).await.unwrap();
    assert!(by_everything(&guards, 1, 1, 2).await.is_err());

    // A hold time may be longer than the library's own interval if the configured one is; if not, that is told.
    let guards = on("[duplicate]\ninterval = \"20s\"");
    held(&guards, 1).await.unwrap();
    assert!(matches!(held(&guards, 1).await, Err(Error::DuplicateSubmit { .. })));
    let error = held(&Guards::new(LockManager::memory()), 1).await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { field: "min_hold", .. }), "{error}");
}

/// Without a word about it, an attribute that is turned off needs no guards, as before.
#[tokio::test]
async fn an_attribute_that_is_off_needs_no_guards() {
    #[clinch::lock(key = "k", enabled = false)]
    async fn off() -> Result<(), Error> {
        Ok(())
    }
    #[clinch::lock(key = "k")]
    async fn unguarded() -> Result<(), Error> {
        Ok(())
    }
    off().await.unwrap();
    assert!(matches!(unguarded().await, Err(Error::Missing { .. })));
}

#[test]
fn layers_can_begin_with_what_is_configured() {
    let guards = on(
        "[duplicate]\ninterval = \"20s\"\nrelease = \"on_failure\"\n[lock]\nttl = \"1m\"\n[limit]\nttl = \"2m\"\n\
         [idempotency]\nrequired = true",
    );
    let policy = guards.duplicate_policy().key_prefix("order");
    let expected = DuplicatePolicy::new().interval(Duration::from_secs(20)).release(ReleaseWhen::OnFailure);
    assert_eq!(policy, expected.key_prefix("order"));
    assert_eq!(guards.lock_policy("order:{id}"), LockPolicy::new("order:{id}").ttl(Duration::from_secs(60)));
    let limit = clinch::submit::LimitPolicy::new("export", 8).ttl(Duration::from_secs(120));
    assert_eq!(guards.limit_policy("export", 8), limit);
    assert_eq!(guards.idempotency_policy(), clinch::submit::IdempotencyPolicy::new().required(true));
}

/// Users told apart, and refusals, as `[http]` has them.
///
/// Proves: O5, B8
#[tokio::test]
async fn a_web_service_is_as_the_file_says() {
    let toml = "[duplicate]\nrelease = \"never\"\n[http]\nsession_cookies = [\"shop\"]\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
                forwarded_header = \"forwarded\"\n[http.statuses]\nduplicate = 418";
    let config = Config::from_toml(toml).unwrap();
    let web = config.web(config.guards(LockManager::memory()).unwrap()).unwrap();
    let layer = web.duplicate(web.guards().duplicate_policy()).unwrap();
    let app: Router = Router::new().route("/orders", post(|| async { "done" }).layer(layer));
    let submit = async |header: &str, value: &str| {
        let mut request = Request::post("/orders").header(header, value).body(Body::empty()).unwrap();
        let peer: std::net::SocketAddr = "10.0.0.1:80".parse().unwrap();
        request.extensions_mut().insert(clinch::http::PeerAddress(peer));
        app.clone().oneshot(request).await.unwrap().status()
    };
    for (header, one, other) in
        [("cookie", "shop=1", "shop=2"), ("forwarded", "for=192.0.2.1", "for=192.0.2.2")]
    {
        assert_eq!(submit(header, one).await, 200, "{header}");
        assert_eq!(submit(header, one).await, 418, "{header}");
        assert_eq!(submit(header, other).await, 200, "{header}");
    }
    // Other cookies and headers tell nobody apart: all of these come from the proxy.
    assert_eq!(submit("cookie", "session=1").await, 200);
    assert_eq!(submit("cookie", "session=2").await, 418);
    assert_eq!(submit("x-forwarded-for", "192.0.2.3").await, 418);
}

/// Two processes with the same fleet key know each other's users; others do not.
#[tokio::test]
async fn the_fleet_key_enters_the_hashes() {
    let locks = LockManager::memory();
    let guards = |key: &str| {
        let toml = format!("fleet_key = \"{key}\"\n[duplicate]\nrelease = \"never\"");
        Config::from_toml(&toml).unwrap().guards(locks.clone()).unwrap()
    };
    let submission = || Submission::of("f").user(Identity::user("u"));
    let submit =
        async |guards: Guards| guards.duplicate(&guards.duplicate_policy(), &submission()).await.map(|_| ());
    submit(guards("a secret of the fleet")).await.unwrap();
    assert!(matches!(submit(guards("a secret of the fleet")).await, Err(Error::DuplicateSubmit { .. })));
    submit(guards("a secret of another fleet")).await.unwrap();
}

/// A file as an engine: its address is shown whole, since there is no password in it, and its health has a version.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_engine_in_a_file_is_configured_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a@b.db").display());
    let config = Config::loader().variables([("CLINCH_STORE", url.as_str())]).load().unwrap();
    assert_eq!(config.store.to_string(), url);
    assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
    let locks = config.connect().await.unwrap();
    let health = locks.health(Duration::from_secs(20)).await;
    assert!(health.is_ready() && health.engine == "sqlite" && health.version.is_some(), "{health:?}");
    let diagnosis = locks.diagnose(Duration::from_secs(20)).await;
    assert_eq!(diagnosis.findings, [], "{diagnosis:#?}");

    let error = Config::from_toml("\nstore = \"sqlite://host/x.db\"").unwrap_err().to_string();
    let text =
        "<text>:2:9: store: `sqlite://host/x.db` is not accepted: a file has no host: write three slashes";
    assert!(error.starts_with(text), "{error}");
    let error = Config::from_toml("store = \"sqlite:x.db\"\ndatabase = 1").unwrap_err().to_string();
    assert!(error.starts_with(
        "<text>:2:12: database: 1 is not accepted: the engine at `sqlite:x.db` has no databases"
    ));
}
