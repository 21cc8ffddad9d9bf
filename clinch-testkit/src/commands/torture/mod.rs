//! Real processes on real servers while both are killed, stopped and cut off, and what they wrote down of it judged.

mod chart;
pub(crate) mod client;
mod ground;
mod judge;
mod pauses;
mod record;
mod register;

use std::fs::File;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::RngExt;
use tempfile::TempDir;

use self::ground::{Deployment, Ground};
use self::judge::{Cost, Loss, Process, Verdict, judge};
use self::record::Life;
use self::register::Register;
use super::kid::{Kid, now};

/// How many locks they fight over.
const KEYS: usize = 4;
/// How many permits there are.
const LIMIT: u32 = 3;
const TTL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// On which deployment; all of them, one after the other, unless given.
    #[arg(long, value_enum)]
    deployment: Option<Deployment>,
    /// How long on each.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// How many processes.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Where the report goes, as text and as a chart for each deployment.
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Plants a bug, which must be found: `careless-resource`, or a bug of a store that `simulate --plants` lists.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// Measures instead what pauses cost those who trust their lock alone.
    #[arg(long)]
    pauses: bool,
}

/// What a run takes place in.
struct Arena {
    clients: usize,
    urls: Vec<String>,
    register: Register,
    folder: TempDir,
    plant: Option<String>,
}

/// Something that was done to somebody.
#[derive(Debug, Clone)]
struct Fault {
    from: u64,
    until: u64,
    kind: String,
}

pub(crate) fn run(args: &Args) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let deployments = match args.deployment {
        Some(one) => vec![one],
        None if args.pauses => vec![Deployment::Single],
        None => <Deployment as clap::ValueEnum>::value_variants().to_vec(),
    };
    let mut holds = true;
    for deployment in deployments {
        let mut ground = deployment.start(args.clients, runtime.handle());
        let folder = tempfile::tempdir().unwrap();
        let register = {
            let _entered = runtime.enter();
            Register::open(folder.path(), args.plant.as_deref() == Some("careless-resource"))
        };
        let urls = (0..args.clients).map(|client| ground.url(client)).collect();
        let plant = args.plant.clone().filter(|plant| plant != "careless-resource");
        let arena = Arena { clients: args.clients, urls, register, folder, plant };
        holds &= if args.pauses {
            pauses::run(&arena, args.minutes)
        } else {
            torture(args, deployment, &mut *ground, &arena)
        };
    }
    holds
}

/// One deployment.
fn torture(args: &Args, deployment: Deployment, ground: &mut dyn Ground, arena: &Arena) -> bool {
    let (began, lasts) = (Instant::now(), Duration::from_secs_f64(args.minutes * 60.0));
    let (start, over) = (now(), AtomicBool::new(false));
    let (faults, losses) = (Mutex::new(Vec::new()), Mutex::new(Vec::<Loss>::new()));
    let operations = AtomicU64::new(0);
    let note = |from, kind: &str| {
        let fault = Fault { from, until: now(), kind: kind.to_owned() };
        faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    };
    let mut clients = Torturer::new(arena, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // However this ends, the others end too.
            let _over = Over(&over);
            let lost = |from, cost| {
                losses.lock().unwrap_or_else(PoisonError::into_inner).push(Loss { from, until: now(), cost });
            };
            let mut quiet_since = now();
            while began.elapsed() < lasts {
                pause(200, 2500);
                let by_itself = ground.by_itself();
                if by_itself != Cost::Nothing {
                    lost(quiet_since, by_itself);
                    note(quiet_since, "by itself");
                }
                let (from, kind) = (now(), *pick(ground.faults()));
                let cost = ground.strike(kind);
                lost(from, cost);
                note(from, kind);
                quiet_since = now();
            }
            lost(quiet_since, ground.by_itself());
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                pause(200, 2500);
                let (from, which) = (now(), rand::rng().random_range(0..clients.len()));
                let kind = match rand::rng().random_range(0..3) {
                    0 => {
                        clients.kill(which);
                        "client killed"
                    }
                    1 => {
                        clients.stop(which, millis(50, 900));
                        "client stopped for less than its TTL"
                    }
                    _ => {
                        clients.stop(which, TTL + millis(100, 2000));
                        "client stopped for longer than its TTL"
                    }
                };
                note(from, kind);
                operations.store(clients.operations(), Ordering::Relaxed);
            }
        });
        let total = || faults.lock().unwrap_or_else(PoisonError::into_inner).len();
        while !over.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(250));
            progress(deployment, began.elapsed(), lasts, operations.load(Ordering::Relaxed), total());
        }
    });
    clear_progress();
    let (processes, clean) = clients.end();
    // What the killed ones held ends by itself.
    std::thread::sleep(TTL + Duration::from_secs(2));
    let left = ground.left();
    let (faults, losses) = (faults.into_inner().unwrap(), losses.into_inner().unwrap());
    let verdict = judge(&processes, &arena.register.writes(), &losses);
    let holds = verdict.violations.is_empty() && left.is_empty() && clean;
    let report = report(deployment, start, began.elapsed(), &verdict, &faults, &left, clean);
    print!("{report}");
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).unwrap();
        let name = deployment.name();
        std::fs::write(folder.join(format!("torture-{name}.txt")), &report).unwrap();
        let chart = chart::draw(name, start, &processes, &faults, &verdict);
        std::fs::write(folder.join(format!("torture-{name}.svg")), chart).unwrap();
    }
    holds
}

/// Says that it is over when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn report(
    deployment: Deployment,
    start: u64,
    took: Duration,
    verdict: &Verdict,
    faults: &[Fault],
    left: &[String],
    clean: bool,
) -> String {
    let counted = |counts: std::collections::BTreeMap<String, u64>| {
        counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    };
    let mut kinds = std::collections::BTreeMap::new();
    faults.iter().for_each(|fault| *kinds.entry(fault.kind.clone()).or_default() += 1);
    let count = |rule: &str| verdict.violations.iter().filter(|violation| violation.rule == rule).count();
    let mut outcomes = verdict.outcomes.clone();
    if let Some(cut) = outcomes.remove("") {
        outcomes.insert("cut short by a kill".to_owned(), cut);
    }
    let mut text = format!(
        "{}: {:.1} min, {} operations ({}), {} grants, {} hand-overs between processes\n  {} faults: {}\n  resource: {} writes taken, {} late ones refused\n  \
         {} overlaps within validity, {} leases lost within validity, {} fences out of order, {} stale writes taken, {} hung operations, {} keys left; {} \
         that a documented loss of the deployment explains\n",
        deployment.name(),
        took.as_secs_f64() / 60.0,
        verdict.operations,
        counted(outcomes),
        verdict.grants,
        verdict.hand_overs,
        faults.len(),
        counted(kinds),
        verdict.taken,
        verdict.refused,
        count("overlap"),
        count("lost"),
        count("fence"),
        count("stale write"),
        count("hung"),
        left.len(),
        verdict.excused.len(),
    );
    for violation in verdict.violations.iter().take(20) {
        let at = Duration::from_nanos(violation.at.saturating_sub(start));
        text +=
            &format!("  VIOLATION after {:.3} s, {}: {}\n", at.as_secs_f64(), violation.rule, violation.what);
    }
    if !verdict.violations.is_empty() {
        for fault in faults {
            let at = |time: u64| Duration::from_nanos(time.saturating_sub(start)).as_secs_f64();
            text += &format!("  {:.3} to {:.3} s: {}\n", at(fault.from), at(fault.until), fault.kind);
        }
    }
    for key in left.iter().take(20) {
        text += &format!("  LEFT {key}\n");
    }
    if !clean {
        text += "  a client did not end cleanly\n";
    }
    text
}

/// A line on a terminal that is written over and over; nothing elsewhere.
fn progress(deployment: Deployment, at: Duration, of: Duration, operations: u64, faults: usize) {
    if std::io::stderr().is_terminal() {
        eprint!(
            "\r{}: {:.0} of {:.0} s, {operations} operations, {faults} faults ",
            deployment.name(),
            at.as_secs_f64().min(of.as_secs_f64()),
            of.as_secs_f64()
        );
        let _ = std::io::stderr().flush();
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// The client processes, and what was done to them.
struct Torturer<'a> {
    arena: &'a Arena,
    flags: Vec<String>,
    running: Vec<Running>,
    /// Those that are gone.
    past: Vec<Past>,
    /// Operations of those that are gone.
    counted: u64,
    files: usize,
}

struct Running {
    kid: Kid,
    history: PathBuf,
    stopped: Vec<(u64, u64)>,
    operations: u64,
}

struct Past {
    number: usize,
    history: PathBuf,
    stopped: Vec<(u64, u64)>,
    killed: Option<u64>,
}

impl<'a> Torturer<'a> {
    fn new(arena: &'a Arena, flags: &[&str]) -> Self {
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        if let Some(plant) = &arena.plant {
            flags.extend(["--plant".to_owned(), plant.clone()]);
        }
        let mut all = Self { arena, flags, running: Vec::new(), past: Vec::new(), counted: 0, files: 0 };
        for number in 0..arena.clients {
            let running = all.spawn(number);
            all.running.push(running);
        }
        all
    }

    const fn len(&self) -> usize {
        self.arena.clients
    }

    fn spawn(&mut self, number: usize) -> Running {
        let history = self.arena.folder.path().join(self.files.to_string());
        self.files += 1;
        File::create(&history).unwrap();
        let mut arguments: Vec<String> = vec![
            "torture-client".to_owned(),
            self.arena.urls[number].clone(),
            self.arena.register.path().to_str().unwrap().to_owned(),
            history.to_str().unwrap().to_owned(),
        ];
        arguments.extend(self.flags.iter().cloned());
        Running { kid: Kid::new(&arguments), history, stopped: Vec::new(), operations: 0 }
    }

    fn kill(&mut self, number: usize) {
        self.operations();
        let next = self.spawn(number);
        let Running { kid, history, stopped, operations } =
            std::mem::replace(&mut self.running[number], next);
        drop(kid);
        self.counted += operations;
        self.past.push(Past { number, history, stopped, killed: Some(now()) });
    }

    fn stop(&mut self, number: usize, lasts: Duration) {
        let (running, from) = (&mut self.running[number], now());
        running.kid.stop();
        std::thread::sleep(lasts);
        running.kid.cont();
        running.stopped.push((from, now()));
    }

    /// How many operations there were, as far as was told.
    fn operations(&mut self) -> u64 {
        for running in &mut self.running {
            let told = running.kid.heard().into_iter().filter_map(|line| line.parse().ok());
            running.operations = told.max().unwrap_or(running.operations);
        }
        self.counted + self.running.iter().map(|running| running.operations).sum::<u64>()
    }

    /// Ends them all, and reads what they wrote; whether all ended cleanly.
    fn end(mut self) -> (Vec<Process>, bool) {
        self.running.iter_mut().for_each(|running| running.kid.say("end"));
        let mut clean = true;
        for (number, Running { kid, history, stopped, .. }) in self.running.into_iter().enumerate() {
            let last = kid.last_word();
            if last != "ended" {
                eprintln!("process {number}: {last}");
                clean = false;
            }
            self.past.push(Past { number, history, stopped, killed: None });
        }
        let read = |past: Past| Process {
            life: Life::read(&past.history, past.number, past.killed),
            stopped: past.stopped,
            killed: past.killed,
        };
        (self.past.into_iter().map(read).collect(), clean)
    }
}

fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(from..to))
}

fn pause(from: u64, to: u64) {
    std::thread::sleep(millis(from, to));
}

fn pick<T>(all: &[T]) -> &T {
    &all[rand::rng().random_range(0..all.len())]
}
