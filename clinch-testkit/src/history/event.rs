//! What a history consists of. Its words on the page are in `show`.

use std::time::Duration;

use clinch::lease::Token;

use crate::sim::FaultId;

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
    /// How many nodes there are; of more than one, more than half must grant.
    pub nodes: usize,
}

impl Header {
    /// How many nodes must have a lease for it to be held.
    pub const fn majority(&self) -> usize {
        self.nodes / 2 + 1
    }
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

impl Tag {
    pub(super) fn as_str(&self) -> &str {
        &self.0
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
    /// A caller has a guard: it believes from here on that it holds these claims.
    Held {
        /// The operation that got it. A guard is named by it: a token may serve several, one after the other.
        op: u64,
        /// The process.
        client: usize,
        /// Under which token.
        token: Tag,
        /// What.
        claims: Vec<HeldClaim>,
        /// The engine failed, and the caller goes on unprotected: it excludes only its own process.
        degraded: bool,
    },
    /// It no longer believes so.
    Ended {
        /// The operation that got the guard.
        op: u64,
        /// The token.
        token: Tag,
        /// Why.
        how: Stop,
    },
    /// A caller asked its guard whether it is valid.
    Probe {
        /// The operation that got the guard.
        op: u64,
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
        /// The node.
        node: usize,
        /// The key.
        key: String,
        /// What was there.
        place: Placed,
    },
    /// Without any step, what is on a key is something else now: a replica that was behind has taken over, or the engine's
    /// clock was set.
    Rewound {
        /// The node.
        node: usize,
        /// The key.
        key: String,
        /// What was there.
        before: Vec<Placed>,
        /// What is there now.
        after: Vec<Placed>,
    },
    /// A caller wrote to the resource that the key protects, with its fence.
    Write {
        /// The operation that got the guard.
        op: u64,
        /// The key.
        key: String,
        /// The token.
        token: Tag,
        /// The number it wrote with.
        fence: u64,
        /// Whether the resource took it.
        taken: bool,
    },
    /// A process is stopped: its tasks do not run, though time passes.
    Stopped {
        /// The process.
        client: usize,
        /// Until when, on the history's clock.
        until: Duration,
    },
    /// A fault was caused.
    Fault {
        /// Which: the name by which it can be left out of another run.
        id: FaultId,
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

/// What a step did to the keys that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The node that carried it out.
    pub node: usize,
    /// The process that sent it.
    pub client: usize,
    /// Which call.
    pub call: Call,
    /// Over which connection it came.
    pub connection: u64,
    /// In whose name.
    pub token: Tag,
    /// How long it would wait; zero for a try.
    pub patience: Duration,
    /// Whether it queues.
    pub queues: bool,
    /// Whether a key can be handed over to it outside of a queue. What was is extended when it asks again.
    pub inherits: bool,
    /// Each of its keys, in the order of its claims.
    pub touched: Vec<Touched>,
}

impl Step {
    /// Whether it changed anything.
    pub fn changed(&self) -> bool {
        self.touched.iter().any(|touched| touched.before != touched.after)
    }
}

/// One key of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The key, with its space.
    pub key: String,
    /// As what it was wanted.
    pub role: Role,
    /// For permits: how many there are, by this claim.
    pub of: u32,
    /// The TTL it asked for; zero where it asked for none.
    pub ttl: Duration,
    /// The floor of the fence it asked for.
    pub floor: Option<u64>,
    /// What was on the key before.
    pub before: Vec<Placed>,
    /// What was on it after.
    pub after: Vec<Placed>,
}

/// Who is on a key, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Who.
    pub token: Tag,
    /// As what.
    pub role: Role,
    /// Until when, on the history's clock.
    pub expires: Duration,
    /// The fence of its grant.
    pub fence: Option<u64>,
}

/// As what a token stands on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Holds it alone.
    Exclusive,
    /// Holds it with others.
    Shared,
    /// Holds one of its permits.
    Permit,
    /// It is kept for this one, which was first in the queue and has not asked again yet.
    Heir,
    /// Waits, and comes next: the release of its holder hands the key over to this one.
    Next,
    /// Waits to write; new readers are denied meanwhile.
    Writer,
    /// Waits in the queue.
    Queued,
    /// Holds nothing any more: its work is done, and what it left behind keeps others out.
    Done,
}

impl Role {
    /// Whether it is a lease.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Exclusive | Self::Shared | Self::Permit)
    }

    /// Whether the two can be held at the same time, as far as the key alone is concerned.
    pub const fn shares_with(self, other: Self) -> bool {
        matches!((self, other), (Self::Shared, Self::Shared) | (Self::Permit, Self::Permit))
    }
}

/// What a guard holds, by its own belief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaim {
    /// The key, with its space.
    pub key: String,
    /// As what.
    pub role: Role,
    /// For how long it was asked for.
    pub ttl: Duration,
    /// Its fence, the number of the local pass included.
    pub fence: Option<u64>,
}

/// What a caller wants to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The keys, each with its role and, for permits, their number.
    pub claims: Vec<(String, Role, u32)>,
    /// How long the caller waits for it; it tries once if that is zero.
    pub wait: Duration,
    /// Whether it stands in the engine's queue.
    pub fair: bool,
    /// It was asked for by a bare client of the port, which knows nothing of its own process.
    pub bare: bool,
}

/// What a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wish {
    /// A lease.
    Lock(Wanted),
    /// As `Lock`, with a block that runs under it.
    Run(Wanted),
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
    /// `complete`.
    Complete,
    /// `revoke`.
    Revoke,
    /// `inspect`, `list`, `ping`: changes nothing.
    Look,
}

/// What a store answered through the port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Granted, with these fences.
    Granted(Vec<Option<u64>>),
    /// Extended, or revoked.
    Yes,
    /// Denied, lost, or not revoked.
    No,
    /// The answer to a release, or to a completion.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The engine lost the numbers from which it makes fences, and nothing else.
    LostCounter,
    /// A process was stopped for a while.
    Stopped,
    /// A wake-up was lost.
    LostWakeup,
    /// The news of a revocation was lost.
    LostRevocation,
    /// A process with a manager was stopped for a while.
    Paused,
    /// A process died.
    Crashed,
    /// A process and the engine did not hear each other for a while.
    Partition,
    /// A replica took over.
    Failover,
    /// The replica fell behind.
    Lag,
    /// The engine's clock was set ahead.
    ClockAhead,
    /// The engine's clock was set back.
    ClockBack,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::LostRequest,
        Self::LostReply,
        Self::Late,
        Self::Duplicate,
        Self::Cut,
        Self::Straggler,
        Self::Resent,
        Self::Busy,
        Self::Stall,
        Self::Restart,
        Self::Amnesia,
        Self::LostCounter,
        Self::Stopped,
        Self::LostWakeup,
        Self::LostRevocation,
        Self::Paused,
        Self::Crashed,
        Self::Partition,
        Self::Failover,
        Self::Lag,
        Self::ClockAhead,
        Self::ClockBack,
    ];
}
