//! What a history consists of.

use std::fmt;
use std::time::Duration;

use clinch::lease::Token;

/// What a history was recorded under; its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The seed that replays it.
    pub seed: u64,
    /// The time limit of one call.
    pub call_limit: Duration,
    /// The latest that a request can reach the engine after it was sent.
    pub latest_landing: Duration,
    /// No fault could happen: stricter rules hold.
    pub quiet: bool,
}

/// An event and when it happened, counted from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// What.
    pub event: Event,
}

/// A token, as short as it stays unmistakable. It has nothing in it that differs between two runs of a seed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl From<&Token> for Tag {
    fn from(token: &Token) -> Self {
        Self(token.as_str().chars().take(12).collect())
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A caller began an operation.
    Invoke {
        /// Its number; every operation has its own.
        op: u64,
        /// The process.
        client: usize,
        /// The key.
        key: String,
        /// What was asked for.
        wish: Wish,
    },
    /// The operation ended.
    Complete {
        /// Its number.
        op: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A caller believes from here on that it holds the key.
    Held {
        /// The operation that got it.
        op: u64,
        /// The process.
        client: usize,
        /// The key.
        key: String,
        /// Under which token.
        token: Tag,
        /// For how long it was asked for.
        ttl: Duration,
    },
    /// It no longer believes so.
    Ended {
        /// The token.
        token: Tag,
        /// Why.
        how: Stop,
    },
    /// A caller asked its guard whether it is valid.
    Probe {
        /// The token.
        token: Tag,
        /// What the guard said.
        valid: bool,
    },
    /// What a manager was told by its store.
    Port {
        /// The process.
        client: usize,
        /// The operation inside which the call was made; `None` in the background.
        op: Option<u64>,
        /// Which call.
        call: Call,
        /// On what.
        token: Tag,
        /// What was answered.
        answer: Answer,
    },
    /// A request went out to the engine.
    Sent {
        /// The process.
        client: usize,
        /// The operation inside which it was sent; `None` in the background.
        op: Option<u64>,
        /// Which call.
        call: Call,
        /// On what.
        token: Tag,
        /// The number of the connection.
        connection: u64,
    },
    /// The engine carried a step out.
    Step(Step),
    /// The engine lost a lease with its memory.
    Forgot {
        /// The key.
        key: String,
        /// What was there.
        place: Placed,
    },
    /// A fault was caused.
    Fault {
        /// Which.
        kind: FaultKind,
        /// Whose calls it strikes; `None` for everybody's.
        client: Option<usize>,
    },
    /// A manager was shut down.
    Shutdown {
        /// The process.
        client: usize,
        /// Releases that were not answered.
        unreleased: usize,
        /// Guards that were alive.
        guards: usize,
    },
    /// A task of a process panicked.
    Panicked {
        /// The process.
        client: usize,
    },
    /// The end, after everything should have run out.
    End {
        /// What the engine still holds.
        left: Vec<(String, Tag)>,
    },
}

/// What a step did to the one key that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The process that sent it.
    pub client: usize,
    /// Which call.
    pub call: Call,
    /// Over which connection it came.
    pub connection: u64,
    /// In whose name.
    pub token: Tag,
    /// The key.
    pub key: String,
    /// The TTL it asked for; zero where it asked for none.
    pub ttl: Duration,
    /// What was on the key before.
    pub before: Option<Placed>,
    /// What was on it after.
    pub after: Option<Placed>,
}

/// Who is on a key, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Who.
    pub token: Tag,
    /// Until when, on the history's clock.
    pub expires: Duration,
}

/// What a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wish {
    /// A lock; tried once if `wait` is zero.
    Lock {
        /// For how long.
        ttl: Duration,
        /// How long the caller waits for it.
        wait: Duration,
    },
    /// As `Lock`, with a block that runs under it.
    Run {
        /// For how long.
        ttl: Duration,
        /// How long the caller waits for it.
        wait: Duration,
    },
    /// To give it back.
    Release {
        /// What.
        token: Tag,
    },
    /// To see who holds it.
    Inspect,
    /// To end somebody's lease by force.
    Revoke {
        /// Whose.
        token: Tag,
    },
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The lock is the caller's.
    Granted(Tag),
    /// The block ran to its end.
    Ran,
    /// Somebody else has it.
    Denied {
        /// Who, if that was told.
        holder: Option<Tag>,
    },
    /// It was granted, but too late.
    TooLate,
    /// Given back; whether the token still held it.
    Released(bool),
    /// Ended by force; whether that one still held it.
    Revoked(bool),
    /// Who holds it.
    Seen(Option<Tag>),
    /// The engine failed: the outcome is *failed* (not applied).
    Failed,
    /// The engine failed: the outcome is *unknown*.
    Unknown,
    /// The manager takes no new attempts.
    ShutDown,
    /// The caller dropped the future.
    Abandoned,
}

/// Why a caller no longer believes that it holds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// `lost()` fired.
    Lost,
    /// The release was called for.
    Released,
    /// The block ended, and with it what is done under the lock.
    Done,
    /// The guard, or the future that had it, was dropped.
    Dropped,
}

/// A call through the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Call {
    /// `acquire`.
    Acquire,
    /// `renew`.
    Renew,
    /// `release`.
    Release,
    /// `revoke`.
    Revoke,
    /// `inspect`, `list`, `ping`: changes nothing.
    Look,
}

/// What a store answered through the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Granted, extended, or revoked.
    Yes,
    /// Denied, lost, or not revoked.
    No,
    /// The answer to a release.
    Release {
        /// Whether it was held.
        held: bool,
        /// Whether nothing of it can arrive any more.
        conclusive: bool,
    },
    /// An error: not applied.
    NotApplied,
    /// An error: outcome unknown.
    Unknown,
    /// The manager dropped the call.
    Dropped,
}

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// A request vanished.
    LostRequest,
    /// A reply vanished.
    LostReply,
    /// A request arrived after its caller had given up.
    Late,
    /// A request arrived twice.
    Duplicate,
    /// A connection was cut.
    Cut,
    /// A request arrived from a connection that had been cut.
    Straggler,
    /// The client sent a request again by itself, on a new connection.
    Resent,
    /// The engine said that it is busy, and did nothing.
    Busy,
    /// The engine did nothing at all for a while.
    Stall,
    /// The engine restarted with its memory.
    Restart,
    /// The engine restarted without its memory.
    Amnesia,
    /// A wake-up was lost.
    LostWakeup,
    /// The news of a revocation was lost.
    LostRevocation,
}

struct Ms(Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_millis(), self.0.subsec_micros() % 1000)
    }
}

struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, call_limit, latest_landing, quiet } = self;
        let (limit, landing) = (call_limit.as_millis(), latest_landing.as_millis());
        write!(f, "history seed={seed} call_limit={limit} latest_landing={landing} quiet={quiet}")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {}", Ms(self.at).to_string(), self.event)
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.token, Ms(self.expires))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoke { op, client, key, wish } => write!(f, "invoke #{op} c{client} {key} {wish:?}"),
            Self::Complete { op, outcome } => write!(f, "complete #{op} {outcome:?}"),
            Self::Held { op, client, key, token, ttl } => {
                write!(f, "held #{op} c{client} {key} {token} ttl={}", ttl.as_millis())
            }
            Self::Ended { token, how } => write!(f, "ended {token} {how:?}"),
            Self::Probe { token, valid } => write!(f, "probe {token} valid={valid}"),
            Self::Port { client, op, call, token, answer } => {
                write!(f, "port c{client} #{} {call:?} {token} {answer:?}", Maybe(*op))
            }
            Self::Sent { client, op, call, token, connection } => {
                write!(f, "sent c{client} #{} {call:?} {token} over={connection}", Maybe(*op))
            }
            Self::Step(step) => {
                let Step { client, call, connection, token, key, ttl, before, after } = step;
                let (before, after) = (Maybe(before.as_ref()), Maybe(after.as_ref()));
                let ttl = ttl.as_millis();
                write!(
                    f,
                    "engine c{client} {call:?} {token} {key} over={connection} ttl={ttl} {before} -> {after}"
                )
            }
            Self::Forgot { key, place } => write!(f, "engine forgot {key} {place}"),
            Self::Fault { kind, client } => write!(f, "fault {kind:?} c{}", Maybe(*client)),
            Self::Shutdown { client, unreleased, guards } => {
                write!(f, "shutdown c{client} unreleased={unreleased} guards={guards}")
            }
            Self::Panicked { client } => write!(f, "panicked c{client}"),
            Self::End { left } => {
                write!(f, "end left={}", left.len())?;
                left.iter().try_for_each(|(key, token)| write!(f, " {key}:{token}"))
            }
        }
    }
}
