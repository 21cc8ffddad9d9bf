//! What is shown of a configuration.

use clinch::config::{Config, Secret};
use proptest::prelude::*;
use proptest::sample::subsequence;

const SECRET: &str = "hunter2hunter2hunter2";

fn with_secrets() -> Config {
    let toml = format!(
        "store = \"redis://app:{SECRET}@h:6379/0\"\nfleet_key = \"{SECRET}\"\n[serve]\ntoken = \"{SECRET}\"\nlisten = \"[::]:80\""
    );
    Config::from_toml(&toml).unwrap()
}

/// Proves: O5
#[test]
fn secrets_are_never_shown() {
    let config = with_secrets();
    for shown in [
        config.to_toml(),
        config.to_json().to_string(),
        format!("{config:?} {config:#?}"),
        serde_json::to_string(&config).unwrap(),
        format!("{:?}", config.serve.token),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("***"), "{shown}");
    }
    assert_eq!(config.fleet_key.as_ref().map(Secret::expose), Some(SECRET));
    assert!(
        config.to_toml().contains("store = \"redis://app:***@h:6379/0\" # <text>:1:9\n"),
        "{}",
        config.to_toml()
    );
    assert!(config.to_toml().contains("# token = \"***\" # <text>:4:9; hidden\n"), "{}", config.to_toml());
    // What was hidden is not taken for the secret.
    let error = Config::from_toml(&config.to_toml()).unwrap_err().to_string();
    assert!(error.contains("store: `redis://app:***@h:6379/0` has its password hidden"), "{error}");
}

#[test]
fn it_is_shown_where_every_value_came_from() {
    let loader = Config::loader()
        .text("clinch.toml", "\n[lock]\nttl = \"1m 30s\"")
        .variables([("CLINCH_PREFIX", "shop")]);
    let config = loader.load().unwrap();
    let shown = config.to_toml();
    for line in [
        "enabled = true # default\n",
        "prefix = \"shop\" # CLINCH_PREFIX\n",
        "# host is not set\n",
        "\n[lock]\nttl = \"1m 30s\" # clinch.toml:3:7\n",
        "\n[guards.limits]\nbody_bytes = 2097152 # default\n",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
    let shown = config.to_json();
    assert_eq!(
        shown["lock.ttl"],
        serde_json::json!({ "value": "1m 30s", "source": "clinch.toml:3:7", "line": 3 })
    );
    assert_eq!(shown["host"], serde_json::json!({ "value": null, "source": "default" }));
    assert_eq!(shown.as_object().unwrap().len(), Config::fields().count());
}

/// Lines of all kinds, each of which changes something.
const LINES: [(&str, &str); 30] = [
    ("", "enabled = false"),
    ("", "store = \"redis://redis.example.com:7000/2\""),
    ("", "prefix = \"\""),
    ("", "call_timeout = \"1h\""),
    ("", "connect_timeout = \"1s 250ms\""),
    ("", "max_in_flight = 100000"),
    ("", "max_ttl = \"366days\""),
    ("", "strategy = \"retry_once\""),
    ("", "host = \"\\\"quoted\\\" \\\\ é\""),
    ("guards", "shadow = true"),
    ("guards", "strategy = \"proceed\""),
    ("guards", "min_interval = \"1ms 1us 1ns\""),
    ("guards", "limits = { body_bytes = 9223372036854775807, depth = 1 }"),
    ("duplicate", "message = \"\"\"\n\\u007f zwei Zeilen\n\tund \"mehr\" \"\"\""),
    ("duplicate", "exclude_params = [\"a\", 'b.\"c\"']"),
    ("duplicate", "release = \"on_failure\""),
    ("duplicate", "min_hold = \"5s\""),
    ("lock", "wait = \"366days\""),
    ("lock", "fair = true"),
    ("lock", "label = \"ü\""),
    ("limit", "status = 429"),
    ("limit", "disconnect = \"finish\""),
    ("idempotency", "in_flight = { wait = \"10s\" }"),
    ("idempotency", "replay_headers = []"),
    ("idempotency", "stored = \"success\""),
    ("http", "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]"),
    ("http", "statuses = { duplicate = 418 }"),
    ("serve", "listen = \"[::1]:0\""),
    ("serve", "allowed_origins = [\"https://ops.example.com\"]"),
    ("serve", "audit_log = \"/var/log/clinch audit.log\""),
];

fn file(lines: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for section in ["", "guards", "duplicate", "lock", "limit", "idempotency", "http", "serve"] {
        if !section.is_empty() {
            text += &format!("[{section}]\n");
        }
        for (_, line) in lines.iter().filter(|(of, _)| *of == section) {
            text += &format!("{line}\n");
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What is shown, read again, is the same.
    #[test]
    fn what_is_shown_can_be_read_again(lines in subsequence(LINES.to_vec(), 0..=LINES.len())) {
        let config = Config::from_toml(&file(&lines)).unwrap();
        prop_assert_eq!(&Config::from_toml(&config.to_toml()).unwrap(), &config);
        if !lines.is_empty() {
            prop_assert_ne!(&config, &Config::default());
        }
    }

    /// Secrets aside.
    #[test]
    fn secrets_are_what_is_missing_then(lines in subsequence(LINES.to_vec(), 0..=LINES.len())) {
        let mut config = Config::from_toml(&file(&lines)).unwrap();
        let without = config.clone();
        config.fleet_key = Some(Secret::new(SECRET));
        config.serve.token = Some(Secret::new(SECRET));
        prop_assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), without);
    }

    /// Nothing that is written in a file makes it panic.
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}", section in "(\\[[a-z.]{0,12}\\]\n)?", name in "[a-z_]{1,12}", field in 0..Config::fields().count()) {
        let _ = Config::from_toml(&text);
        let _ = Config::from_toml(&format!("{section}{name} = {text}"));
        let (_, variable) = Config::fields().nth(field).unwrap();
        let _ = Config::loader().variables([(variable, text.as_str())]).load();
    }
}
