//! Fences at the resource: what makes a lock safe against holders that come late.
//!
//! No lock with a TTL can stop a holder that does not know it has lost it. A process may be stopped anywhere, between
//! checking its lease and writing too: by a busy machine, by a virtual machine that moves, by a laptop's lid, by a packet
//! that was long on its way.
//!
//! ```text
//!   alice  takes the lock ──── stopped ───────────────────────────────── writes 1 ─┐
//!          fence 33          (her lease runs out)                        fence 33  │
//!   bob                            takes the lock ── writes 2 ─┐                   │
//!                                  fence 34          fence 34  │                   │
//!   the resource ─────────────────────────────────────────── takes 2 ────────── refuses 1
//!                                                            highest: 34        33 < 34
//! ```
//!
//! A *fence* is a number that rises with every holder of a key. The holder sends it along with each write; the resource
//! remembers the highest number it has seen, and refuses every write with a lower one, in the same atomic step in which
//! it writes. Then it does not matter what a late holder believes.
//!
//! ```
//! use std::time::Duration;
//! use clinch::fencing::FencedRegister;
//! use clinch::{LockManager, LockOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::memory();
//! let balance = FencedRegister::new(); // stands for a database
//! let options = LockOptions::new(Duration::from_secs(10)).fenced();
//!
//! let alice = locks.lock("account:7", options.clone()).await?;
//! let late = alice.fence().ok_or("no fence")?;
//! alice.release().await?;
//!
//! let bob = locks.lock("account:7", options).await?;
//! balance.write(bob.fence().ok_or("no fence")?, 200)?;
//! // What alice sent before she gave the lock back arrives only now.
//! assert!(balance.write(late, 100).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # When it is not optional
//! Without a fence a lock saves work: two holders at a time are rare, and must do no more harm than a job that ran
//! twice. Where a second writer would lose or spoil something that cannot be made good again (money, stock, the one copy
//! of a file), check a fence at the resource. [`Lease::is_valid`](crate::Lease::is_valid) narrows the gap between the
//! check and the write, and cannot close it.
//!
//! # What the resource must do
//! - Compare and write in one atomic step. Reading the highest fence first and writing after it leaves the same gap.
//! - Take a fence *not lower* than the highest, not only a higher one: a holder may write more than once, and a write
//!   whose answer was lost is sent again. In what order the writes of one holder arrive is its own business.
//! - Keep the highest fence as long as a late write can come, with the data, so that neither is ever lost without the
//!   other.
//! - Be asked under the same lock by everybody. Fences of different keys do not compare, and a writer without a fence
//!   is not stopped.
//!
//! There are helpers for three kinds: [`FencedRegister`] in memory, for tests; `redis::FencedKey` (feature `redis`); and
//! [`sql`], for databases. `examples/stale_writer.rs` is the whole story as a program.
//!
//! A lease that [is degraded](crate::Lease::is_degraded) has no fence: whoever went on without the engine cannot write
//! to such a resource, and that is as it should be.

#[cfg(feature = "redis")]
pub mod redis;
mod register;
pub mod sql;

pub use self::register::FencedRegister;

use crate::lease::Fence;

/// A write was refused: somebody with a higher fence was here before.
///
/// Nothing was written. The writer no longer has the lock, whatever it believes: trying again with the same fence is of no
/// use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "stale write refused: its fence {offered} is lower than {highest}, which was seen before; the lock was lost to a \
     later holder"
)]
pub struct Stale {
    /// The fence that came with the write.
    pub offered: Fence,
    /// The highest fence that the resource has seen.
    pub highest: Fence,
}
