//! One limit, processes that are killed and stopped while they hold permits of it, and never more holders than it allows.
//!
//! Every holder writes down when it knew that it had its permit and until when it believed in it, on the clock that all
//! processes share. A permit counts until it was about to be given back or until its validity ended, whichever came
//! first; that of a process that was killed, until its validity ended.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clinch::{Limit, LockGuard, LockManager, LockOptions, Outcome};
use rand::RngExt;
use tokio::time::sleep;

use super::engine::{Engine, StoreArg};
use super::kid::{Kid, nanos, now, orders};
use super::spans::{Span, most_at_once};

const NAME: &str = "export";
const OF: u32 = 7;
const PROCESSES: usize = 4;
/// The first ones may be killed, and so hold only what is soon back; the others hold long ones as well.
const KILLED: usize = 2;
const TASKS: u64 = 4;
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
/// How many may be stopped at a time, so that somebody is there to take what they lose.
const STOPPED: usize = 2;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For how long processes are killed and stopped.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Holders that believe in a permit until they give it back, valid or not: what the check is there to find.
    #[arg(long, hide = true)]
    gullible: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// What one process does.
#[derive(Debug, clap::Args)]
pub(crate) struct HolderArgs {
    url: String,
    history: PathBuf,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Permits of one second.
    Short,
    /// Those and permits of a minute.
    Mixed,
    /// All permits, for a minute.
    All,
}

/// A child, and what is being done to it.
struct Holder {
    kid: Kid,
    what: What,
    stopped_until: Option<Instant>,
}

/// What was done.
#[derive(Default)]
struct Done {
    kills: u32,
    pauses: u32,
}

pub(crate) async fn run(args: &Args) -> bool {
    let engine = Engine::of(&args.store);
    let folder = tempfile::tempdir().unwrap();
    let mut histories = Vec::new();
    let mut spawn = |what: What| {
        let history = folder.path().join(histories.len().to_string());
        histories.push(history.clone());
        spawn(&engine, &history, what)
    };
    let what = |i| if i < KILLED { What::Short } else { What::Mixed };
    let mut holders: Vec<_> = (0..PROCESSES).map(|i| spawn(what(i))).collect();
    let done = torment(&mut holders, Duration::from_secs(args.seconds), &mut spawn).await;

    // Nothing is left of those that end well; what the killed ones had is back after a second.
    let mut clean = true;
    for mut holder in holders {
        holder.kid.cont();
        if holder.what == What::Mixed {
            holder.kid.say("end");
            clean &= holder.kid.hear() == "ended";
        }
    }
    let ended = Instant::now();
    let manager = LockManager::connect(&engine.url()).await.unwrap();
    let limit = manager.limit(NAME, OF).unwrap();
    sleep(SHORT).await;
    let left = limit.holders().await.unwrap().len();
    let (free, all_free_after) = (exactly_all_are_free(&limit).await, ended.elapsed());

    // What a killed process holds for a minute can be given back by hand, and only once.
    let leak = spawn(What::All);
    assert_eq!(leak.kid.hear(), "held");
    drop(leak);
    let refused = limit.try_acquire(SHORT).await.unwrap().is_none();
    let (mut forced, mut twice) = (0, 0);
    for holder in limit.holders().await.unwrap() {
        forced += u32::from(manager.force_release(&holder).await.unwrap());
        twice += u32::from(manager.force_release(&holder).await.unwrap());
    }
    let by_force = refused && forced == OF && twice == 0 && exactly_all_are_free(&limit).await;
    clean &= manager.shutdown(Duration::from_secs(10)).await.is_clean();

    let seen = read(&histories, args.gullible);
    let within = seen.most <= OF as usize && seen.refuted == 0;
    println!(
        "{PROCESSES} processes x {TASKS} tasks, a limit of {OF}, TTLs of {SHORT:?} and {LONG:?}, {} s: {} grants \
         ({} released, {} dropped, {} never given back), {} kills, {} pauses of more than {SHORT:?}, {} overstayed",
        args.seconds,
        seen.grants,
        seen.released,
        seen.dropped,
        seen.leaked,
        done.kills,
        done.pauses,
        seen.overstayed,
    );
    println!(
        "most valid at once: {} of {OF}; valid ones that the engine did not have: {}",
        seen.most, seen.refuted
    );
    println!(
        "afterwards: {left} left, all {OF} free and an eighth refused: {} (after {all_free_after:.1?})",
        yes(free)
    );
    println!(
        "{OF} of {LONG:?} leaked by a kill: {forced} ended by force, {twice} twice, all free again: {}",
        yes(by_force)
    );
    within && clean && left == 0 && free && by_force && engine.left().is_empty()
}

const fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

fn spawn(engine: &Engine, history: &Path, what: What) -> Holder {
    File::create(history).unwrap();
    let word = match what {
        What::Short => "short",
        What::Mixed => "mixed",
        What::All => "all",
    };
    let arguments = ["permits-holder", &engine.url(), history.to_str().unwrap(), word];
    Holder { kid: Kid::new(&arguments.map(str::to_owned)), what, stopped_until: None }
}

/// Kills and stops them at random; those that were killed are spawned again.
async fn torment(holders: &mut [Holder], lasts: Duration, spawn: &mut impl FnMut(What) -> Holder) -> Done {
    let (ends, mut done) = (Instant::now() + lasts, Done::default());
    while Instant::now() < ends {
        sleep(Duration::from_millis(50)).await;
        for holder in holders.iter_mut() {
            if holder.stopped_until.is_some_and(|until| until <= Instant::now()) {
                holder.kid.cont();
                holder.stopped_until = None;
            }
        }
        let (dice, which) = (rand::rng().random_range(0..100), rand::rng().random_range(0..PROCESSES));
        let stopped = holders.iter().filter(|holder| holder.stopped_until.is_some()).count();
        let holder = &mut holders[which];
        if dice < 10 && holder.what == What::Short {
            *holder = spawn(What::Short);
            done.kills += 1;
        } else if dice < 30 && holder.stopped_until.is_none() && stopped < STOPPED {
            holder.kid.stop();
            holder.stopped_until = Some(Instant::now() + SHORT + random(100, 1_500));
            done.pauses += 1;
        }
    }
    done
}

fn random(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(from..to))
}

/// Takes them all, is refused one more, and gives them back.
async fn exactly_all_are_free(limit: &Limit) -> bool {
    let mut guards = Vec::new();
    for _ in 0..OF {
        guards.extend(limit.try_acquire(LONG).await.unwrap());
    }
    let refused = matches!(limit.attempt(LONG).await.unwrap(), Outcome::DeniedByLimit(_));
    let all = guards.len() == OF as usize;
    for guard in guards {
        assert!(guard.release().await.unwrap());
    }
    all && refused
}

/// What the histories tell.
#[derive(Default)]
struct Seen {
    grants: u64,
    released: u64,
    dropped: u64,
    /// Their process was killed.
    leaked: u64,
    /// Kept for longer than they were valid.
    overstayed: u64,
    /// Valid by their own count, and unknown to the engine.
    refuted: u64,
    most: usize,
}

fn read(histories: &[PathBuf], gullible: bool) -> Seen {
    let (mut seen, mut spans) = (Seen::default(), Vec::new());
    for history in histories {
        let mut open: HashMap<u64, Span> = HashMap::new();
        for line in std::fs::read_to_string(history).unwrap().lines() {
            let (word, numbers) = line.split_once(' ').unwrap();
            let mut numbers = numbers.split(' ').map(|number| number.parse::<u64>().unwrap());
            let mut next = || numbers.next().unwrap();
            let grant = next();
            match word {
                "granted" => {
                    open.insert(grant, Span { from: next(), until: next() });
                    seen.grants += 1;
                }
                "refuted" => seen.refuted += 1,
                _ => {
                    let (at, remaining, Span { from, until }) =
                        (next(), next(), open.remove(&grant).unwrap());
                    // What is valid now was valid all the time, whatever was known of it at the grant.
                    let until = if remaining > 0 || gullible { at } else { until.min(at) };
                    spans.push(Span { from, until });
                    seen.overstayed += u64::from(until < at);
                    *if word == "released" { &mut seen.released } else { &mut seen.dropped } += 1;
                }
            }
        }
        seen.leaked += open.len() as u64;
        spans.extend(open.into_values());
    }
    seen.most = most_at_once(spans);
    seen
}

/// Holds permits, until it is told to end or meets its end.
pub(crate) async fn hold(args: HolderArgs) -> bool {
    let mut orders = orders();
    let manager = LockManager::connect(&args.url).await.unwrap();
    let limit = manager.limit(NAME, OF).unwrap();
    if args.what == What::All {
        let mut guards = Vec::new();
        for _ in 0..OF {
            guards.push(limit.acquire(LockOptions::new(LONG).wait(LONG)).await.unwrap());
        }
        println!("held");
        orders.recv().await;
        return false;
    }
    let history = File::options().append(true).open(&args.history).unwrap();
    let history =
        Arc::new(History { file: history, grants: AtomicU64::new(0), ended: AtomicBool::new(false) });
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(take_turns(limit.clone(), history.clone(), args.what))).collect();
    assert_eq!(orders.recv().await.unwrap(), "end");
    history.ended.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let clean = manager.shutdown(Duration::from_secs(10)).await.is_clean();
    println!("{}", if clean { "ended" } else { "left something behind" });
    clean
}

struct History {
    file: File,
    grants: AtomicU64,
    ended: AtomicBool,
}

impl History {
    /// One write a line, so that a process that is killed leaves whole lines.
    fn write(&self, line: &str) {
        (&self.file).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

async fn take_turns(limit: Limit, history: Arc<History>, what: What) {
    while !history.ended.load(Ordering::Relaxed) {
        let long = what == What::Mixed && rand::random();
        let options = LockOptions::new(if long { LONG } else { SHORT }).wait(Duration::from_millis(500));
        let options = if rand::rng().random_range(0..4) == 0 { options.renew() } else { options };
        // A process that was stopped finds that its calls took too long: that is no grant, and no harm.
        if let Outcome::Acquired(guard) = limit.attempt(options).await.unwrap() {
            hold_one(guard, &history).await;
        }
    }
}

async fn hold_one(guard: LockGuard, history: &History) {
    let at = now();
    let until = at + nanos(guard.remaining());
    let grant = history.grants.fetch_add(1, Ordering::Relaxed);
    history.write(&format!("granted {grant} {at} {until}"));
    // Most are short; some are longer than a short permit is valid.
    let lasts = if rand::rng().random_range(0..20) == 0 { random(1_000, 1_300) } else { random(0, 40) };
    sleep(lasts).await;
    let at = now();
    let remaining = guard.remaining();
    let end = format!("{grant} {at} {}", nanos(remaining));
    if rand::random() {
        history.write(&format!("dropped {end}"));
        drop(guard);
    } else {
        history.write(&format!("released {end}"));
        let released = guard.release().await;
        // Only where it cannot have been the second try of a release whose first answer came too late.
        let took = Duration::from_nanos(now() - at);
        if matches!(released, Ok(false)) && took < remaining && took < Duration::from_millis(500) {
            history.write(&format!("refuted {grant}"));
        }
    }
}
