//! Claims: wishes for one place on a key.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::Fence;
use crate::key::Key;

/// The kinds of things a key can name. The same text in two spaces names two things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Space {
    /// Locks: `lock`.
    Lock,
    /// Duplicate guards: `dup`.
    Duplicate,
    /// Concurrency limits: `sem`.
    Permit,
    /// Requests that are carried out once and answered again from their stored result: `idem`.
    Idempotency,
}

impl Space {
    /// The word that stands for the space in engine keys.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Duplicate => "dup",
            Self::Permit => "sem",
            Self::Idempotency => "idem",
        }
    }

    /// Whether anybody waits for keys of this space. Whoever finds a duplicate window taken is refused at once, so nobody has to
    /// be woken when it is given back.
    pub const fn is_waited_for(self) -> bool {
        !matches!(self, Self::Duplicate)
    }

    /// Whether a lease in this space can be finished with a [`Record`](super::Record).
    pub const fn keeps_records(self) -> bool {
        matches!(self, Self::Duplicate | Self::Idempotency)
    }
}

/// A key in its space: what exactly a claim is on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    /// The space.
    pub space: Space,
    /// The key.
    pub key: Key,
}

impl ClaimKey {
    /// A key in the space of locks.
    pub const fn lock(key: Key) -> Self {
        Self { space: Space::Lock, key }
    }

    /// Its hash in this process.
    pub(crate) const fn hashed(&self) -> u64 {
        self.key.hashed() ^ (self.space as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl Hash for ClaimKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hashed());
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space.word(), self.key)
    }
}

/// What kind of place a claim wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The only place: nobody else holds the key in any way.
    Exclusive,
    /// One of any number of shared places; nobody holds the key exclusively meanwhile.
    Shared,
    /// One of `of` permits. The number counts for this claim's own grant: it is granted if fewer than `of` are held.
    Permit {
        /// How many may be held at a time.
        of: NonZeroU32,
    },
}

/// The longest TTL in nanoseconds, five hundred years.
const LONGEST: u128 = u64::MAX as u128;

/// A wish for one place on a key, for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    on: ClaimKey,
    mode: Mode,
    /// In nanoseconds.
    ttl: u64,
    /// One more than the floor.
    above: Option<NonZeroU64>,
}

impl Claim {
    /// The only place on a lock.
    pub const fn exclusive(key: Key, ttl: Duration) -> Self {
        Self::new(Space::Lock, key, Mode::Exclusive, ttl)
    }

    /// A shared place on a lock.
    pub const fn shared(key: Key, ttl: Duration) -> Self {
        Self::new(Space::Lock, key, Mode::Shared, ttl)
    }

    /// One of `of` permits.
    pub const fn permit(key: Key, of: NonZeroU32, ttl: Duration) -> Self {
        Self::new(Space::Permit, key, Mode::Permit { of }, ttl)
    }

    /// The only place in a duplicate window.
    pub const fn duplicate(key: Key, ttl: Duration) -> Self {
        Self::new(Space::Duplicate, key, Mode::Exclusive, ttl)
    }

    /// The only place on an idempotency key.
    pub const fn idempotent(key: Key, ttl: Duration) -> Self {
        Self::new(Space::Idempotency, key, Mode::Exclusive, ttl)
    }

    /// Engines count in whole milliseconds, and nothing can be held for none of them: a shorter TTL becomes 1 ms.
    const fn new(space: Space, key: Key, mode: Mode, ttl: Duration) -> Self {
        let ttl = match ttl.as_nanos() {
            0..1_000_000 => 1_000_000,
            #[expect(clippy::cast_possible_truncation, reason = "it fits")]
            nanos @ 1_000_000..=LONGEST => nanos as u64,
            _ => u64::MAX,
        };
        Self { on: ClaimKey { space, key }, mode, ttl, above: None }
    }

    /// Asks for a fence above `floor`, the highest that the caller has seen on this key.
    #[must_use]
    pub const fn fenced(mut self, floor: Fence) -> Self {
        self.above = NonZeroU64::new(floor.get().saturating_add(1));
        self
    }

    /// The key in its space.
    pub const fn on(&self) -> &ClaimKey {
        &self.on
    }

    /// What kind of place it wants.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// How long the place is wanted: at least 1 ms. Engines count in whole milliseconds.
    pub const fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl)
    }

    /// The same in nanoseconds.
    pub(crate) const fn ttl_nanos(&self) -> u64 {
        self.ttl
    }

    /// Whether a fence is wanted, and above which number.
    pub const fn fence_floor(&self) -> Option<Fence> {
        match self.above {
            Some(above) => Some(Fence::new(above.get() - 1)),
            None => None,
        }
    }
}
