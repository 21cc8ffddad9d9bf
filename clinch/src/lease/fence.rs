//! The rising number of a grant.

use std::fmt;

/// A number that rises with every grant on a key, for the resource to reject writes of holders that came before.
///
/// Fences are opt in per claim ([`Claim::fenced`](super::Claim::fenced)) and only on exclusive claims of a store that
/// has them ([`Capabilities::fences`](crate::store::Capabilities::fences)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The distance of two numbers that an engine gives. A lease that is passed on inside a process counts up in between,
    /// without asking the engine.
    pub const STEP: u64 = 1024;

    /// The fence with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
