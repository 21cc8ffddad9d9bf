//! Who may do what.

use clinch_testkit::http;
use clinch_testkit::serve::ClinchServe;

use crate::common::{TOKEN, event, eventually, refused, row, serve, serve_with, watch_until};

/// A lock of the playground that is held for a while, and the id of its holder.
fn held(serve: &ClinchServe) -> String {
    let addr = serve.addr;
    std::thread::spawn(move || http::post(addr, "/demo/orders/7/pay?work_ms=10000").bearer(TOKEN).try_send());
    let state = watch_until(serve, "", |state| row(state, "order:7").is_some());
    row(&state, "order:7").unwrap()["id"].as_str().unwrap().to_owned()
}

fn is_held(serve: &ClinchServe) -> bool {
    let state = watch_until(serve, "", |_| true);
    row(&state, "order:7").is_some()
}

/// Proves: B13
#[test]
fn requests_under_another_name_are_refused() {
    let serve = serve(&[]);
    let port = serve.addr.port();
    for path in ["/", "/console/console.js", "/console/events", "/metrics", "/nowhere"] {
        for host in
            ["evil.example", &format!("evil.example:{port}"), "localhost", "127.0.0.1:1", "", "localhost:x"]
        {
            let answer = serve.get(path).header("Host", host).send();
            assert_eq!(answer.status, 421, "{path} for {host:?}");
            assert_eq!(answer.json()["type"], "urn:clinch:problem:unknown-host");
        }
        for host in [format!("localhost:{port}"), format!("LOCALHOST:{port}"), format!("[::1]:{port}")] {
            assert_ne!(serve.get(path).header("Host", &host).send().status, 421, "{path} for {host}");
        }
    }
    let forged = serve.post("/demo/orders").header("Host", "evil.example").json("{}").send();
    assert_eq!(forged.status, 421);
    let two =
        serve.get("/").header("Host", &format!("localhost:{port}")).header("Host", "evil.example").send();
    assert!([400, 421].contains(&two.status), "{}", two.status);
    let absolute = http::request(serve.addr, "GET", "http://evil.example/").send();
    assert_eq!(absolute.status, 421, "the address that was asked for counts too");
}

#[test]
fn a_name_that_is_configured_is_served() {
    let serve = serve(&["--host", "locks.example.com", "--host", "other.example.com:8080"]);
    for (host, status) in [
        ("locks.example.com", 200),
        ("Locks.example.com:81", 200),
        ("other.example.com:8080", 200),
        ("other.example.com", 421),
        ("sub.locks.example.com", 421),
    ] {
        assert_eq!(serve.get("/").header("Host", host).send().status, status, "{host}");
    }
}

/// Proves: B13
#[test]
fn ending_a_lease_by_force_needs_the_token() {
    let serve = serve(&[]);
    let id = held(&serve);
    let body = format!("{{\"id\": \"{id}\"}}");
    let without = serve.post("/console/release").json(&body).send();
    assert_eq!(without.status, 401);
    assert_eq!(without.header("www-authenticate"), Some("Bearer realm=\"clinch\""));
    assert_eq!(without.json()["type"], "urn:clinch:problem:token-required");
    let token = serve.token().unwrap().to_owned();
    for wrong in [TOKEN, "", &token[..31], &format!("{token}0"), &token.to_uppercase()] {
        let answer = serve.post("/console/release").bearer(wrong).json(&body).send();
        assert_eq!(answer.status, 401, "{wrong:?}");
    }
    assert_eq!(serve.post("/console/release").header("Cookie", &token).json(&body).send().status, 401);
    assert!(is_held(&serve), "nothing was released");
    assert!(!serve.home().join(".local/state/clinch/audit.log").exists(), "and nothing was asked");

    let answer = serve.post("/console/release").bearer(&token).json(&body).send();

    assert_eq!(answer.status, 200);
    let answer = answer.json();
    assert_eq!((&answer["released"], &answer["holder"]["key"]), (&true.into(), &"order:7".into()));
    watch_until(&serve, "", |state| row(state, "order:7").is_none());
}

/// Proves: B13
#[test]
fn a_page_of_another_origin_changes_nothing() {
    let serve = serve(&["--origin", "https://ops.example.com"]);
    let id = held(&serve);
    let (body, token) = (format!("{{\"id\": \"{id}\"}}"), serve.token().unwrap().to_owned());
    let port = serve.addr.port();
    let other_port = format!("http://127.0.0.1:{}", port ^ 1);
    for origin in [
        "https://evil.example",
        "null",
        "",
        "http://localhost",
        &other_port,
        "https://ops.example.com.evil.example",
    ] {
        let release =
            serve.post("/console/release").bearer(&token).header("Origin", origin).json(&body).send();
        assert_eq!(release.status, 403, "{origin:?}");
        assert_eq!(release.json()["type"], "urn:clinch:problem:foreign-origin");
        let demo = serve.post("/demo/orders").header("Origin", origin).json("{}").send();
        assert_eq!(demo.status, 403, "{origin:?}");
    }
    assert!(is_held(&serve), "nothing was released");
    for origin in ["https://ops.example.com", &format!("http://{}", serve.addr)] {
        // Refused for another reason: the origin was accepted.
        let answer = serve.post("/console/release").header("Origin", origin).json(&body).send();
        assert_eq!(answer.status, 401, "{origin}");
    }
    let own =
        serve.post("/console/release").bearer(&token).header("Origin", &format!("http://{}", serve.addr));
    assert_eq!(own.json(&body).send().status, 200);
}

/// A page of another site cannot even keep connections busy, though it could not read what comes.
#[test]
fn a_page_of_another_site_does_not_watch() {
    let serve = serve(&["--origin", "https://ops.example.com"]);
    let from = |site: &str, mode: &str| {
        serve.get("/console/events").header("Sec-Fetch-Site", site).header("Sec-Fetch-Mode", mode)
    };
    for site in ["cross-site", "same-site"] {
        assert_eq!(from(site, "no-cors").send().status, 403, "{site}");
        assert_eq!(from(site, "cors").header("Origin", "https://evil.example").send().status, 403, "{site}");
    }
    assert_eq!(from("same-origin", "cors").send().status, 200);
    assert_eq!(from("cross-site", "cors").header("Origin", "https://ops.example.com").send().status, 200);
    let link = serve.get("/").header("Sec-Fetch-Site", "cross-site").header("Sec-Fetch-Mode", "navigate");
    assert_eq!(link.send().status, 200, "a link to the console works");
}

/// Proves: B13
#[test]
fn it_does_not_listen_for_others_without_a_token() {
    let ended = refused(&[], &["--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.contains("0.0.0.0:0") && ended.stderr.contains("serve.token"), "{}", ended.stderr);
    let ended = refused(&[("CLINCH_SERVE_TOKEN", "short")], &["--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(64));
    assert!(!ended.stderr.contains("short"), "{}", ended.stderr);
}

/// Proves: B13
#[test]
fn where_others_can_connect_reading_needs_the_token_too() {
    let mut serve = serve_with(&[("CLINCH_SERVE_TOKEN", TOKEN)], &["--listen", "0.0.0.0:0"]);
    assert_eq!(serve.token(), None, "a configured token is not printed: {}", serve.greeting);
    assert!(!serve.greeting.contains(TOKEN));
    serve.addr = ([127, 0, 0, 1], serve.addr.port()).into();
    for path in ["/console/events", "/metrics"] {
        assert_eq!(serve.get(path).send().status, 401, "{path}");
        assert_eq!(serve.get(path).bearer("not-this-one-but-long").send().status, 401, "{path}");
        assert_eq!(serve.get(path).bearer(TOKEN).send().status, 200, "{path}");
    }
    assert_eq!(serve.post("/demo/orders").json("{}").send().status, 401);
    assert_eq!(serve.post("/demo/storm?target=orders").send().status, 401);
    // The page says nothing, and those who look after processes have no token.
    assert_eq!(serve.get("/").send().status, 200);
    assert_eq!(serve.get("/healthz").send().status, 200);
    assert_eq!(serve.get("/readyz").send().json(), serde_json::json!({"status": "up"}));
    assert_eq!(serve.get("/readyz").bearer(TOKEN).send().json()["engine"], "memory");
    // A storm of one's own requests has it.
    let storm = serve.post("/demo/storm?target=orders&count=5&work_ms=500").bearer(TOKEN).send().text();
    assert_eq!(storm.matches("\"status\":201").count(), 1, "{storm}");
    assert_eq!(storm.matches("\"status\":429").count(), 4, "{storm}");
    // By an address that was typed, or a name that is configured; not by one that somebody made point here.
    let by = |host: &str| serve.get("/").header("Host", host).send().status;
    assert_eq!([by("10.1.2.3:4747"), by("[fd00::1]"), by("evil.example")], [200, 200, 421]);
}

#[test]
fn every_response_is_locked_up() {
    let serve = serve(&[]);
    let answers = [
        serve.get("/").send(),
        serve.get("/console/console.js").send(),
        serve.get("/console/nothing.js").send(),
        serve.get("/nowhere").send(),
        serve.get("/metrics").send(),
        serve.get("/healthz").send(),
        serve.get("/console/events").send(),
        serve.get("/").header("Host", "evil.example").send(),
        serve.post("/console/release").json("{}").send(),
        serve.post("/demo/payments").json("{}").send(),
        http::request(serve.addr, "DELETE", "/").send(),
    ];
    for answer in answers {
        let policy = answer.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

/// What a page gets gives no right to release: neither the tokens of leases nor the console's own.
#[test]
fn no_token_leaves_the_server() {
    let serve = serve(&[]);
    let id = held(&serve);
    let mut stream = serve.get("/console/events").send();
    let hello = event(&mut stream, "hello").to_string();
    let state = event(&mut stream, "state").to_string();
    let metrics = serve.get("/metrics").send().text();
    let token = serve.token().unwrap();
    for text in [&hello, &state, &metrics] {
        assert!(!text.contains(token) && !text.contains('@'), "{text}");
    }
    assert_eq!(id.len(), 12);
    eventually("the stream says who holds it", || event(&mut stream, "state").to_string().contains(&id));
}
