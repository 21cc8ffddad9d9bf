//! What is refused, and in which words: place, field, value, and what is accepted.

use clinch::config::{Config, ConfigError, Source};

fn refused(toml: &str) -> ConfigError {
    Config::from_toml(toml).expect_err(toml)
}

/// Proves: O5
#[test]
fn an_error_names_line_field_value_and_what_is_accepted() {
    let time = r#"accepted is a time with its unit, such as "250ms", "5s" or "1m 30s""#;
    for (toml, text) in [
        // Units and types.
        ("call_timeout = 5", format!("<text>:1:16: call_timeout: integer `5` is not accepted; {time}")),
        (
            "\n\n  call_timeout = \"5\"",
            format!("<text>:3:18: call_timeout: `5` is no time (time unit needed, for example 5sec or 5ms); {time}"),
        ),
        (
            "[guards]\nrelease_within = \"5 fortnights\"",
            "<text>:2:18: guards.release_within: `5 fortnights` is no time (".to_owned(),
        ),
        (
            "[lock]\nttl = true",
            format!("<text>:2:7: lock.ttl: boolean `true` is not accepted; {time}"),
        ),
        (
            "max_in_flight = \"many\"",
            "<text>:1:17: max_in_flight: string \"many\" is not accepted; accepted is a whole number from 0".to_owned(),
        ),
        (
            "max_in_flight = -1",
            "<text>:1:17: max_in_flight: integer `-1` is not accepted; accepted is a whole number from 0".to_owned(),
        ),
        (
            "max_in_flight = 99999999999999999999999999",
            "<text>:1:17: max_in_flight: `99999999999999999999999999` is not accepted".to_owned(),
        ),
        (
            "[guards]\nshadow = \"yes\"",
            "<text>:2:10: guards.shadow: string \"yes\" is not accepted; accepted is true or false".to_owned(),
        ),
        ("prefix = 7", "<text>:1:10: prefix: integer `7` is not accepted; accepted is a text".to_owned()),
        ("guards = 7", "<text>:1:10: guards: integer `7` is not accepted; accepted is a table".to_owned()),
        (
            "[duplicate]\nexclude_params = \"timestamp\"",
            "<text>:2:18: duplicate.exclude_params: string \"timestamp\" is not accepted; accepted is a list".to_owned(),
        ),
        (
            "[duplicate]\nexclude_params = [\n  \"a\",\n  7,\n]",
            "<text>:4:3: duplicate.exclude_params: integer `7` is not accepted; accepted is a text".to_owned(),
        ),
        (
            "strategy = \"panic\"",
            "<text>:1:12: strategy: `panic` is not accepted; accepted is `fail_fast`, `proceed` or `retry_once`".to_owned(),
        ),
        (
            "strategy = 1",
            "<text>:1:12: strategy: integer `1` is not accepted; accepted is `fail_fast`, `proceed` or `retry_once`".to_owned(),
        ),
        (
            "[idempotency]\nin_flight = { wait = 5 }",
            format!("<text>:2:22: idempotency.in_flight.wait: integer `5` is not accepted; {time}"),
        ),
        (
            "[http]\ntrusted_proxies = [\"10.0.0.0/33\"]",
            "<text>:2:19: http.trusted_proxies: invalid trusted_proxies: `10.0.0.0/33`; accepted are addresses".to_owned(),
        ),
        (
            "[serve]\nlisten = \"localhost\"",
            "<text>:2:10: serve.listen: `localhost` is not accepted; accepted is an address with its port, such as".to_owned(),
        ),
        ("database = -3", "<text>:1:12: database: integer `-3` is not accepted; accepted is a whole number from 0".to_owned()),
        // Unknown fields.
        (
            "cal_timeout = \"5s\"",
            "<text>:1:1: cal_timeout: there is no such field; did you mean `call_timeout`? Accepted are `enabled`, `store`, "
                .to_owned(),
        ),
        (
            "[guards]\n\n  shaddow = true",
            "<text>:3:3: guards.shaddow: there is no such field; did you mean `shadow`? Accepted are `enabled`, `shadow`,"
                .to_owned(),
        ),
        (
            "[guards.limits]\nxyzzy = 1",
            "<text>:2:1: guards.limits.xyzzy: there is no such field. Accepted are `body_bytes` and `depth`".to_owned(),
        ),
        // Ranges, which are looked at only when everything has its type.
        (
            "prefix = \"shop\"\ncall_timeout = \"0s\"",
            "<text>:2:16: call_timeout: 0ns is not accepted; accepted is 1 ms to 1 h".to_owned(),
        ),
        (
            "connect_timeout = \"2h\"",
            "<text>:1:19: connect_timeout: 7200s is not accepted; accepted is 1 ms to 1 h".to_owned(),
        ),
        ("max_in_flight = 0", "<text>:1:17: max_in_flight: 0 is not accepted; accepted is 1 to 100000".to_owned()),
        ("max_ttl = \"1ms\"", "<text>:1:11: max_ttl: 1ms is not accepted; accepted is 10ms to 366 days".to_owned()),
        (
            "prefix = \"a b\"",
            "<text>:1:10: prefix: \"a b\" is not accepted; accepted is at most 128 bytes without".to_owned(),
        ),
        (
            "[guards]\nmin_interval = \"10s\"\nmax_interval = \"5s\"",
            "<text>:3:16: guards.max_interval: 5s is not accepted; accepted is at least the `min_interval` of 10s".to_owned(),
        ),
        (
            "[guards]\nmin_interval = \"10m\"",
            "<text>:2:16: guards.min_interval: 600s is not accepted; accepted is at most the `max_interval` of 300s".to_owned(),
        ),
        (
            "[guards]\nmin_interval = \"0s\"",
            "<text>:2:16: guards.min_interval: 0s is not accepted; accepted is a time above 0, such as 1s".to_owned(),
        ),
        (
            "[duplicate]\ninterval = \"0s\"",
            "<text>:2:12: duplicate.interval: 0s is not accepted; accepted is a time above 0, such as 5s".to_owned(),
        ),
        (
            "[duplicate]\nmin_hold = \"8s\"",
            "<text>:2:12: duplicate.min_hold: 8s is not accepted; accepted is at most the interval of 5s".to_owned(),
        ),
        (
            "[duplicate]\nstatus = 200",
            "<text>:2:10: duplicate.status: 200 is not accepted; accepted is 400 to 599".to_owned(),
        ),
        (
            "max_ttl = \"1m\"\n[lock]\nttl = \"2m\"",
            "<text>:3:7: lock.ttl: 120s is not accepted; accepted is 10ms to 60s (the manager's `max_ttl`)".to_owned(),
        ),
        (
            "[lock]\nwait = \"1s\"\nretry_interval = \"0s\"",
            "<text>:3:18: lock.retry_interval: 0ns is not accepted; with a `wait`, accepted is 1 ms to 366 days".to_owned(),
        ),
        (
            "[lock]\nshared = true\nfenced = true",
            "<text>:3:10: lock.fenced: true is not accepted; accepted is an exclusive lock, not a `shared` one".to_owned(),
        ),
        (
            "[limit]\nlabel = \"a\\nb\"",
            "<text>:2:9: limit.label: \"a\\nb\" is not accepted; accepted is at most 64 bytes".to_owned(),
        ),
        (
            "[idempotency]\nlease = \"1ms\"",
            "<text>:2:9: idempotency.lease: 1ms is not accepted; accepted is 10ms to 86400s".to_owned(),
        ),
        (
            "[idempotency]\nretention = \"0s\"",
            "<text>:2:13: idempotency.retention: 0s is not accepted; accepted is a time above 0, such as 24h".to_owned(),
        ),
        (
            "[lock]\nkey = \"order:{id}\"",
            "<text>:2:7: lock.key: is not configured here: it is said where the guard stands".to_owned(),
        ),
        ("[duplicate]\nname = \"orders\"", "<text>:2:8: duplicate.name: is not configured here".to_owned()),
        ("[limit]\nlimit = 3", "<text>:2:9: limit.limit: is not configured here".to_owned()),
        (
            "[http.statuses]\nduplicate = 200",
            "<text>:2:13: http.statuses.duplicate: 200 is not accepted; accepted is 400 to 599".to_owned(),
        ),
        (
            "[serve]\nlisten = \"0.0.0.0:4747\"",
            "<text>:2:10: serve.listen: `0.0.0.0:4747` is not accepted; accepted without a `serve.token` are only".to_owned(),
        ),
        (
            "[serve]\nallowed_origins = [\"https://a.example\", \"https://b.example/path\"]",
            "<text>:2:19: serve.allowed_origins: `https://b.example/path` is not accepted; accepted are".to_owned(),
        ),
        (
            "[serve]\nmax_request_bytes = 1",
            "<text>:2:21: serve.max_request_bytes: `1` is not accepted; accepted is 1024 to 1073741824".to_owned(),
        ),
        (
            "[serve]\nallowed_hosts = [\"a b\"]",
            "<text>:2:17: serve.allowed_hosts: `a b` is not accepted; accepted ".to_owned(),
        ),
        (
            "[serve]\nmax_connections = 0",
            "<text>:2:19: serve.max_connections: `0` is not accepted; accepted is 1 to 1048576".to_owned(),
        ),
        (
            "[serve]\ndrain_timeout = \"2h\"",
            "<text>:2:17: serve.drain_timeout: 7200s is not accepted; accepted is 0 to 1 h".to_owned(),
        ),
        (
            "[serve]\nrequest_timeout = \"1ms\"",
            "<text>:2:19: serve.request_timeout: 1ms is not accepted; accepted is 10 ms to 1 h".to_owned(),
        ),
        ("host = \"\"", "<text>:1:8: host: accepted is a name without control characters, or none".to_owned()),
        // Addresses.
        (
            "store = \"redsi://h\"",
            "<text>:1:9: store: `redsi://h` is not accepted: unknown scheme; accepted are `memory:`, ".to_owned(),
        ),
        (
            "store = \"redis://h?x=1\"",
            "<text>:1:9: store: `redis://h?…` is not accepted: the parameter `x` is not accepted".to_owned(),
        ),
        ("store = \"memory:x\"", "<text>:1:9: store: `memory:…` is not accepted: the memory engine is written".to_owned()),
        (
            "store = \"redis://h/2\"\ndatabase = 3",
            "<text>:2:12: database: 3 is not accepted: the address `redis://h/2` names database 2; accepted is the one".to_owned(),
        ),
        (
            "database = 3",
            "<text>:1:12: database: 3 is not accepted: the engine at `memory:` has no databases; accepted is none".to_owned(),
        ),
        // No TOML.
        ("a = \nb = 1", "<text>:1:5: this is no TOML: ".to_owned()),
        ("prefix = \"a\"\nprefix = \"b\"", "<text>:2:1: this is no TOML: duplicate key".to_owned()),
        ("ünknown = [", "<text>:1:1".to_owned()),
    ] {
        let error = refused(toml).to_string();
        assert!(error.starts_with(&text), "{toml}\n  said {error}\n  not  {text}");
    }
}

/// The place and the field are data too.
#[test]
fn an_error_can_be_taken_apart() {
    let error = refused("[serve]\nrequest_timeout = 3");
    assert_eq!(error.field(), Some("serve.request_timeout"));
    assert!(error.problem().contains("accepted is a time with its unit"));
    assert!(matches!(error.place(), Some(Source::File { line: 2, column: 19, .. })));
    assert_eq!(format!("{error:?}"), error.to_string());
}

/// Columns count characters, not bytes.
#[test]
fn columns_are_those_of_an_editor() {
    let error = refused("[duplicate]\nmessage = \"grüß\" # é\nkey_prefix = 'ü'  \n'shadow' = 1");
    assert!(error.to_string().starts_with("<text>:4:12: duplicate.shadow: "), "{error}");
    let error = refused("duplicate = { message = \"grüß göttin\", shadow = 1 }\r\n");
    assert!(error.to_string().starts_with("<text>:1:49: duplicate.shadow: "), "{error}");
}

/// Proves: O5
#[test]
fn an_error_of_a_variable_or_a_flag_names_it() {
    let error = Config::loader().variables([("CLINCH_CALL_TIMEOUT", "5")]).load().unwrap_err();
    assert!(error.to_string().starts_with("CLINCH_CALL_TIMEOUT: call_timeout: `5` is no time ("), "{error}");
    let error = Config::loader().variables([("CLINCH_HTTP_STATUSES_LOCK", "lots")]).load().unwrap_err();
    let text = "CLINCH_HTTP_STATUSES_LOCK: http.statuses.lock: string \"lots\" is not accepted; \
                accepted is a whole number from 0";
    assert_eq!(error.to_string(), text);
    let error = Config::loader().variables([("CLINCH_MAX_IN_FLIGHT", "0")]).load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "CLINCH_MAX_IN_FLIGHT: max_in_flight: 0 is not accepted; accepted is 1 to 100000"
    );
    // The file is right; the flag is what counts, and what is wrong.
    let loader = Config::loader().text("clinch.toml", "store = \"redis://h\"");
    let error = loader.set("store", "--store", "redsi://h").load().unwrap_err();
    assert!(
        error.to_string().starts_with("--store: store: `redsi://h` is not accepted: unknown scheme"),
        "{error}"
    );
    let error = Config::loader().set("stroe", "--store", "x").load().unwrap_err();
    assert_eq!(error.to_string(), "--store: stroe: there is no such field");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    let value = OsString::from_vec(vec![b'a', 0xff]);
    let error = Config::loader().variables([("CLINCH_PREFIX", value.clone())]).load().unwrap_err();
    assert_eq!(error.to_string(), "CLINCH_PREFIX: prefix: this is not UTF-8");
    // One that is not ours does not matter.
    assert!(Config::loader().variables([("OTHER", value)]).load().is_ok());
}

const SECRET: &str = "hunter2hunter2hunter2";

/// Whatever is wrong with a secret, or near one, the error does not tell it.
#[test]
fn errors_tell_no_secret() {
    let number = "271828182845904";
    for toml in [
        format!("fleet_key = \"{SECRET}\n"),
        format!("fleet_key = {SECRET}"),
        format!("fleet_key = \"{SECRET}\" x"),
        format!("fleet_key = [\"{SECRET}\"]"),
        format!("fleet_key = {{ a = \"{SECRET}\" }}"),
        format!("fleet_key = {number}"),
        format!("fleet_key = {number}.5"),
        "fleet_key = \"short\"".to_owned(),
        "fleet_key = \"***\"".to_owned(),
        format!("[serve]\ntoken = \"{SECRET} \""),
        format!("[serve]\ntoken = \"{SECRET}é\""),
        format!("[serve]\ntoken = {number}"),
        format!("[serve]\ntoken = \"{SECRET}\"\ntoken = \"{SECRET}\""),
        format!("store = \"redis://:{SECRET}@h?x=1\""),
        format!("store = \"redis://u:{SECRET}/0\""),
        format!("store = \"{SECRET}\""),
        format!("store = \"redis:{SECRET}@h\""),
        format!("store = \"redis://:{SECRET}@h/notanumber\""),
        format!("store = \"redis://:{SECRET}@h/2\"\ndatabase = 3"),
        format!("store = \"redis+unix:///r.sock?pass={SECRET}&db=1\"\ndatabase = 3"),
        format!("store = \"redis+unix:///r.sock?pass={SECRET}&db=x\""),
        format!("store = [\"redis://:{SECRET}@h\"]"),
        format!("store = {number}"),
        "store = \"redis://u:***@h\"".to_owned(),
    ] {
        let error = refused(&toml);
        let debug = format!("{error:?} {error}");
        assert!(
            ![SECRET, number, "short"].iter().any(|secret| debug.replace("too short", "").contains(secret)),
            "{debug}"
        );
    }
    for (name, value) in [
        ("CLINCH_FLEET_KEY", "short"),
        ("CLINCH_SERVE_TOKEN", "hunter2 hunter2 hunter2"),
        ("CLINCH_STORE", "hunter2hunter2hunter2"),
    ] {
        let error = Config::loader().variables([(name, value)]).load().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: ")) && !error.contains("hunter2"), "{error}");
    }
}
