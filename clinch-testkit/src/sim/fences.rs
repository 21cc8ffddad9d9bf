//! Fences alone, in great numbers: the engine's rules without a network, a clock that only runs on, and everything that
//! can happen to the numbers.

use std::time::Duration;

use clinch::key::Key;
use clinch::lease::{Claim, Fence, Token};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Asked, Asking, EngineTime, Rules, Table};

const KEYS: usize = 5;
const PROCESSES: usize = 8;
/// Where the engine's clock stands at first: some day in 2026, so that the numbers are as large as they will be.
const START: Duration = Duration::from_secs(1_780_000_000);
/// The most passes of a lease inside a process.
const MOST_PASSES: u64 = 64;
/// The time between two grants at 50,000 a second.
const RUSH: Duration = Duration::from_micros(20);

/// What was done, and what went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Grants by the engine.
    pub grants: u64,
    /// Grants that were asked for twice: the second answer must be the first.
    pub repeats: u64,
    /// Local passes.
    pub passes: u64,
    /// Restarts with memory.
    pub restarts: u64,
    /// Restarts without memory.
    pub amnesias: u64,
    /// Losses of the counters alone.
    pub lost_counters: u64,
    /// Losses of either kind while one key was granted 50,000 times a second.
    pub lost_in_a_rush: u64,
    /// Fences that did not rise, or were not what they should be.
    pub violations: u64,
    /// The first of them, in words.
    pub first: Option<String>,
}

/// Grants fences by these rules until there are `grants`, and tells of the progress now and then.
pub fn run(rules: &dyn Rules, grants: u64, seed: u64, mut progress: impl FnMut(&Tally)) -> Tally {
    let mut world = World::new(rules, seed);
    while world.tally.grants < grants {
        world.grant();
        world.misfortune();
        if world.tally.grants.is_multiple_of(100_000) {
            progress(&world.tally);
        }
    }
    world.tally
}

struct World<'r> {
    rules: &'r dyn Rules,
    rng: StdRng,
    table: Table,
    clock: Duration,
    keys: Vec<Key>,
    /// The last grant of each key.
    last: [u64; KEYS],
    /// The highest fence that each process has seen on each key.
    seen: [[u64; KEYS]; PROCESSES],
    /// One key is in great demand, for so many more grants.
    rush: Option<(usize, u64)>,
    tally: Tally,
}

impl<'r> World<'r> {
    fn new(rules: &'r dyn Rules, seed: u64) -> Self {
        Self {
            rules,
            rng: StdRng::seed_from_u64(seed),
            table: Table::default(),
            clock: START,
            keys: (0..KEYS).filter_map(|i| Key::new(format!("k{i}")).ok()).collect(),
            last: [0; KEYS],
            seen: [[0; KEYS]; PROCESSES],
            rush: None,
            tally: Tally::default(),
        }
    }

    fn now(&self) -> EngineTime {
        EngineTime::of(self.clock, 0)
    }

    fn pass_micros(&mut self, from: u64, to: u64) {
        self.clock += Duration::from_micros(self.rng.random_range(from..=to));
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.rng.random_range(0..times) == 0
    }

    fn wrong(&mut self, key: usize, what: &str) {
        self.tally.violations += 1;
        let grants = self.tally.grants;
        self.tally.first.get_or_insert_with(|| format!("grant {grants} on k{key}: {what}"));
    }

    fn acquire(&mut self, asked: &Asked) -> Option<Vec<Option<Fence>>> {
        let now = self.now();
        self.rules.acquire(&mut self.table, asked, now).ok()
    }

    fn grant(&mut self) {
        let key = match &mut self.rush {
            Some((key, left)) => {
                let key = *key;
                *left -= 1;
                if *left == 0 {
                    self.rush = None;
                }
                self.clock += RUSH;
                key
            }
            None => {
                self.pass_micros(20, 5000);
                self.rng.random_range(0..KEYS)
            }
        };
        let process = self.rng.random_range(0..PROCESSES);
        // A process that has just started has seen nothing.
        let floor = if self.one_in(3) { 0 } else { self.seen[process][key] };
        let ttl = Duration::from_millis(1);
        let asked = Asked {
            token: Token::from_text(format!("{:032x}", self.tally.grants)),
            claims: vec![Claim::exclusive(self.keys[key].clone(), ttl).fenced(Fence::new(floor))],
            asking: Asking::Once,
        };
        let mut answer = self.acquire(&asked);
        if answer.is_none() {
            // Whoever had it died without a word.
            self.clock += ttl;
            answer = self.acquire(&asked);
        }
        self.tally.grants += 1;
        let Some([Some(fence)]) = answer.as_deref() else {
            return self.wrong(key, "it was not granted a fence");
        };
        let fence = fence.get();
        self.judge(key, fence, floor);
        if self.one_in(16) {
            self.tally.repeats += 1;
            let again = self.acquire(&asked);
            if again != answer {
                self.wrong(key, "asked again, the answer was another");
            }
        }
        let passes = self.passes();
        self.seen[process][key] = self.seen[process][key].max(fence + passes);
        self.tally.passes += passes;
        if !self.one_in(32) {
            let now = self.now();
            self.rules.release(&mut self.table, &asked, now);
        }
    }

    /// How often the lease is passed on before it is given back.
    fn passes(&mut self) -> u64 {
        match self.rng.random_range(0..16) {
            0 => MOST_PASSES,
            1..4 => self.rng.random_range(1..=MOST_PASSES),
            4..8 => 1,
            _ => 0,
        }
    }

    /// A fence must be above whatever was given on its key before, and above every number that a holder before may still
    /// count up to: one that knows nothing of the loss goes on passing its lease.
    fn judge(&mut self, key: usize, fence: u64, floor: u64) {
        if fence <= self.last[key] + MOST_PASSES && self.last[key] > 0 {
            self.wrong(key, &format!("the fence {fence} came after {}", self.last[key]));
        }
        if fence <= floor {
            self.wrong(key, &format!("the fence {fence} is not above its floor {floor}"));
        }
        if !fence.is_multiple_of(Fence::STEP) {
            self.wrong(key, &format!("the fence {fence} leaves no room for passes"));
        }
        self.last[key] = self.last[key].max(fence);
    }

    /// What happens between two grants, and more often while one key is in demand.
    fn misfortune(&mut self) {
        let rushing = self.rush.is_some();
        if !rushing && self.one_in(20_000) {
            self.rush = Some((self.rng.random_range(0..KEYS), self.rng.random_range(1_000..20_000)));
        }
        let lost = self.one_in(if rushing { 500 } else { 2_000 });
        let amnesia = self.one_in(if rushing { 2_000 } else { 5_000 });
        if lost {
            self.table.lose_counters();
            self.tally.lost_counters += 1;
        }
        if amnesia {
            // In a rush it is back at once: the worst for its clock.
            self.table.lose_all();
            self.tally.amnesias += 1;
        }
        if (lost || amnesia) && rushing {
            self.tally.lost_in_a_rush += 1;
        }
        if self.one_in(5_000) {
            self.tally.restarts += 1;
            self.pass_micros(10_000, 300_000);
        }
    }
}
