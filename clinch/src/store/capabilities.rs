//! What a store can do, as data.

/// What a store can do. The manager asks before it sends, and the conformance suite runs what is claimed here.
///
/// Every store grants exclusive claims; the rest is said here.
///
/// ```
/// use clinch::store::Capabilities;
///
/// let mut mine = Capabilities::default();
/// mine.wakeups = true;
/// assert!(!mine.shared);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Grants shared claims.
    pub shared: bool,
    /// Grants permits.
    pub permits: bool,
    /// Grants several claims in one attempt, all or none.
    pub several: bool,
    /// Gives fences with exclusive claims.
    pub fences: bool,
    /// Keeps a queue of attempts for a key, first come first served ([`Patience::Queue`](crate::lease::Patience::Queue)).
    pub fair: bool,
    /// Lets the release of a lock hand it over to one that waits ([`Patience::Wait`](crate::lease::Patience::Wait) with a
    /// `confirm` time), and tells all who wait by push which one. Without it they are only told, and the first to ask has it.
    pub heirs: bool,
    /// Renews many leases in one call ([`Store::renew_each`](super::Store::renew_each)). Without it each lease is renewed
    /// by a call of its own.
    pub batches: bool,
    /// Finishes leases with a stored record ([`Store::complete`](super::Store::complete)).
    pub records: bool,
    /// Wakes waiters by push; without it they poll.
    pub wakeups: bool,
    /// Lists holders.
    pub list: bool,
    /// Of several who ask for a free place at the same instant, all may be denied: they divide the votes between them, and
    /// whoever wants it asks again. Without it exactly one of them wins.
    pub split_votes: bool,
    /// Expires leases by the very clock of this process, so that no drift needs to be allowed for.
    pub same_clock: bool,
}
