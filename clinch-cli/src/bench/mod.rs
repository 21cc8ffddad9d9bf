//! `clinch bench`: quick figures against the configured engine.
//!
//! They tell an order of magnitude, from this machine, with one process: enough to see whether an engine is near and well.
//! All keys are of this run alone, are given back, and end by themselves soon after a bench that was killed.

mod figures;
mod histogram;
mod progress;

use std::time::Duration;

use clinch::LockManager;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use self::figures::{Keys, PERMITS, Work};
use self::histogram::Histogram;
use self::progress::Progress;
use crate::engine::Engine;
use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::listing::holders_of;
use crate::output::{Cell, Output, Table, span, write, write_json};
use crate::runtime::on_one_thread;

/// How many figures there are.
const FIGURES: u32 = 5;

/// How long releases are waited for at the end.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    /// For each figure.
    pub(crate) time: Duration,
    pub(crate) concurrency: u32,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    store: String,
    seconds: u64,
    concurrency: u32,
    figures: &'a [Figure],
    /// The most permits that were held at a time, and how many there are.
    permits_held: u32,
    permits: u32,
    /// Leases that the bench left behind. They end by themselves.
    left: usize,
}

#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    count: u64,
    per_second: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    longest_us: u64,
    #[serde(skip)]
    times: Histogram,
}

impl Figure {
    fn new(name: &'static str, times: Histogram, elapsed: Duration) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            name,
            count: times.count(),
            per_second: times.count() * 1000 / ms,
            p50_us: times.percentile(50).map(micros),
            p99_us: times.percentile(99).map(micros),
            longest_us: micros(times.longest()),
            times,
        }
    }
}

impl Bench {
    pub(crate) fn carry_out(&self) -> Exit {
        on_one_thread(async { exit_of(self.bench().await) })
    }

    async fn bench(&self) -> Result<Exit, Failure> {
        let first = self.engine.connect_anyway().await?;
        // As another process would have it; but an engine inside the process is another one for each manager.
        let is_memory = self.engine.config.store.scheme() == "memory";
        let second = if is_memory { first.clone() } else { self.engine.connect_again().await? };
        let keys = Keys::new();
        let ended = tokio::select! {
            biased;
            exit = interrupted() => Err(Failure::quiet(exit?)),
            measured = self.measure([&first, &second], &keys) => measured,
        };
        // Whatever happened, nothing stays behind.
        for locks in [&first, &second] {
            locks.shutdown(LAST_RELEASES).await;
        }
        let (figures, held) = ended?;
        let left = if is_memory { 0 } else { self.left(&keys).await? };
        self.tell(&figures, held, left)?;
        Ok(Exit::OK)
    }

    async fn measure(&self, managers: [&LockManager; 2], keys: &Keys) -> Result<(Vec<Figure>, u32), Failure> {
        let work = Work::new(managers, keys, self.concurrency, self.engine.config.max_ttl);
        let progress = Progress::new(self.time * FIGURES);
        let mut figures = Vec::new();
        macro_rules! figure {
            ($name:expr, $measured:ident) => {{
                let began = Instant::now();
                let times = tokio::select! {
                    biased;
                    times = work.$measured(began + self.time) => times?,
                    never = progress.draw($name) => match never {},
                };
                figures.push(Figure::new($name, times, began.elapsed()));
            }};
        }
        figure!("round trip", round_trips);
        figure!("lock and release", cycles);
        figure!("lock and release, many at once", many_cycles);
        figure!("hand-over between two", hand_overs);
        figure!("permit", permits);
        Ok((figures, work.most_permits()))
    }

    /// How many leases are left.
    async fn left(&self, keys: &Keys) -> Result<usize, Failure> {
        let locks = self.engine.connect_again().await?;
        let mut left = 0;
        for key in keys.all(self.concurrency)? {
            left += holders_of(&locks, &key).await?.len();
        }
        Ok(left)
    }

    fn tell(&self, figures: &[Figure], held: u32, left: usize) -> Result<(), Failure> {
        let (store, concurrency) = (self.engine.shown(), self.concurrency);
        if self.output.json {
            let seconds = self.time.as_secs();
            let permits = PERMITS.get();
            return write_json(&Report {
                store,
                seconds,
                concurrency,
                figures,
                permits_held: held,
                permits,
                left,
            });
        }
        let mut table = Table::new(&["WHAT", "PER SECOND", "P50", "P99", "LONGEST"]);
        for figure in figures {
            let time = |percent| figure.times.percentile(percent).map_or_else(|| "-".to_owned(), span);
            table.row(vec![
                Cell::new(figure.name),
                Cell::new(figure.per_second.to_string()),
                Cell::new(time(50)),
                Cell::new(time(99)),
                Cell::new(span(figure.times.longest())),
            ]);
        }
        let many = format!(
            "many at once: {concurrency} tasks, a key each; permit: {held} of {PERMITS} held at a time"
        );
        let left = match left {
            0 => String::new(),
            left => format!("{left} leases could not be given back, and end by themselves within 10s\n"),
        };
        write(&format!("{store}\n\n{}\n{many}\n{left}", table.render(self.output)))
    }
}

/// Waits for a signal that ends the bench.
async fn interrupted() -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::new(Exit::OS, format!("cannot catch signals: {error}"));
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    Ok(tokio::select! {
        _ = int.recv() => Exit::signalled(rustix::process::Signal::INT),
        _ = term.recv() => Exit::signalled(rustix::process::Signal::TERM),
    })
}
