//! The example that is delivered: every field, its default, and what it means.

use std::collections::BTreeSet;

use clinch::config::Config;

const EXAMPLE: &str = include_str!("../../../deploy/clinch.toml");

/// `section.field`, and whether it is commented out, of every line that has one.
fn mentioned() -> Vec<(String, bool)> {
    let mut section = String::new();
    let mut fields = Vec::new();
    for line in EXAMPLE.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((name, _)) = line.trim_start_matches("# ").split_once(" = ")
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            fields.push((format!("{section}{name}"), line.starts_with('#')));
        }
    }
    fields
}

/// Proves: O5
#[test]
fn the_example_has_every_field_and_its_default() {
    assert_eq!(Config::from_toml(EXAMPLE).unwrap(), Config::default());
    let mentioned: BTreeSet<_> = mentioned().into_iter().map(|(field, _)| field).collect();
    let fields: BTreeSet<_> = Config::fields().map(|(field, _)| field.to_owned()).collect();
    assert_eq!(mentioned, fields);
}

/// What is commented out has no default, and can be used as it stands.
#[test]
fn what_is_commented_out_is_an_example_that_works() {
    let default = Config::default().to_json();
    let mut examples = 0;
    for (field, commented) in mentioned() {
        assert_eq!(commented, default[&field]["value"].is_null(), "{field}");
        examples += usize::from(commented);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "-----BEGIN CERTIFICATE-----").unwrap();
    let names: BTreeSet<_> = mentioned().into_iter().map(|(field, _)| field).collect();
    let uncommented = |line: &str| match line.strip_prefix("# ").and_then(|line| line.split_once(" = ")) {
        Some((name, value)) if names.iter().any(|field| field.rsplit('.').next() == Some(name)) => {
            format!("{name} = {value}")
        }
        _ => line.to_owned(),
    };
    let text: Vec<_> = EXAMPLE.lines().map(uncommented).collect();
    let text = text.join("\n").replace("/etc/clinch/ca.pem", file.path().to_str().unwrap());
    // The database needs an engine that has some.
    let config = Config::from_toml(&text.replace("\"memory:\"", "\"redis://h\"")).unwrap();
    let set = Config::fields().filter(|(field, _)| !config.source(field).is_default()).count();
    assert!(examples > 10 && set == Config::fields().count(), "{examples} {set}");
}
