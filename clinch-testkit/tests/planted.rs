//! The checker, proven: every planted bug is caught on the seeds that unbroken code passes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fmt::Write;

use clinch_testkit::history::{Rule, check};
use clinch_testkit::planted::{Plant, all};
use clinch_testkit::sim::workload::{Setup, run};

/// The seeds on which every bug must show itself, and unbroken code nothing.
const SEEDS: std::ops::Range<u64> = 0..60;

/// The first seed on which a bug breaks its rule, and every rule that it breaks there.
fn first_catch(plant: &Plant) -> Option<(u64, BTreeSet<Rule>)> {
    SEEDS.into_iter().find_map(|seed| {
        let run = run(seed, &plant.setup(seed)).unwrap();
        let rules: BTreeSet<_> = check(&run.history).into_iter().map(|violation| violation.rule).collect();
        rules.contains(&plant.breaks).then_some((seed, rules))
    })
}

#[test]
fn unbroken_code_passes_the_seeds_on_which_bugs_are_caught() {
    let mut report = String::new();
    for seed in SEEDS {
        for violation in check(&run(seed, &Setup::of_seed(seed)).unwrap().history) {
            writeln!(report, "seed {seed}: {violation}").unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_planted_bug_is_caught() {
    let plants = all();
    assert!(plants.len() >= 50);
    let mut table = String::new();
    let mut missed = Vec::new();
    for plant in &plants {
        match first_catch(plant) {
            Some((seed, rules)) => {
                let also: String =
                    rules.iter().filter(|rule| **rule != plant.breaks).map(|rule| rule.letter()).collect();
                let (rule, letter) = (format!("{:?}", plant.breaks), plant.breaks.letter());
                writeln!(table, "{:<22} ({letter}) {rule:<13} seed {seed:<3} also: {also}", plant.name)
                    .unwrap();
            }
            None => missed.push(plant),
        }
    }
    println!("{table}");
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}
