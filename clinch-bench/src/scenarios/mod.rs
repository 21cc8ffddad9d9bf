//! The scenarios, each with those who take part in it and what is to be reached.

mod alone;
mod contended;
mod growth;
mod handover;
mod http;
mod limit;
mod memory;
mod storm;

use std::time::Duration;

use self::http::Allowed;
use crate::bench::Bench;
use crate::bounds::{LocalQueue, Queue, WakeUp};
use crate::peers::{self, Contender, Kind, Way};
use crate::race::{Effort, Race, Run};
use crate::results::{Goal, Results, Row};

pub(crate) use self::growth::memory_of;

/// In the order in which they run: S6 needs what S2 and S4 allow, S9 what S1 reached.
pub(crate) const ALL: [&str; 10] = ["S1", "S2", "S3", "S3f", "S4", "S5", "S6", "S7", "S8", "S9"];

/// Runs one scenario and adds what came out.
pub(crate) async fn run(id: &str, bench: &Bench, results: &mut Results) {
    match id {
        "S1" => s1(bench, results).await,
        "S2" => s2(bench, results).await,
        "S3" => s3(bench, results).await,
        "S3f" => s3f(bench, results).await,
        "S4" => s4(bench, results).await,
        "S5" => s5(bench, results).await,
        "S6" => s6(bench, results).await,
        "S7" => results.add(memory::run(bench).await),
        "S8" => results.add(growth::run(bench).await),
        "S9" => s9(bench, results).await,
        _ => results.notes.push(format!("there is no scenario {id}")),
    }
}

impl Results {
    fn add(&mut self, (rows, goals): (Vec<Row>, Vec<Goal>)) {
        self.rows.extend(rows);
        self.goals.extend(goals);
    }
}

/// The reference and Clinch first, then everybody else.
fn with_peers(bench: &Bench, first: Vec<Contender>) -> Vec<Contender> {
    first.into_iter().chain(bench.peers.then(peers::all).into_iter().flatten()).collect()
}

fn bound<F, L>(name: &'static str, connect: fn(String) -> F) -> Contender
where
    F: Future<Output = L> + Send + 'static,
    L: peers::Locks + 'static,
{
    Contender::new(name, Kind::Bound, connect)
}

const fn millis(length: u64) -> Duration {
    Duration::from_millis(length)
}

/// A race by time alone.
fn timed(
    id: &'static str,
    users: usize,
    contenders: Vec<Contender>,
    run: Run,
    length: [Duration; 2],
) -> Race {
    let [length, peer_length] = length;
    let effort = |length| Effort { length, count: u64::MAX };
    Race {
        id,
        unit: "pairs/s",
        users,
        contenders,
        run,
        one_cpu: false,
        turns: 1,
        peer_turns: 1,
        effort: effort(length),
        peer_effort: effort(peer_length),
        counted: effort(millis(400)),
    }
}

/// One task takes and gives back: 5,000 times in a round, or 20,000 times.
fn one_at_a_time(bench: &Bench, id: &'static str, contenders: Vec<Contender>) -> Race {
    let (turns, count) = if bench.quick { (10, 500) } else { (20, 1_000) };
    Race {
        one_cpu: true,
        turns,
        peer_turns: turns,
        effort: Effort { length: millis(10_000), count },
        counted: Effort { length: millis(2_000), count: 1_000 },
        ..timed(id, 1, contenders, alone::one_task, [millis(0); 2])
    }
}

fn find<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|row| row.name == name).expect("the scenario has this contender")
}

fn ratio(rows: &[Row], name: &str, to: &str) -> f64 {
    find(rows, name).rate.median / find(rows, to).rate.median
}

async fn s1(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        peers::reference(),
        peers::clinch("Clinch", Way::Plain),
        peers::clinch("Clinch, fenced", Way::Fenced),
    ];
    let race = Race {
        peer_effort: Effort { length: millis(if bench.quick { 30 } else { 50 }), count: 1_000 },
        ..one_at_a_time(bench, "S1", with_peers(bench, contenders))
    };
    let rows = race.run(bench).await;
    results.goals.extend([
        Goal::at_least("S1", "pairs, of the reference", ratio(&rows, "Clinch", "reference"), 0.95),
        Goal::at_least("S1", "fenced, of the reference", ratio(&rows, "Clinch, fenced", "reference"), 0.75),
        // What the background asks for now and then is not a command of a pair.
        Goal::at_most("S1", "commands a pair", find(&rows, "Clinch").commands.unwrap_or(f64::NAN), 2.01),
    ]);
    results.rows.extend(rows);
}

async fn s2(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        peers::reference(),
        peers::clinch("Clinch", Way::Plain),
        peers::clinch("Clinch, fenced", Way::Fenced),
    ];
    let lengths = if bench.quick { [millis(150), millis(75)] } else { [millis(500), millis(250)] };
    let race = timed("S2", 1, with_peers(bench, contenders), alone::own_keys, lengths);
    let rows = Race { turns: 4, peer_turns: 4, ..race }.run(bench).await;
    let data = find(&rows, "Clinch").connections.unwrap_or_default();
    results.goals.extend([
        Goal::at_least("S2", "pairs, of the reference", ratio(&rows, "Clinch", "reference"), 0.95),
        Goal::at_least("S2", "fenced, of the reference", ratio(&rows, "Clinch, fenced", "reference"), 0.5),
        // The other one is for pushes.
        Goal::at_most("S2", "connections (one for data, one for pushes)", data as f64, 2.0),
    ]);
    results.rows.extend(rows);
    match limit::run(bench).await {
        Some(mut row) => {
            let reference = results.row("S2", "reference").map(|row| row.rate.median);
            row.ratio = reference.map(|reference| row.rate.median / reference);
            results.rows.push(row);
        }
        None => results
            .notes
            .push("S2: no redis-benchmark here, so the server's own limit is not known".to_owned()),
    }
}

async fn s3(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        peers::reference(),
        peers::clinch("Clinch", Way::Plain),
        bound("bound: local queue, one lease", LocalQueue::connect),
    ];
    let lengths = if bench.quick { [millis(1_200), millis(800)] } else { [millis(5_000), millis(2_000)] };
    let rows = timed("S3", 4, with_peers(bench, contenders), contended::one_key, lengths).run(bench).await;
    let ours = find(&rows, "Clinch");
    results.goals.extend([
        Goal::at_least("S3", "acquisitions, of the reference", ratio(&rows, "Clinch", "reference"), 20.0),
        Goal::at_least("S3", "hand-overs/s between managers", ours.figure("hand-overs/s"), 2_000.0),
        Goal::at_most("S3", "their p99, ms", ours.figure("hand-over p99 ms"), 5.0),
        Goal::at_most("S3", "longest wait, ms", ours.figure("wait longest ms"), 20.0),
        Goal::at_least("S3", "slowest task, of the mean", ours.figure("slowest/mean"), 0.8),
        Goal::at_most("S3", "commands each", ours.commands.unwrap_or(f64::NAN), 0.1),
        Goal::at_most("S3", "overlaps", ours.figure("overlaps"), 0.0),
    ]);
    results.rows.extend(rows);
}

async fn s3f(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        bound("bound: bare queue, direct hand-over", Queue::connect),
        peers::clinch("Clinch, fair", Way::Fair),
        peers::reference(),
    ];
    let length = if bench.quick { millis(1_200) } else { millis(4_000) };
    let rows = timed("S3f", 4, contenders, contended::one_key, [length; 2]).run(bench).await;
    // Each acquisition is a hand-over by the engine's queue, also between two tasks of one manager.
    let hand_overs = ratio(&rows, "Clinch, fair", "bound: bare queue, direct hand-over");
    results.goals.push(Goal::at_least("S3f", "hand-overs, of the bare queue", hand_overs, 0.8));
    results.rows.extend(rows);
}

async fn s4(bench: &Bench, results: &mut Results) {
    let count = if bench.quick { 15 } else { 75 };
    let runs: [(&'static str, usize, Run); 2] =
        [("S4a", 1, storm::held_here), ("S4b", 2, storm::held_elsewhere)];
    for (id, users, run) in runs {
        let contenders = with_peers(bench, vec![peers::reference(), peers::clinch("Clinch", Way::Plain)]);
        let race = Race {
            unit: "rejections/s",
            turns: 4,
            peer_turns: 4,
            effort: Effort { length: millis(1_250), count },
            peer_effort: Effort { length: millis(if bench.quick { 75 } else { 200 }), count },
            counted: Effort { length: millis(400), count: 20 },
            ..timed(id, users, contenders, run, [millis(0); 2])
        };
        let rows = race.run(bench).await;
        let commands = find(&rows, "Clinch").commands.unwrap_or(f64::NAN) * 1_000.0;
        let ratio = ratio(&rows, "Clinch", "reference");
        // Taking and giving back what is stormed are commands too, four of them with the storm on a free key.
        results.goals.extend(match id {
            "S4a" => [
                Goal::at_least(id, "rejections, of the reference", ratio, 10.0),
                Goal::at_most(id, "commands a storm, with taking and giving back", commands, 2.2),
            ],
            _ => [
                Goal::at_least(id, "rejections, of the reference", ratio, 3.0),
                Goal::at_most(id, "commands a storm, with taking and giving back", commands, 5.2),
            ],
        });
        results.rows.extend(rows);
    }
}

async fn s5(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        peers::reference(),
        peers::clinch("Clinch", Way::Plain),
        bound("bound: bare wake-up", WakeUp::connect),
    ];
    let race = Race {
        unit: "hand-overs/s, mostly idle",
        // One hand-over a turn: each comes after somebody else's, and finds the machine as everybody's does. As many as it takes for
        // the slowest hundredth to be more than two or three of them.
        turns: if bench.quick { 200 } else { 400 },
        peer_turns: 4,
        effort: Effort { length: millis(5_000), count: 1 },
        peer_effort: Effort { length: millis(if bench.quick { 200 } else { 750 }), count: 40 },
        counted: Effort { length: millis(1_000), count: 20 },
        ..timed("S5", 2, with_peers(bench, contenders), handover::between_two, [millis(0); 2])
    };
    let rows = race.run(bench).await;
    let (ours, bound) = (find(&rows, "Clinch"), find(&rows, "bound: bare wake-up"));
    for figure in ["hand-over p50 ms", "hand-over p99 ms"] {
        let ratio = ours.figure(figure) / bound.figure(figure);
        results.goals.push(Goal::at_most("S5", format!("{figure}, of the bare wake-up"), ratio, 1.15));
    }
    results.rows.extend(rows);
}

async fn s6(bench: &Bench, results: &mut Results) {
    let rate = |id, name| results.row(id, name).map(|row| row.rate.median);
    let allowed = match (rate("S2", "reference"), rate("S4b", "reference")) {
        (Some(pairs), Some(rejections)) => Some(Allowed { pairs, rejections }),
        _ => {
            results.notes.push("S6: without S2 and S4 it is not known what they allow".to_owned());
            None
        }
    };
    let (rows, goals, notes) = http::run(bench, allowed).await;
    results.add((rows, goals));
    results.notes.extend(notes);
}

async fn s9(bench: &Bench, results: &mut Results) {
    let contenders = vec![
        peers::reference(),
        peers::clinch("Clinch", Way::Plain),
        peers::clinch("Clinch, permits", Way::Permit(10_000)),
    ];
    let rows = one_at_a_time(bench, "S9", contenders).run(bench).await;
    let permits = ratio(&rows, "Clinch, permits", "reference");
    results.goals.push(Goal::at_least("S9", "permits, of S1's reference", permits, 0.6));
    results.rows.extend(rows);
}
