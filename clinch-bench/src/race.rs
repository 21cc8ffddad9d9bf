//! A race: contenders that do the same, in turns, several rounds, and then once more through the wire's counter.

use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::measure::{Cpu, Sample, Spread, percentile};
use crate::one_cpu::OneCpu;
use crate::peers::{Contender, Kind, Locks, Pending};
use crate::results::Row;
use crate::wire::Wire;

/// No round of anybody takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// How much is done in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// For how long, where time is what counts, and at the most where it is not.
    pub(crate) length: Duration,
    /// How often, where that is what counts.
    pub(crate) count: u64,
}

/// What the users of one contender do in a round.
pub(crate) type Run = fn(Vec<Arc<dyn Locks>>, Effort) -> Pending<'static, Sample>;

/// One scenario of locks.
pub(crate) struct Race {
    pub(crate) id: &'static str,
    pub(crate) unit: &'static str,
    /// Users of each contender, with connections of their own.
    pub(crate) users: usize,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) run: Run,
    /// Whether client and server have one CPU between them, see [`OneCpu`].
    pub(crate) one_cpu: bool,
    /// Into how many turns a round is divided: a machine is now fast, now slow, and short turns let that strike everybody alike.
    pub(crate) turns: usize,
    /// Turns of a peer in each of its rounds.
    pub(crate) peer_turns: usize,
    /// One turn of the reference, of Clinch and of bounds.
    pub(crate) effort: Effort,
    /// One turn of a peer.
    pub(crate) peer_effort: Effort,
    /// The round in which commands are counted.
    pub(crate) counted: Effort,
}

struct Runner {
    contender: Contender,
    users: Vec<Arc<dyn Locks>>,
    samples: Vec<(Sample, Cpu)>,
    /// The round that did not end.
    stuck: bool,
}

impl Race {
    /// Runs all of it and gives a row for each contender, in order.
    pub(crate) async fn run(self, bench: &Bench) -> Vec<Row> {
        let mut runners = Vec::new();
        for contender in self.contenders {
            let url = bench.server(&contender).url();
            let users = contender.connect(&url, self.users).await;
            runners.push(Runner { contender, users, samples: Vec::new(), stuck: false });
        }
        let mut order: Vec<_> = (0..runners.len()).collect();
        for round in 0..bench.rounds() * self.turns {
            // Who comes after whom matters too, and most of all who comes after himself: he finds everything as he left it. By
            // chance all do so equally often; with turns in reversed order the first and the last did in every other turn, and
            // those between them never.
            order.shuffle(&mut rand::rng());
            for &place in &order {
                let runner = &mut runners[place];
                let _held = self.one_cpu.then(|| OneCpu::holds(bench.server(&runner.contender)));
                let peer = runner.contender.kind == Kind::Peer;
                if peer && round >= bench.peer_rounds() * self.peer_turns {
                    continue;
                }
                bench.progress.now(self.id, runner.contender.name, round);
                let effort = if peer { self.peer_effort } else { self.effort };
                runner.round(self.run, effort, bench).await;
            }
        }
        let mut rows = Vec::new();
        for runner in runners {
            bench.progress.now(self.id, "commands on the wire", 0);
            rows.push(runner.row(self.id, self.unit, self.run, self.counted, bench).await);
        }
        let reference = rows.iter().find(|row| row.kind == Kind::Reference).map(|row| row.rate.median);
        for row in &mut rows {
            row.ratio = reference.map(|reference| row.rate.median / reference);
        }
        rows
    }
}

impl Runner {
    async fn round(&mut self, run: Run, effort: Effort, bench: &Bench) {
        if self.stuck {
            return;
        }
        let server = bench.server(&self.contender);
        server.command(&["FLUSHALL"]);
        let before = Cpu::now(server);
        match timeout(LIMIT, run(self.users.clone(), effort)).await {
            Ok(sample) => self.samples.push((sample, Cpu::now(server).since(before))),
            Err(_) => self.stuck = true,
        }
    }

    async fn row(
        mut self,
        id: &'static str,
        unit: &'static str,
        run: Run,
        counted: Effort,
        bench: &Bench,
    ) -> Row {
        let (commands, connections) = self.count(run, counted, bench).await;
        let contender = &self.contender;
        let mut row = Row::new(id, contender.name, contender.kind, unit);
        row.rate = Spread::of(self.samples.iter().map(|(sample, _)| sample.rate()));
        row.commands = commands;
        row.connections = connections;
        let per_operation = |cpu: fn(&Cpu) -> f64| {
            let each =
                self.samples.iter().map(|(sample, used)| cpu(used) * 1e6 / sample.operations.max(1) as f64);
            Some(Spread::of(each).median)
        };
        row.server_us = per_operation(|cpu| cpu.server);
        row.client_us = per_operation(|cpu| cpu.client);
        for name in self.samples.iter().flat_map(|(sample, _)| sample.figures.keys()) {
            let values = self.samples.iter().filter_map(|(sample, _)| sample.figures.get(name).copied());
            row.figures.insert((*name).to_owned(), Spread::of(values).median);
        }
        for name in self.samples.first().map(|(sample, _)| sample.times.keys()).into_iter().flatten() {
            let all = self.samples.iter().filter_map(|(sample, _)| sample.times.get(name));
            let mut all: Vec<_> = all.flatten().copied().collect();
            for (percent, called) in [(50.0, "p50"), (99.0, "p99"), (100.0, "longest")] {
                row.figures.insert(format!("{name} {called} ms"), percentile(&mut all, percent));
            }
        }
        row.wrong = self.samples.iter().flat_map(|(sample, _)| sample.wrong.iter().cloned()).collect();
        if self.stuck {
            row.notes.push(format!("{}: a round did not end within {LIMIT:?}", contender.name));
        }
        row.notes.extend(contender.note.map(str::to_owned));
        row
    }

    /// Commands an operation and connections in use, by one more round through the counter.
    async fn count(&mut self, run: Run, effort: Effort, bench: &Bench) -> (Option<f64>, Option<u64>) {
        if self.stuck {
            return (None, None);
        }
        let server = bench.server(&self.contender);
        server.command(&["FLUSHALL"]);
        let wire = Wire::to(server.addr()).await;
        let users = self.contender.connect(&wire.url(), self.users.len()).await;
        // Whatever is asked once, on a new connection or of a new script, is asked now.
        for user in &users {
            if let Some(taken) = user.take("warm", Duration::ZERO).await {
                taken.give_back().await;
            }
        }
        let before = wire.commands();
        let Ok(sample) = timeout(LIMIT, run(users, effort)).await else { return (None, None) };
        let commands = (wire.commands() - before) as f64 / sample.operations.max(1) as f64;
        (Some(commands), Some(wire.connections()))
    }
}
