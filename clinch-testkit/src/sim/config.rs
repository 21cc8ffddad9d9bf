//! What can go wrong, and how often.

/// How often something happens, in a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// So many times in a thousand.
    pub const fn per_mille(times: u32) -> Self {
        Self(times)
    }

    /// Whether it strikes for this draw out of a thousand.
    pub(super) const fn strikes(self, drawn: u32) -> bool {
        drawn < self.0
    }
}

/// The faults of a world: each with its chance per request, if not said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The request vanishes; its connection lives on.
    pub lost_request: Chance,
    /// The reply vanishes; its connection lives on.
    pub lost_reply: Chance,
    /// The request arrives after its caller has given up, 1 to 3 s late, and everything behind it too.
    pub late: Chance,
    /// The request arrives twice, one right after the other.
    pub duplicate: Chance,
    /// The connection is cut within the next 20 ms.
    pub cut: Chance,
    /// Per cut: some of the requests in the pipe still arrive, up to 2 s later.
    pub straggler: Chance,
    /// Per request whose connection was cut: the client sends it again by itself, on a new connection.
    pub resent: Chance,
    /// The engine answers that it is busy and does nothing.
    pub busy: Chance,
    /// Per wake-up and waiting process: it is lost.
    pub lost_wakeup: Chance,
    /// Per revocation and process: the news is lost.
    pub lost_revocation: Chance,
    /// Per look of the chaos task of a [`workload`](super::workload), about every second: a connection is cut.
    pub chaos_cut: Chance,
    /// Likewise: the engine stalls for up to 2 s.
    pub stall: Chance,
    /// Likewise: the engine restarts with its memory.
    pub restart: Chance,
    /// Likewise: the engine restarts without its memory.
    pub amnesia: Chance,
    /// Likewise: the engine loses the numbers of its fences.
    pub lost_counter: Chance,
    /// Likewise: a bare client is stopped for up to 9 s.
    pub stopped: Chance,
    /// Likewise: a process with a manager is stopped for up to 9 s.
    pub paused: Chance,
    /// Likewise: a bare client dies, in the middle of whatever it does.
    pub crashed: Chance,
    /// Likewise: a client and the engine do not hear each other for up to 4 s.
    pub partition: Chance,
    /// Likewise: a replica that is behind takes over.
    pub failover: Chance,
    /// Likewise: the replica falls behind by up to 3 s.
    pub lag: Chance,
    /// Likewise: the engine's clock is set ahead by up to 5 s.
    pub clock_ahead: Chance,
    /// Likewise: the engine's clock is set back by up to 5 s.
    pub clock_back: Chance,
    /// How far the engine's clock may be off, either way, in millionths.
    pub drift_ppm: i64,
}

impl Faults {
    /// No fault: requests and replies take their time, and that is all.
    pub const NONE: Self = Self {
        lost_request: Chance::NEVER,
        lost_reply: Chance::NEVER,
        late: Chance::NEVER,
        duplicate: Chance::NEVER,
        cut: Chance::NEVER,
        straggler: Chance::NEVER,
        resent: Chance::NEVER,
        busy: Chance::NEVER,
        lost_wakeup: Chance::NEVER,
        lost_revocation: Chance::NEVER,
        chaos_cut: Chance::NEVER,
        stall: Chance::NEVER,
        restart: Chance::NEVER,
        amnesia: Chance::NEVER,
        lost_counter: Chance::NEVER,
        stopped: Chance::NEVER,
        paused: Chance::NEVER,
        crashed: Chance::NEVER,
        partition: Chance::NEVER,
        failover: Chance::NEVER,
        lag: Chance::NEVER,
        clock_ahead: Chance::NEVER,
        clock_back: Chance::NEVER,
        drift_ppm: 0,
    };

    /// Every fault, now and then.
    pub const ALL: Self = Self {
        lost_request: Chance::per_mille(25),
        lost_reply: Chance::per_mille(25),
        late: Chance::per_mille(20),
        duplicate: Chance::per_mille(50),
        cut: Chance::per_mille(50),
        straggler: Chance::per_mille(700),
        resent: Chance::per_mille(300),
        busy: Chance::per_mille(20),
        lost_wakeup: Chance::per_mille(200),
        lost_revocation: Chance::per_mille(200),
        chaos_cut: Chance::per_mille(150),
        stall: Chance::per_mille(50),
        restart: Chance::per_mille(30),
        amnesia: Chance::per_mille(60),
        lost_counter: Chance::per_mille(60),
        stopped: Chance::per_mille(60),
        paused: Chance::per_mille(60),
        crashed: Chance::per_mille(8),
        partition: Chance::per_mille(60),
        failover: Chance::NEVER,
        lag: Chance::NEVER,
        clock_ahead: Chance::per_mille(30),
        clock_back: Chance::NEVER,
        // The library allows for 1 %.
        drift_ppm: 5_000,
    };

    /// The same on an engine whose clock goes back instead, and that forgets nothing: together, the two can make fences fall.
    pub const CLOCK_BACK: Self = Self {
        amnesia: Chance::NEVER,
        lost_counter: Chance::NEVER,
        clock_ahead: Chance::NEVER,
        clock_back: Chance::per_mille(60),
        ..Self::ALL
    };

    /// The same on an engine that a replica takes over, now and then, which may be behind.
    pub const FAILOVER: Self = Self {
        restart: Chance::NEVER,
        amnesia: Chance::per_mille(20),
        failover: Chance::per_mille(120),
        lag: Chance::per_mille(150),
        ..Self::ALL
    };

    /// What a quorum bears, on each of its nodes: clocks that drift and go back, nodes that restart and forget. Not clocks
    /// that are set ahead.
    pub const QUORUM: Self = Self {
        busy: Chance::per_mille(15),
        restart: Chance::per_mille(12),
        amnesia: Chance::per_mille(25),
        lost_counter: Chance::NEVER,
        clock_ahead: Chance::NEVER,
        clock_back: Chance::per_mille(20),
        ..Self::ALL
    };

    /// Whether nothing can go wrong.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}
