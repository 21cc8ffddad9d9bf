//! What the checker makes of small histories that no run of today's manager yields.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::time::Duration;

use clinch::lease::{Fence, Token};
use clinch_testkit::history::{
    Call, Entry, Event, Header, HeldClaim, History, Outcome, Placed, Role, Rule, Step, Stop, Tag, Touched,
    check,
};
use clinch_testkit::planted::all;
use clinch_testkit::sim::workload::{Setup, run};
use clinch_testkit::sim::{Honest, fences};

const TTL: Duration = Duration::from_secs(10);

/// A history that is made up, one event a millisecond.
#[derive(Default)]
struct Story(Vec<Entry>);

impl Story {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.len() as u64)
    }

    fn tell(&mut self, event: Event) -> &mut Self {
        let at = self.now();
        self.0.push(Entry { at, event });
        self
    }

    fn granted(&mut self, client: usize, token: &Tag, fence: Option<u64>) -> &mut Self {
        let after =
            vec![Placed { token: token.clone(), role: Role::Exclusive, expires: self.now() + TTL, fence }];
        let (key, role, before) = ("lock:k".to_owned(), Role::Exclusive, Vec::new());
        let touched = Touched { key, role, of: 1, ttl: TTL, floor: None, before, after };
        let (call, patience) = (Call::Acquire, Duration::ZERO);
        let step = Step {
            node: 0,
            client,
            call,
            connection: 1,
            token: token.clone(),
            patience,
            queues: false,
            inherits: false,
            touched: vec![touched],
        };
        let answer = clinch_testkit::history::Answer::Granted(fence.into_iter().map(Some).collect());
        self.tell(Event::Step(step)).tell(Event::Port {
            client,
            op: None,
            call,
            token: token.clone(),
            answer,
        })
    }

    fn held(&mut self, op: u64, client: usize, token: &Tag, fence: Option<u64>, degraded: bool) -> &mut Self {
        let claim = HeldClaim { key: "lock:k".to_owned(), role: Role::Exclusive, ttl: TTL, fence };
        self.tell(Event::Held { op, client, token: token.clone(), claims: vec![claim], degraded })
    }

    fn ended(&mut self, op: u64, token: &Tag) -> &mut Self {
        self.tell(Event::Ended { op, token: token.clone(), how: Stop::Done })
    }

    fn broken(&self) -> Vec<Rule> {
        let second = Duration::from_secs(1);
        let header = Header { seed: 0, call_limit: second, latest_landing: second, quiet: false, nodes: 1 };
        let history = History { header, entries: self.0.clone() };
        check(&history).into_iter().map(|violation| violation.rule).collect()
    }
}

fn tag(text: &str) -> Tag {
    Tag::from(&Token::from_text(text))
}

#[test]
fn a_lease_may_be_passed_on_inside_a_process_with_a_higher_fence() {
    let (a, first) = (tag("a"), 7 * Fence::STEP);
    let mut story = Story::default();
    story.granted(0, &a, Some(first)).held(1, 0, &a, Some(first), false).ended(1, &a);
    story
        .held(2, 0, &a, Some(first + 1), false)
        .ended(2, &a)
        .held(3, 0, &a, Some(first + 2), false)
        .ended(3, &a);
    assert_eq!(story.broken(), []);
}

#[test]
fn a_lease_is_passed_on_to_nobody_beside_its_guard_nor_abroad_nor_after_its_release() {
    let a = tag("a");
    let mut beside = Story::default();
    beside
        .granted(0, &a, None)
        .held(1, 0, &a, None, false)
        .held(2, 0, &a, None, false)
        .ended(1, &a)
        .ended(2, &a);
    assert_eq!(beside.broken(), [Rule::Overlap, Rule::Token]);

    let mut abroad = Story::default();
    abroad
        .granted(0, &a, None)
        .held(1, 0, &a, None, false)
        .ended(1, &a)
        .held(2, 1, &a, None, false)
        .ended(2, &a);
    assert_eq!(abroad.broken(), [Rule::Token]);

    let mut late = Story::default();
    late.granted(0, &a, None).held(1, 0, &a, None, false).ended(1, &a);
    let answer = clinch_testkit::history::Answer::Release { held: true, conclusive: false };
    late.tell(Event::Port { client: 0, op: None, call: Call::Release, token: a.clone(), answer });
    late.held(2, 0, &a, None, false).ended(2, &a);
    assert_eq!(late.broken(), [Rule::Token]);
}

#[test]
fn a_pass_does_not_reach_the_next_grants_fence_nor_stand_still() {
    let (a, first) = (tag("a"), 7 * Fence::STEP);
    for next in [first, first + 65, first + Fence::STEP] {
        let mut story = Story::default();
        story.granted(0, &a, Some(first)).held(1, 0, &a, Some(first), false).ended(1, &a);
        story.held(2, 0, &a, Some(next), false).ended(2, &a);
        assert_eq!(story.broken(), [Rule::Fence], "{next} after {first}");
    }
}

#[test]
fn an_unprotected_guard_excludes_its_own_process_and_no_other() {
    let (a, b) = (tag("a"), tag("b"));
    for (client, broken) in [(1, vec![]), (0, vec![Rule::Overlap])] {
        let mut story = Story::default();
        story.granted(0, &a, None).held(1, 0, &a, None, false);
        story.held(2, client, &b, None, true).ended(1, &a).ended(2, &b);
        assert_eq!(story.broken(), broken, "beside a guard of c0 in c{client}");
    }
}

#[test]
fn the_workload_reaches_every_kind_of_claim() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..40 {
        for entry in run(seed, &Setup::of_seed(seed)).unwrap().history.entries {
            let mut count = |what: String| *seen.entry(what).or_default() += 1;
            match entry.event {
                Event::Held { claims, .. } => {
                    for claim in &claims {
                        count(format!("held {:?}", claim.role));
                        count(format!("fenced {}", claim.fence.is_some()));
                        count(format!("passed {}", claim.fence.is_some_and(|fence| fence % Fence::STEP > 0)));
                    }
                    count(format!("several {}", claims.len() > 1));
                }
                Event::Step(step) => {
                    step.touched
                        .iter()
                        .flat_map(|t| &t.after)
                        .for_each(|placed| count(format!("{:?}", placed.role)));
                }
                Event::Write { taken, .. } => count(format!("taken {taken}")),
                Event::Complete { outcome: Outcome::Denied { .. }, .. } => count("denied".to_owned()),
                _ => {}
            }
        }
    }
    for what in [
        "held Exclusive",
        "held Shared",
        "held Permit",
        "fenced true",
        "passed true",
        "several true",
        "Heir",
        "Writer",
        "Queued",
        "taken true",
        "taken false",
        "denied",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times >= 20), "{what}: {seen:#?}");
    }
}

/// Fault: 24
/// Proves: B2
#[test]
fn fences_rise_through_every_loss_and_the_count_would_notice_if_not() {
    let tally = fences::run(&Honest, 100_000, 1, |_| {});
    assert_eq!((tally.violations, tally.grants), (0, 100_000), "{tally:?}");
    assert!(tally.lost_in_a_rush > 10 && tally.passes > 100_000 && tally.restarts > 5, "{tally:?}");
    for name in ["fence-without-clock", "fence-on-repeat"] {
        let plants = all();
        let plant = plants.iter().find(|plant| plant.name == name).unwrap();
        let rules = (plant.setup(0).rules)();
        assert!(fences::run(&*rules, 100_000, 1, |_| {}).violations > 0, "{name}");
    }
}
