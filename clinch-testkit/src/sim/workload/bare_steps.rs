//! What the tasks of a bare client do: every kind of claim, each on keys of its own and some on the managers' keys.

use std::num::NonZeroU32;
use std::time::Duration;

use clinch::key::Key;
use clinch::lease::{Claim, Fence, Token};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::bare::{Bare, Guard, Want};
use super::ms;

/// Short enough to run out, and long enough to matter when another's does.
const PERMIT_TTLS_S: [u64; 2] = [1, 60];
const TTLS_MS: [u64; 3] = [800, 2000, 5000];
/// A floor from an earlier engine whose clock was an hour ahead. Only where this engine forgets nothing: it must then be
/// told by every client.
const HIGH_FLOOR: u64 = 3_600_000_000 * Fence::STEP;

/// One task of a bare client.
pub(super) struct BareWorker {
    bare: Bare,
    rng: StdRng,
    keys: usize,
    quiet: bool,
    focus: Focus,
}

/// What this world wants.
#[derive(Debug, Clone, Copy)]
pub(super) enum Focus {
    /// This most, so that it is wanted by several at a time.
    Most(u32),
    /// Locks on the managers' keys, and nothing else.
    Plain,
}

impl BareWorker {
    pub(super) const fn new(bare: Bare, rng: StdRng, keys: usize, quiet: bool, focus: Focus) -> Self {
        Self { bare, rng, keys, quiet, focus }
    }

    pub(super) async fn work(mut self, steps: usize) {
        for _ in 0..steps {
            sleep(ms(&mut self.rng, 0, 400)).await;
            Box::pin(self.step()).await;
        }
    }

    fn token(&mut self) -> Token {
        Token::from_text(format!("{:032x}@bare:1:", self.rng.random::<u128>()))
    }

    fn key(&mut self, name: &str, of: usize) -> Option<Key> {
        Key::new(format!("{name}{}", self.rng.random_range(0..of))).ok()
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_millis(TTLS_MS[self.rng.random_range(0..TTLS_MS.len())])
    }

    fn permit(&mut self) -> Option<Claim> {
        let ttl = Duration::from_secs(PERMIT_TTLS_S[self.rng.random_range(0..PERMIT_TTLS_S.len())]);
        let of = NonZeroU32::new(self.rng.random_range(1..=3))?;
        Some(Claim::permit(self.key("p", 2)?, of, ttl))
    }

    fn fenced(&mut self, name: &str) -> Option<Claim> {
        let (key, ttl) = (self.key(name, 1)?, self.ttl());
        let claim = Claim::exclusive(key, ttl);
        let floor = self.bare.floor(&claim.on().to_string());
        let high = self.quiet && self.rng.random_range(0..4) == 0;
        Some(claim.fenced(if high { floor.max(Fence::new(HIGH_FLOOR)) } else { floor }))
    }

    fn want(&mut self) -> Option<Want> {
        let any = self.rng.random_range(0..100);
        let kind = match self.focus {
            Focus::Plain => 99,
            Focus::Most(focus) => {
                if self.rng.random() {
                    focus
                } else {
                    any
                }
            }
        };
        let ttl = self.ttl();
        let claims = match kind {
            0..25 => vec![self.permit()?],
            25..45 if self.rng.random() => vec![Claim::shared(self.key("s", 1)?, ttl)],
            25..45 => vec![Claim::exclusive(self.key("s", 1)?, ttl)],
            45..60 => self.several(ttl)?,
            60..75 => vec![self.fenced("f")?],
            75..90 => vec![if self.rng.random() {
                self.fenced("q")?
            } else {
                Claim::exclusive(self.key("q", 1)?, ttl)
            }],
            90..95 => vec![Claim::shared(self.key("k", self.keys)?, ttl)],
            _ => vec![Claim::exclusive(self.key("k", self.keys)?, ttl)],
        };
        let patient = self.rng.random_range(0..3) > 0;
        let wait = if patient { ms(&mut self.rng, 300, 4000) } else { Duration::ZERO };
        Some(Want { claims, wait, retry: ms(&mut self.rng, 50, 400), fair: (75..90).contains(&kind) })
    }

    /// Two or three locks, and now and then a permit with them.
    fn several(&mut self, ttl: Duration) -> Option<Vec<Claim>> {
        let first = self.rng.random_range(0..3);
        let mut claims = Vec::new();
        for i in 0..self.rng.random_range(2..=3) {
            let key = Key::new(format!("m{}", (first + i) % 3)).ok()?;
            claims.push(match self.rng.random_range(0..3) {
                0 => Claim::shared(key, ttl),
                _ => Claim::exclusive(key, ttl),
            });
        }
        if self.rng.random_range(0..3) == 0 {
            claims.push(self.permit()?);
        }
        Some(claims)
    }

    async fn step(&mut self) {
        let Some(want) = self.want() else { return };
        let token = self.token();
        if self.rng.random_range(0..8) == 0 {
            // Dropped in the middle of whatever it does.
            let patience = ms(&mut self.rng, 0, 600);
            drop(timeout(patience, self.bare.take(&want, token)).await);
            return;
        }
        let Some(guard) = self.bare.take(&want, token).await else { return };
        let shortest = want.claims.iter().map(Claim::ttl).min().unwrap_or_default();
        let mut guard = self.hold(guard, shortest).await;
        while guard.can_pass() && self.rng.random_range(0..3) == 0 {
            guard = self.hold(guard.pass(), shortest).await;
        }
        let over = match self.rng.random_range(0..10) {
            0 => guard.die(),
            1..3 => guard.give_up(),
            _ => guard.release().await,
        };
        if self.rng.random() {
            sleep(ms(&mut self.rng, 0, 1500)).await;
            over.write();
        }
    }

    /// Holds it: mostly for a short time, sometimes past the TTL.
    async fn hold(&mut self, mut guard: Guard, ttl: Duration) -> Guard {
        let renew = self.rng.random_range(0..4) == 0;
        let most = (ttl + ttl / 4).min(Duration::from_secs(6)).as_millis().try_into().unwrap_or(u64::MAX);
        let time = match self.rng.random_range(0..3) {
            0 => ms(&mut self.rng, 0, 50),
            1 => ms(&mut self.rng, 0, most / 4),
            _ => ms(&mut self.rng, 0, most),
        };
        guard.keep(time, renew).await;
        guard
    }
}
