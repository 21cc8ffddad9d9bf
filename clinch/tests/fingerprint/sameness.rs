//! Fingerprints are the same exactly when the submissions are.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::change::change;
use crate::model::{exclude, same, submission};
use crate::render::{Dice, render};

const CASES: u32 = 6000;

/// A submission is written twice, the second time perhaps after one or two small changes. A definition that knows
/// nothing of the implementation says whether the two are the same; the fingerprints must say so too.
///
/// Proves: D4
#[test]
fn fingerprints_are_the_same_exactly_when_submissions_are() {
    let (alike, unlike) = (Cell::new(0_u32), Cell::new(0_u32));
    let pairs = (submission(), exclude(), 0..4_usize, any::<u64>());
    TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() })
        .run(&pairs, |(one, exclude, changes, seed)| {
            let mut dice = Dice::new(seed);
            let mut two = one.clone();
            // Twice as often one change as two.
            for _ in 0..[0, 1, 1, 2][changes] {
                change(&mut two, &mut dice);
            }
            let expected = same(&one, &two, &exclude);
            let count = if expected { &alike } else { &unlike };
            count.set(count.get() + 1);
            let wires = (render(&one, &mut dice), render(&two, &mut dice));
            let equal = wires.0.fingerprint(&exclude) == wires.1.fingerprint(&exclude);
            prop_assert_eq!(equal, expected, "{:?}\n and {:?}\nwritten as {:#?}", one, two, wires);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // If nearly all were the same, or nearly all different, this would show little.
    assert!(alike.get() > CASES / 4 && unlike.get() > CASES / 4, "{alike:?} alike, {unlike:?} not");
}
