//! Where values come from.

use std::time::Duration;

use clinch::Strategy;
use clinch::config::{Config, Source};

fn variables(set: &[(&str, &str)]) -> Config {
    Config::loader().variables(set.iter().copied()).load().unwrap()
}

/// Defaults, the file, the environment, flags: what comes later counts.
///
/// Proves: O5
#[test]
fn what_comes_later_counts() {
    let file = "prefix = \"file\"\ncall_timeout = \"2s\"\nmax_in_flight = 7\n[guards]\nshadow = true\n";
    let loader = Config::loader()
        .text("clinch.toml", file)
        .variables([
            ("CLINCH_PREFIX", "environment"),
            ("CLINCH_CALL_TIMEOUT", "3s"),
            ("CLINCH_GUARDS_ENABLED", "0"),
        ])
        .set("prefix", "--prefix", "flag");
    let config = loader.load().unwrap();
    assert_eq!(config.prefix, "flag");
    assert_eq!(config.call_timeout, Duration::from_secs(3));
    assert_eq!((config.max_in_flight, config.connect_timeout), (7, Duration::from_secs(5)));
    assert_eq!(config.guards, clinch::submit::Settings::new().shadow(true).enabled(false));

    let source = |field| config.source(field).to_string();
    assert_eq!(source("prefix"), "--prefix");
    assert_eq!(source("call_timeout"), "CLINCH_CALL_TIMEOUT");
    assert_eq!(source("max_in_flight"), "clinch.toml:3:17");
    assert_eq!(source("guards.shadow"), "clinch.toml:5:10");
    assert_eq!(source("guards.enabled"), "CLINCH_GUARDS_ENABLED");
    assert!(config.source("connect_timeout").is_default());
    assert_eq!(
        config.source("guards.shadow"),
        &Source::File { path: std::path::Path::new("clinch.toml").into(), line: 5, column: 10 }
    );
}

#[test]
fn nothing_set_is_the_default() {
    let config = Config::loader().load().unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config, Config::from_toml("").unwrap());
    assert!(Config::fields().all(|(field, _)| config.source(field).is_default()));
    assert_eq!(config.store.expose(), "memory:");
    assert_eq!((config.prefix.as_str(), config.call_timeout), ("clinch", Duration::from_secs(1)));
    assert_eq!((config.max_in_flight, config.strategy, config.enabled), (100, Strategy::FailFast, true));
}

/// Every field has a variable of its own, and can be set by it.
///
/// Proves: O5
#[test]
fn every_field_can_be_set_by_its_variable() {
    let certificates = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(certificates.path(), "-----BEGIN CERTIFICATE-----").unwrap();
    let other = |field: &str| -> String {
        match field {
            "store" => "redis://redis.example.com".to_owned(),
            "database" => "3".to_owned(),
            "tls_root_certificates" => certificates.path().to_str().unwrap().to_owned(),
            "fleet_key" | "serve.token" => "a-secret-of-enough-bytes".to_owned(),
            "serve.listen" => "127.0.0.1:1".to_owned(),
            "serve.allowed_origins" => "https://a.example, http://localhost:8080".to_owned(),
            "serve.allowed_hosts" => "clinch.example.com, clinch.example.com:8080".to_owned(),
            "serve.playground" => "true".to_owned(),
            "serve.log" => "debug".to_owned(),
            "serve.max_request_bytes" => "2048".to_owned(),
            "http.trusted_proxies" => "10.0.0.0/8,192.0.2.1".to_owned(),
            "http.forwarded_header" => "forwarded".to_owned(),
            "idempotency.in_flight" => "{ wait = \"7s\" }".to_owned(),
            "idempotency.stored" => "all".to_owned(),
            "duplicate.release" => "never".to_owned(),
            _ => match field.rsplit('.').next().unwrap() {
                "strategy" => "proceed".to_owned(),
                "disconnect" => "hold".to_owned(),
                "streaming" => "until_end".to_owned(),
                "status" => "418".to_owned(),
                "exclude_params" | "replay_headers" | "session_cookies" => "a,b".to_owned(),
                "prefix" | "audit_log" | "host" | "label" | "message" | "key_prefix" => "word".to_owned(),
                "call_timeout" | "connect_timeout" | "max_ttl" | "min_interval" | "max_interval"
                | "release_within" | "interval" | "min_hold" | "ttl" | "wait" | "retry_interval"
                | "retention" | "lease" | "request_timeout" | "drain_timeout" => "3s".to_owned(),
                "max_connections" | "max_in_flight" | "body_bytes" | "depth" | "max_response_bytes" => {
                    "3".to_owned()
                }
                _ if field.starts_with("http.statuses.") => "418".to_owned(),
                // A switch: the other way round.
                _ => {
                    let default = &Config::default().to_json()[field]["value"];
                    (!default.as_bool().unwrap_or_else(|| panic!("{field} is no switch"))).to_string()
                }
            },
        }
    };
    let mut names: Vec<_> = Config::fields().map(|(_, variable)| variable).collect();
    let count = names.len();
    assert!(count > 90, "{count}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two fields have the same variable");

    for (field, variable) in Config::fields() {
        let text = other(field);
        let mut set = vec![(variable, text.as_str())];
        if field == "database" {
            set.push(("CLINCH_STORE", "redis://h"));
        }
        let config = variables(&set);
        assert_ne!(config, Config::default(), "{variable}={text}");
        assert_eq!(config.source(field), &Source::Variable(variable.to_owned()));
        assert!(config.unknown_variables().is_empty());
        // The same by a flag.
        let flags =
            Config::loader().variables(set.iter().copied().skip(1)).set(field, "--flag", text.as_str());
        assert_eq!(flags.load().unwrap(), config, "{field}");
    }
}

#[test]
fn values_of_variables_are_read_as_what_is_wanted() {
    let config = variables(&[
        ("CLINCH_DUPLICATE_EXCLUDE_PARAMS", " a.b , c,, "),
        ("CLINCH_IDEMPOTENCY_REPLAY_HEADERS", "[\"x, y\"]"),
        ("CLINCH_LOCK_RENEW", "1"),
        ("CLINCH_MAX_IN_FLIGHT", " 12 "),
        // Not a number: a text that looks like one.
        ("CLINCH_PREFIX", "42"),
    ]);
    let value = |field: &str| config.to_json()[field]["value"].clone();
    assert_eq!(value("duplicate.exclude_params"), serde_json::json!(["a.b", "c"]));
    assert_eq!(value("idempotency.replay_headers"), serde_json::json!(["x, y"]));
    assert_eq!((value("lock.renew"), value("max_in_flight")), (true.into(), 12.into()));
    assert_eq!(config.prefix, "42");
}

/// An empty variable is one that is not set, except where empty is a value.
#[test]
fn an_empty_variable_counts_as_not_set() {
    let config = variables(&[("CLINCH_STORE", ""), ("CLINCH_CALL_TIMEOUT", ""), ("CLINCH_CONFIG", "")]);
    assert_eq!(config, Config::default());
    assert_eq!(variables(&[("CLINCH_PREFIX", "")]).prefix, "");
}

/// Others set such names too, so an unknown variable stops nobody; but it is told.
#[test]
fn unknown_variables_are_told_and_change_nothing() {
    let config = variables(&[
        ("CLINCH_STROE", "redis://h"),
        ("CLINCH_SERVICE_HOST", "10.0.0.1"),
        ("CLINCH_KEY", "nightly"),
        ("CLINCH_FENCE", "7"),
        ("CLINCH_TEST_REDIS_SERVER", "/x"),
        ("PATH", "/bin"),
    ]);
    assert_eq!(config, Config::default());
    assert_eq!(
        config.unknown_variables(),
        [
            "the variable `CLINCH_STROE` is not known and changes nothing; did you mean `CLINCH_STORE`?",
            "the variable `CLINCH_SERVICE_HOST` is not known and changes nothing",
        ]
    );
}

/// The database may be a field of its own, for every kind of address.
#[test]
fn the_database_goes_into_the_address() {
    for (store, database, url) in [
        ("redis://h", "3", "redis://h/3"),
        ("redis://h/", "3", "redis://h/3"),
        ("redis://h:6379/3", "3", "redis://h:6379/3"),
        ("redis://u:p%2F@h:1", "0", "redis://u:p%2F@h:1/0"),
        ("redis+unix:///run/r.sock", "3", "redis+unix:///run/r.sock?db=3"),
        ("redis+unix:///run/r.sock?user=u&pass=p", "3", "redis+unix:///run/r.sock?db=3&user=u&pass=p"),
        ("redis+unix:///run/r.sock?db=3", "3", "redis+unix:///run/r.sock?db=3"),
    ] {
        let config = variables(&[("CLINCH_STORE", store), ("CLINCH_DATABASE", database)]);
        assert_eq!(config.engine_url().unwrap().expose(), url);
    }
    assert_eq!(variables(&[("CLINCH_STORE", "redis://h/3")]).engine_url().unwrap().expose(), "redis://h/3");
}

/// A TTL that nobody set does not stand in the way of a low `max_ttl`.
#[test]
fn defaults_are_not_held_against_a_low_longest_ttl() {
    assert_eq!(variables(&[("CLINCH_MAX_TTL", "5s")]).max_ttl, Duration::from_secs(5));
}
