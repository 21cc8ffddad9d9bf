//! What one watcher is shown of a sample: the page of the holders that it asked for.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clinch::Health;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::sampler::{Row, Sample};
use crate::holder::kind;

/// How many holders a page has.
pub(super) const PAGE: usize = 50;

/// What a watcher asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wish {
    /// Shows only what contains this, in its key, host, process or label.
    q: String,
    /// Shows only this kind, as [`kind`] calls it; all if there is none.
    kind: Option<String>,
    sort: Sort,
    /// Which page, from 0.
    page: usize,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sort {
    /// Who came last.
    #[default]
    Newest,
    /// Whose lease ends first.
    Ending,
    Key,
}

/// What a watcher is shown.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    /// Milliseconds since 1970, by our wall clock.
    at: u64,
    engine: Engine<'a>,
    /// How many holders there are; at least so many, if not `complete`.
    held: usize,
    complete: bool,
    /// How many of them can be shown and searched.
    kept: usize,
    /// How many wait in this process.
    waiting: usize,
    /// How many of the kept are what was asked for.
    matching: usize,
    page: usize,
    pages: usize,
    rows: Vec<Shown<'a>>,
}

/// How the engine answered.
#[derive(Debug, Default, Serialize)]
struct Engine<'a> {
    /// `None`: it was not asked yet.
    up: Option<bool>,
    name: Option<String>,
    latency_us: Option<f64>,
    degraded: Option<&'a str>,
    problem: Option<&'a str>,
}

/// A holder as the page shows it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: &'a str,
    kind: &'static str,
    key: &'a str,
    host: Option<String>,
    pid: Option<u32>,
    task: Option<u64>,
    label: Option<String>,
    /// Milliseconds since 1970, by the holder's wall clock.
    since: Option<u64>,
    left_ms: Option<u64>,
    full_ms: u64,
    /// As text: it is larger than what JavaScript counts exactly.
    fence: Option<String>,
    waiters: usize,
}

/// What `wish` asks for, of this sample.
pub(super) fn view<'a>(sample: &'a Sample, wish: &Wish) -> View<'a> {
    let now = Instant::now();
    let wanted = wish.q.trim().to_lowercase();
    let mut rows: Vec<&Row> = sample.rows.iter().collect();
    rows.retain(|row| is_of_kind(row, wish.kind.as_deref()) && row.text.contains(&wanted));
    match wish.sort {
        Sort::Newest => rows.sort_by_cached_key(|row| (Reverse(row.holder.since()), row.holder.on())),
        Sort::Ending => rows.sort_by_key(|row| (row.ends.is_none(), row.ends)),
        Sort::Key => rows.sort_by_key(|row| (&row.holder.on().key, row.holder.on().space)),
    }
    let matching = rows.len();
    let pages = matching.div_ceil(PAGE).max(1);
    let page = wish.page.min(pages - 1);
    let shown = rows.into_iter().skip(page * PAGE).take(PAGE).map(|row| shown(row, sample, now)).collect();
    View {
        at: since_1970(sample.at).unwrap_or_default(),
        engine: sample.engine.as_ref().map(engine).unwrap_or_default(),
        held: sample.counted,
        complete: sample.complete,
        kept: sample.rows.len(),
        waiting: sample.waiting.values().sum(),
        matching,
        page,
        pages,
        rows: shown,
    }
}

fn is_of_kind(row: &Row, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| wanted == "all" || wanted == kind(&row.holder))
}

fn shown<'a>(row: &'a Row, sample: &Sample, now: Instant) -> Shown<'a> {
    let (holder, owner) = (&row.holder, row.holder.owner());
    let on = holder.on();
    Shown {
        id: &row.id,
        kind: kind(holder),
        key: on.key.as_str(),
        pid: owner.as_ref().map(|owner| owner.pid),
        task: owner.as_ref().and_then(|owner| owner.task),
        since: holder.since().and_then(since_1970),
        label: owner.as_ref().and_then(|owner| owner.label.clone()),
        host: owner.map(|owner| owner.host),
        left_ms: row.ends.map(|ends| millis(ends.saturating_duration_since(now))),
        full_ms: millis(row.full),
        fence: holder.fence().map(|fence| fence.get().to_string()),
        waiters: sample.waiting.get(on).copied().unwrap_or(0),
    }
}

fn engine(health: &Health) -> Engine<'_> {
    let name = health.server.as_deref().unwrap_or(health.engine);
    Engine {
        up: Some(health.up),
        name: Some(
            health.version.as_ref().map_or_else(|| name.to_owned(), |version| format!("{name} {version}")),
        ),
        latency_us: health.latency.map(|took| took.as_secs_f64() * 1e6),
        degraded: health.degraded.as_deref(),
        problem: health.error.as_deref(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn since_1970(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(millis)
}
