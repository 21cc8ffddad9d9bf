//! What a pause costs those who trust their lock alone, and those whose resource checks fences.
//!
//! Processes take one lock of two seconds, work, and write without looking again; every five seconds one of them is stopped
//! for three. A write that comes after one of a successor is lost, or undoes another, where nobody checks; a resource that
//! checks fences refuses it.

use std::time::{Duration, Instant};

use rand::RngExt;

use super::judge::judge;
use super::{Arena, Torturer};

pub(super) const TTL: Duration = Duration::from_secs(2);
pub(super) const WORK: Duration = Duration::from_millis(150);
const EVERY: Duration = Duration::from_secs(5);
const STOPPED: Duration = Duration::from_secs(3);

/// Runs it, and says whether no stale write was taken.
pub(super) fn run(arena: &Arena, minutes: f64) -> bool {
    let mut clients = Torturer::new(arena, &["--trusting"]);
    let ends = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut pauses = 0_u32;
    while Instant::now() < ends {
        std::thread::sleep(EVERY - STOPPED);
        clients.stop(rand::rng().random_range(0..clients.len()), STOPPED);
        pauses += 1;
    }
    let (processes, clean) = clients.end();
    let writes = arena.register.writes();
    let verdict = judge(&processes, &writes, &[]);
    let stale = verdict.violations.iter().filter(|violation| violation.rule == "stale write").count();
    #[expect(clippy::cast_precision_loss, reason = "a share, for people")]
    let share = 100.0 * verdict.refused as f64 / writes.len().max(1) as f64;
    println!(
        "a pause of {STOPPED:?} every {EVERY:?}, TTL {TTL:?}, {} processes: {pauses} pauses, {} writes; {} of them late ({share:.2} %): lost updates \
         where nobody checks the fence, {stale} taken where it is checked",
        arena.clients,
        writes.len(),
        verdict.refused,
    );
    clean && stale == 0
}
