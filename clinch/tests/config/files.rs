//! Files that cannot be read.

use std::path::Path;

use clinch::config::Config;

fn refused(path: &Path) -> String {
    Config::from_file(path).unwrap_err().to_string()
}

/// Proves: O5
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let shown = |name: &str| path(name).display().to_string();

    let error = refused(&path("none.toml"));
    assert!(error.starts_with(&format!("{}: cannot be read: No such file", shown("none.toml"))), "{error}");
    let error = refused(folder.path());
    assert!(error.ends_with("cannot be read: it is a folder; accepted is a TOML file"), "{error}");

    std::fs::write(path("latin1.toml"), b"prefix = \"a\"\nhost = \"\xe9\"\n").unwrap();
    let text = format!("{}:2:1: this is not UTF-8; accepted is TOML in UTF-8", shown("latin1.toml"));
    assert_eq!(refused(&path("latin1.toml")), text);

    std::fs::write(path("large.toml"), " ".repeat((1 << 20) + 1)).unwrap();
    assert!(refused(&path("large.toml")).ends_with("is larger than 1 MiB; accepted is a TOML file of less"));

    std::fs::write(path("wrong.toml"), "\nprefix = 1\n").unwrap();
    let text =
        format!("{}:2:10: prefix: integer `1` is not accepted; accepted is a text", shown("wrong.toml"));
    assert_eq!(refused(&path("wrong.toml")), text);
}

#[test]
fn the_variable_names_the_file_unless_the_program_does() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.toml"), folder.path().join("other.toml"));
    std::fs::write(&one, "prefix = \"one\"").unwrap();
    // A byte order mark is none of the configuration's business.
    std::fs::write(&other, "\u{feff}prefix = \"other\"").unwrap();
    let loader = Config::loader().variables([("CLINCH_CONFIG", &one)]);
    assert_eq!(loader.clone().load().unwrap().prefix, "one");
    assert_eq!(loader.file(&other).load().unwrap().prefix, "other");

    let none = folder.path().join("none.toml");
    let error = Config::loader().variables([("CLINCH_CONFIG", &none)]).load().unwrap_err().to_string();
    assert!(error.starts_with(&none.display().to_string()), "{error}");
}

#[test]
fn certificates_must_be_there_and_be_some() {
    let folder = tempfile::tempdir().unwrap();
    let (none, empty) = (folder.path().join("none.pem"), folder.path().join("empty.pem"));
    std::fs::write(&empty, "not a certificate").unwrap();
    for (path, problem) in [
        (&none, "cannot be read: No such file"),
        (&empty, "has no certificate in it; accepted is a PEM file"),
    ] {
        let toml = format!("\ntls_root_certificates = {:?}", path.to_str().unwrap());
        let error = Config::from_toml(&toml).unwrap_err().to_string();
        let text = format!("<text>:2:25: tls_root_certificates: `{}` {problem}", path.display());
        assert!(error.starts_with(&text), "{error}");
    }
}
