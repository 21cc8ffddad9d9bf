//! The pages in `docs/` and the tests say the same: every engine has its column, every fault its test, every ID its row.
//!
//! What is read are the pages and the sources as they stand in the repository, so that a test that is renamed, an engine that is
//! added or a row that is forgotten is found here.

#![cfg(all(feature = "redis-tls", feature = "sqlite", feature = "conformance"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clinch::LockManager;
use clinch::store::Capabilities;
use clinch::stores::{self, StoreOptions};
use clinch_testkit::server::RedisServer;

/// The engines as the table names them, in its order.
const ENGINES: [&str; 6] = [
    "one process",
    "a SQLite file",
    "one Redis or Valkey",
    "Redis under Sentinels",
    "Redis Cluster",
    "a quorum of Redis servers",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The rows of the first table after a heading, cell by cell, without the line under its head.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, after) = page.split_once(&format!("\n## {heading}")).expect(heading);
    let rows =
        after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let row = row.trim().trim_start_matches('|').trim_end_matches('|').to_owned();
        row.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    rows.filter(|row| !row.starts_with("|--")).map(cells).collect()
}

/// A test (or a promise of the conformance suite), and what its comment says that it proves and which faults it causes.
#[derive(Debug)]
struct Test {
    file: String,
    name: String,
    proves: Vec<String>,
    faults: Vec<String>,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("target") {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// All functions of the workspace whose comment names an ID or a fault.
fn tests() -> Vec<Test> {
    let mut files = Vec::new();
    for package in ["clinch", "clinch-cli", "clinch-macros", "clinch-shuttle", "clinch-testkit"] {
        for folder in ["src", "tests"].map(|folder| root().join(package).join(folder)) {
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
    }
    let mut tests = Vec::new();
    for path in files {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let (mut proves, mut faults) = (Vec::new(), Vec::new());
        for line in std::fs::read_to_string(&path).unwrap().lines().map(str::trim) {
            let words = |rest: &str| {
                rest.split(',').map(|word| word.trim().trim_end_matches('.').to_owned()).collect::<Vec<_>>()
            };
            if let Some(rest) = line.strip_prefix("/// Proves:") {
                proves.extend(words(rest));
            } else if let Some(rest) = line.strip_prefix("/// Fault:") {
                faults.extend(words(rest));
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| !line.starts_with("//")) {
                let name = rest.split(['(', '<']).next().unwrap().to_owned();
                let (proves, faults) = (std::mem::take(&mut proves), std::mem::take(&mut faults));
                if !proves.is_empty() || !faults.is_empty() {
                    tests.push(Test { file: file.clone(), name, proves, faults });
                }
            }
        }
    }
    tests
}

/// The faults that a cell names: `(fault 19)`, `(faults 20, 31)`.
fn faults_in(cell: &str) -> Vec<u32> {
    let numbers = |rest: &str| {
        let inside = rest.trim_start_matches('s').split(')').next().unwrap_or_default();
        inside.split(',').map(|number| number.trim().parse().unwrap()).collect::<Vec<u32>>()
    };
    cell.split("(fault").skip(1).flat_map(numbers).collect()
}

/// `[text](target)`, all of a text.
fn links(text: &str) -> Vec<(String, String)> {
    let link = |part: &str| {
        let (text, rest) = part.split_once("](")?;
        Some((text.trim_matches('`').to_owned(), rest.split_once(')')?.0.to_owned()))
    };
    text.split('[').skip(1).filter_map(link).collect()
}

/// Every address that is accepted belongs to an engine of the table, and every engine answers every promise. Where an engine cannot
/// keep one, the cell says which row of the fault matrix shows it.
///
/// Proves: L13
#[tokio::test]
async fn every_engine_has_its_column_and_answers_every_promise() {
    let page = page("guarantees.md");
    let table = table(&page, "By engine");
    assert_eq!(table[0][1..], ENGINES);
    for row in &table[1..] {
        assert_eq!(row.len(), table[0].len(), "a cell for every engine: {row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }

    let refusal = LockManager::connect("nobody://h").await.unwrap_err().to_string();
    let (_, accepted) = refusal.split_once("accepted are ").unwrap();
    let accepted: BTreeSet<_> = accepted
        .split(", ")
        .map(|word| word.trim_matches('`').split(':').next().unwrap().to_owned())
        .collect();
    let addresses = &table[1];
    assert_eq!(addresses[0], "its addresses");
    let named: BTreeSet<_> = addresses[1..]
        .iter()
        .flat_map(|cell| cell.split(", "))
        .map(|word| word.trim_matches('`').trim_end_matches(':').to_owned())
        .collect();
    assert_eq!(named, accepted, "the addresses of the table, and those that are accepted");

    let matrix: BTreeSet<u32> = fault_rows(&page).into_keys().collect();
    for (row, cell) in table[2..].iter().flat_map(|row| row[1..].iter().map(move |cell| (&row[0], cell))) {
        let faults = faults_in(cell);
        assert_eq!(
            cell.contains("**"),
            !faults.is_empty(),
            "{row}: what cannot hold names its fault: {cell}"
        );
        assert!(faults.iter().all(|fault| matrix.contains(fault)), "{row}: {cell}");
    }
}

/// What an engine cannot do at all is said of it in the table, and nothing is said that it can.
///
/// Proves: L13, B10
#[tokio::test]
async fn the_table_says_what_each_engine_can_do() {
    type Can = fn(&Capabilities) -> bool;
    let features: [(&str, Can); 6] = [
        ("fences rise", |can| can.fences),
        ("permits: never more than N", |can| can.permits),
        ("several keys, a lock with a limit", |can| can.several),
        ("readers beside writers", |can| can.shared),
        ("fair queue", |can| can.fair),
        ("duplicate guards, stored results", |can| can.records),
    ];
    let folder = tempfile::tempdir().unwrap();
    let servers = [(); 3].map(|()| RedisServer::start());
    let places = servers.each_ref().map(|server| server.addr().to_string()).join(",");
    // A server under Sentinels, or of a Cluster, is a Redis server: the same scripts.
    let redis = servers[0].url();
    let urls = [
        "memory:".to_owned(),
        format!("sqlite://{}/clinch.db", folder.path().display()),
        redis.clone(),
        redis.clone(),
        redis,
        format!("redis+quorum://{places}"),
    ];
    let table = table(&page("guarantees.md"), "By engine");
    for (column, url) in urls.iter().enumerate() {
        let can = stores::connect(url, &StoreOptions::default()).await.unwrap().capabilities();
        for (row, has) in features {
            let cells = table.iter().find(|cells| cells[0] == row).expect(row);
            let cell = &cells[column + 1];
            let refused = cell.starts_with('–') || cell.starts_with("**there are none**");
            assert_eq!(has(&can), !refused, "{row}, {}: {cell}", ENGINES[column]);
        }
    }
}

/// The rows of the fault matrix: what stands in the last column of each.
fn fault_rows(page: &str) -> BTreeMap<u32, String> {
    let rows = table(page, "The fault matrix");
    rows[1..].iter().map(|row| (row[0].parse().unwrap(), row.last().unwrap().clone())).collect()
}

/// Every row of the matrix leads to tests that are where it says and name that row themselves; and no test names a row that is not
/// there.
///
/// Proves: L13
#[test]
fn every_row_of_the_fault_matrix_leads_to_its_tests() {
    let (rows, tests) = (fault_rows(&page("guarantees.md")), tests());
    for row in (1..=43).chain([46]) {
        assert!(rows.contains_key(&row), "row {row} is missing");
    }
    for (row, cell) in &rows {
        let (programs, links): (Vec<_>, Vec<_>) =
            links(cell).into_iter().partition(|(text, _)| text.starts_with("clinch-testkit "));
        assert!(!links.is_empty(), "row {row} leads to no test: {cell}");
        assert_eq!(cell.matches('`').count(), 2 * (programs.len() + links.len()), "row {row}: all are links");
        for (name, target) in links {
            let file = target.strip_prefix("../").expect("a path from this page");
            let test = tests.iter().find(|test| test.name == name && test.file == file);
            let test = test.unwrap_or_else(|| panic!("row {row}: there is no {name} in {file}"));
            assert!(test.faults.contains(&row.to_string()), "{name} does not say `Fault: {row}`: {test:?}");
        }
        for (_, target) in programs {
            assert!(root().join("docs").join(&target).is_file(), "row {row}: {target} is not there");
        }
    }
    for test in &tests {
        for fault in &test.faults {
            assert!(fault.parse().is_ok_and(|row: u32| rows.contains_key(&row)), "row {fault} of {test:?}");
        }
    }
}

/// Every ID that is in this release has a test, and every ID that a test names is on the page.
#[test]
fn every_requirement_in_this_release_has_a_test() {
    let page = page("requirements.md");
    let headings = ["L — ", "T — ", "D — ", "O — ", "B — "];
    let rows: BTreeMap<_, _> = headings
        .iter()
        .flat_map(|heading| table(&page, heading).split_off(1))
        .map(|row| (row[0].clone(), row[2].clone()))
        .collect();
    assert!(rows.len() >= 55, "the page was read: {rows:?}");
    let tests = tests();
    for test in &tests {
        assert!(test.proves.iter().all(|id| rows.contains_key(id)), "unknown ID: {test:?}");
        assert!(
            test.proves.len() <= 4 && test.faults.len() <= 4,
            "who proves everything proves nothing: {test:?}"
        );
    }
    let others = std::fs::read_to_string(root().join("deploy/prometheus/clinch.rules.test.yml")).unwrap();
    for (id, status) in &rows {
        let has_test = tests.iter().any(|test| test.proves.contains(id))
            || others
                .lines()
                .any(|line| line.trim_start().starts_with("# Proves:") && line.contains(id.as_str()));
        assert!(has_test || status.starts_with("planned"), "{id} ({status}) has no test");
    }
}

/// What the pages link to is there.
#[test]
fn links_between_pages_lead_somewhere() {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    for path in docs.chain(pages).filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (_, target) in links(&text) {
            let (file, _) = target.split_once('#').unwrap_or((&target, ""));
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            assert!(path.parent().unwrap().join(file).exists(), "{}: {target}", path.display());
        }
    }
}
