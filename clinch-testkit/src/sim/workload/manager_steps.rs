//! What the tasks of a process with a manager do.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::manager::{Ask, Kind, Process, Renew};
use super::ms;

/// The TTLs that are asked for: shorter than one call's limit, and longer.
const TTLS_MS: [u64; 4] = [300, 800, 2500, 6000];

/// One task of a process.
pub(super) struct Worker {
    pub(super) process: Process,
    pub(super) rng: StdRng,
    pub(super) keys: usize,
    /// The engine grants exclusive claims and nothing else.
    pub(super) plain: bool,
}

impl Worker {
    pub(super) async fn work(mut self, steps: usize) {
        for _ in 0..steps {
            sleep(ms(&mut self.rng, 0, 400)).await;
            Box::pin(self.step()).await;
        }
    }

    fn ask(&mut self) -> Ask {
        let key = format!("k{}", self.rng.random_range(0..self.keys));
        let ttl = Duration::from_millis(TTLS_MS[self.rng.random_range(0..TTLS_MS.len())]);
        let retry = ms(&mut self.rng, 20, 200);
        let proceed = self.rng.random_range(0..8) == 0;
        Ask { key, ttl, wait: Duration::ZERO, retry, renew: None, kind: Kind::Plain, proceed }
    }

    /// Mostly plain locks, which all others are made of.
    fn kind(&mut self) -> Kind {
        match self.rng.random_range(0..20) {
            _ if self.plain => Kind::Plain,
            0..3 => Kind::Fenced,
            3..5 => Kind::Shared,
            5 => Kind::Fair,
            6..9 => Kind::Permit(self.rng.random_range(1..=3)),
            9 => Kind::Limited(self.rng.random_range(1..=2)),
            10 => Kind::Several(vec!["extra".to_owned()]),
            _ => Kind::Plain,
        }
    }

    fn patient(&mut self) -> Ask {
        let ask = self.ask();
        Ask { wait: ms(&mut self.rng, 50, 3000), ..ask }
    }

    fn any(&mut self) -> Ask {
        let mut ask = if self.rng.random() { self.ask() } else { self.patient() };
        ask.kind = self.kind();
        let every = ask.ttl / 3;
        ask.renew = match self.rng.random_range(0..6) {
            0 => Some(Renew { every, up_to: None }),
            1 => Some(Renew { every, up_to: Some(every * 2) }),
            _ => None,
        };
        if matches!(ask.kind, Kind::Limited(_)) {
            // Half of the shorter of two TTLs is the most; keep clear of it.
            ask.renew = ask.renew.filter(|renew| renew.every < Duration::from_secs(1));
        }
        ask
    }

    /// How long to hold: mostly short, sometimes past the TTL.
    fn hold_time(&mut self, ask: &Ask) -> Duration {
        let most = if ask.renew.is_some() { ask.ttl * 2 } else { ask.ttl + ask.ttl / 4 };
        let most = most.as_millis().try_into().unwrap_or(u64::MAX);
        match self.rng.random_range(0..3) {
            // Until it has run out for sure.
            _ if ask.renew.is_some_and(|renew| renew.up_to.is_some()) => ask.ttl * 2,
            0 => ms(&mut self.rng, 0, 50),
            1 => ms(&mut self.rng, 0, most / 4),
            _ => ms(&mut self.rng, 0, most),
        }
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..35 => self.lock_and_give_back().await,
            35..50 => {
                let ask = self.any();
                let time = self.hold_time(&ask);
                if !matches!(ask.kind, Kind::Several(_)) {
                    Box::pin(self.process.run_under(&ask, time)).await;
                }
            }
            50..60 => {
                let ask = self.any();
                let (time, patience) = (self.hold_time(&ask), ms(&mut self.rng, 0, 500));
                // Dropped in the middle of whatever it does.
                if !matches!(ask.kind, Kind::Several(_)) {
                    let _ = timeout(patience, Box::pin(self.process.run_under(&ask, time))).await;
                }
            }
            60..72 => {
                let ask = self.any();
                let patience = ms(&mut self.rng, 0, 60);
                let _ = timeout(patience, Box::pin(self.process.acquire(&ask))).await;
            }
            72..82 => self.drop_and_try().await,
            82..92 => Box::pin(self.try_together()).await,
            _ => {
                let ask = self.ask();
                let by_force = self.rng.random();
                self.process.look(&ask.key, by_force).await;
            }
        }
    }

    async fn lock_and_give_back(&mut self) {
        let ask = self.any();
        let time = self.hold_time(&ask);
        let Some(mut holding) = self.process.acquire(&ask).await else { return };
        holding.belief.keep(time).await;
        match self.rng.random_range(0..4) {
            0 => drop(holding),
            1 => {
                // A release whose future is dropped goes on in the background.
                let patience = ms(&mut self.rng, 0, 20);
                let _ = timeout(patience, self.process.release(&ask.key, holding)).await;
            }
            _ => self.process.release(&ask.key, holding).await,
        }
    }

    /// Gives a lock back by dropping it, and wants it again at once.
    async fn drop_and_try(&mut self) {
        let ask = self.ask();
        let time = ms(&mut self.rng, 0, 100);
        let Some(mut holding) = self.process.acquire(&ask).await else { return };
        holding.belief.keep(time).await;
        drop(holding);
        if let Some(again) = self.process.acquire(&ask).await {
            self.process.release(&ask.key, again).await;
        }
    }

    /// Several tries of one process at once: they share calls.
    async fn try_together(&mut self) {
        let ask = self.ask();
        let other = Ask { ttl: Duration::from_millis(1500), ..ask.clone() };
        let process = &self.process;
        let some = async |ask: &Ask| {
            if let Some(holding) = process.acquire(ask).await {
                sleep(Duration::from_millis(5)).await;
                drop(holding);
            }
        };
        tokio::join!(some(&ask), some(&other), some(&ask), some(&other));
    }
}
