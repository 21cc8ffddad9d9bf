//! The real manager on a simulated engine, seed after seed: what is printed for a seed is what it will always be.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clinch_testkit::history::{Event, FaultKind, History, Violation, check};
use clinch_testkit::planted;
use clinch_testkit::sim::FaultId;
use clinch_testkit::sim::shrink::shrink;
use clinch_testkit::sim::workload::{Kind, Setup, run as simulate};

/// The most runs to find the faults that matter.
const SHRINKING: usize = 400;
/// How many of them are shown.
const SHOWN: usize = 40;
/// Every so many seeds, one is run without faults as well: stricter rules hold there.
const QUIET: u64 = 8;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first seed; on its own, only this one, with its history.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds.
    #[arg(long)]
    seeds: Option<u64>,
    /// Seed after seed, for so many seconds; fresh ones, unless the first is given.
    #[arg(long, conflicts_with = "seeds")]
    seconds: Option<u64>,
    /// What the engine is.
    #[arg(long, value_enum, default_value_t = World::All)]
    world: World,
    /// With this planted bug, which must be found; `all` for each in its own world.
    #[arg(long)]
    plant: Option<String>,
    /// Only these faults of the seed, as a shrunk run names them.
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<FaultId>>,
    /// Without any fault: stricter rules hold then.
    #[arg(long, conflicts_with = "only")]
    quiet: bool,
    /// Runs every seed twice, and compares the two histories byte by byte.
    #[arg(long)]
    twice: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum World {
    Single,
    Failover,
    Quorum,
    All,
}

impl World {
    fn kind(self, seed: u64) -> Kind {
        match self {
            Self::Single => Kind::Single,
            Self::Failover => Kind::Failover,
            Self::Quorum => Kind::Quorum,
            Self::All => Kind::ALL[(seed % 3) as usize],
        }
    }
}

/// What was seen.
#[derive(Default)]
struct Seen {
    seeds: u64,
    quiet: u64,
    broken: u64,
    different: u64,
    simulated: Duration,
    operations: u64,
    fewest: Option<(u64, u64)>,
    faults: BTreeMap<FaultKind, u64>,
}

impl Seen {
    fn count(&mut self, history: &History, faults: &BTreeMap<FaultKind, u64>) {
        let invoked = |event: &Event| matches!(event, Event::Invoke { .. });
        let operations = history.entries.iter().filter(|entry| invoked(&entry.event)).count() as u64;
        self.operations += operations;
        self.simulated += history.entries.last().map_or(Duration::ZERO, |last| last.at);
        faults.iter().for_each(|(kind, times)| *self.faults.entry(*kind).or_default() += times);
        if history.header.quiet {
            self.quiet += 1;
        } else {
            self.seeds += 1;
            let struck = faults.values().sum();
            let fewest = self.fewest.get_or_insert((operations, struck));
            *fewest = (fewest.0.min(operations), fewest.1.min(struck));
        }
    }

    fn report(&self, took: Duration) {
        let runs = self.seeds + self.quiet;
        println!(
            "{} seeds with faults and {} without in {took:.1?} ({:.1} a second)",
            self.seeds,
            self.quiet,
            runs as f64 / took.as_secs_f64()
        );
        println!("{:.0} s were simulated, with {} operations", self.simulated.as_secs_f64(), self.operations);
        if let Some((operations, faults)) = self.fewest {
            println!("every seed with faults had at least {operations} operations and {faults} faults");
        }
        for (kind, times) in &self.faults {
            println!("{:>9} x {kind:?}", times);
        }
        println!("{} seeds broke a rule", self.broken);
    }
}

pub(crate) fn run(args: &Args) -> bool {
    match &args.plant {
        Some(name) => plant(args, name),
        None => storm(args),
    }
}

fn seeds(args: &Args) -> (u64, u64) {
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1000);
    let first = args.seed.unwrap_or_else(|| if args.seconds.is_some() { fresh() } else { 0 });
    let alone = if args.seed.is_some() { 1 } else { 1_000 };
    (first, args.seeds.unwrap_or(if args.seconds.is_some() { u64::MAX - first } else { alone }))
}

fn storm(args: &Args) -> bool {
    let (first, seeds) = seeds(args);
    let shown = std::io::stderr().is_terminal();
    // Before anything can go wrong: fresh ones could not be repeated otherwise.
    println!("seeds from {first} on, in the world: {:?}", args.world);
    let started = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let only = args.only.as_ref().map(|only| Arc::new(only.iter().copied().collect::<BTreeSet<_>>()));
    let mut seen = Seen::default();
    for seed in first..first.saturating_add(seeds) {
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        let kind = args.world.kind(seed);
        let mut setups = vec![Setup { only: only.clone(), ..Setup::stormy(kind, seed) }];
        if args.quiet {
            setups = vec![Setup::quiet(kind, seed)];
        } else if seed.is_multiple_of(QUIET) && seeds > 1 {
            setups.push(Setup::quiet(kind, seed));
        }
        for setup in &setups {
            let run = simulate(seed, setup).expect("a runtime");
            seen.count(&run.history, &run.faults);
            if args.twice && simulate(seed, setup).expect("a runtime").history != run.history {
                seen.different += 1;
                println!("seed {seed} is not the same the second time");
            }
            let violations = check(&run.history);
            if !violations.is_empty() {
                seen.broken += 1;
                tell(seed, kind, setup, &violations);
            }
            if seeds == 1 {
                print!("{}", run.history);
            }
        }
        if shown && (seed - first).is_multiple_of(20) {
            eprint!("\r{} seeds, {} broke a rule", seed - first, seen.broken);
        }
    }
    if shown {
        eprintln!();
    }
    seen.report(started.elapsed());
    if args.twice {
        println!("{} histories were different the second time", seen.different);
    }
    seen.broken == 0 && seen.different == 0
}

/// Says what was broken, by which few faults, and how to see it again.
fn tell(seed: u64, kind: Kind, setup: &Setup, violations: &[Violation]) {
    for violation in violations {
        println!("seed {seed}: {violation}");
    }
    let world = format!("{kind:?}").to_lowercase();
    let command = format!("cargo run --release -p clinch-testkit -- simulate --seed {seed} --world {world}");
    if setup.faults.is_none() {
        return println!("no fault is needed; repeat it with: {command} --quiet");
    }
    println!("repeat it with: {command}");
    let shrunk = shrink(seed, setup, violations[0].rule, SHRINKING).expect("a runtime");
    println!("in {} runs, {} faults were found to be enough:", shrunk.runs, shrunk.faults.len());
    let id = |event: &Event| match event {
        Event::Fault { id } => Some(*id),
        _ => None,
    };
    let struck = shrunk.history.entries.iter().filter_map(|entry| Some((entry.at, id(&entry.event)?)));
    for (at, id) in struck.take(SHOWN) {
        println!("  at {:>6} ms: {id}", at.as_millis());
    }
    let ids: Vec<_> = shrunk.faults.iter().map(ToString::to_string).collect();
    println!("see only those with: {command} --only {}", ids.join(","));
}

/// Looks for planted bugs, until each has broken its rule.
fn plant(args: &Args, name: &str) -> bool {
    let plants: Vec<_> = planted::all().into_iter().filter(|p| name == "all" || p.name == name).collect();
    if plants.is_empty() {
        println!("there is no planted bug called {name}; there are:");
        planted::all().iter().for_each(|plant| println!("  {plant:?}"));
        return false;
    }
    let (first, seeds) = seeds(args);
    let mut missed = 0;
    for plant in &plants {
        let found = (first..first.saturating_add(seeds)).find_map(|seed| {
            let setup = plant.setup(seed);
            let violations = check(&simulate(seed, &setup).expect("a runtime").history);
            let broken = violations.into_iter().find(|violation| violation.rule == plant.breaks)?;
            Some((seed, setup, broken))
        });
        match found {
            Some((seed, setup, broken)) => {
                println!("{:<28} seed {seed:<4} {broken}", plant.name);
                if plants.len() == 1 && !setup.faults.is_none() {
                    let shrunk = shrink(seed, &setup, plant.breaks, SHRINKING).expect("a runtime");
                    println!(
                        "in {} runs, {} faults were found to be enough:",
                        shrunk.runs,
                        shrunk.faults.len()
                    );
                    shrunk.faults.iter().take(SHOWN).for_each(|id| println!("  {id}"));
                }
            }
            None => {
                missed += 1;
                println!("{:<28} NOT FOUND in {seeds} seeds: {}", plant.name, plant.what);
            }
        }
    }
    println!("{} of {} planted bugs were found", plants.len() - missed, plants.len());
    missed == 0
}
