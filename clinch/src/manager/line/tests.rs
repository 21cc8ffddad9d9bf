use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Flight, Handed, HeadTurn, LineSeat, Lines, Shape};
use crate::key::Key;
use crate::lease::{Attempt, Claim, Token};
use crate::manager::held::{Held, Window};
use crate::stamp::Stamp;
use crate::store::{Denial, Wakeups};

const TTL: Duration = Duration::from_secs(60);

const SHAPE: Shape = Shape { ttl: TTL, label: None, fenced: false, takes_passes: true };

fn claim() -> Claim {
    Claim::exclusive(Key::new("a").unwrap(), TTL)
}

/// A lease on its way back to the engine.
fn given_back(lines: &Lines, claim: &Claim) -> Arc<Held> {
    let attempt = Attempt::one(Token::from_text("token"), claim.clone());
    let held = Arc::new(Held::to_take_back(Arc::new(attempt)));
    lines.give_back(held.clone());
    held
}

/// A lease that somebody has.
fn granted(lines: &Lines, claim: &Claim) -> Arc<Held> {
    let attempt = Arc::new(Attempt::one(Token::from_text("token"), claim.clone()));
    let flight = Flight { attempt, boot_at: None, asked_at: None, doubtful: false, heard_since: None };
    let now = Instant::now();
    let window = Window {
        valid_until: Stamp::of(now + TTL),
        boot_until: None,
        engine_until: Stamp::of(now + TTL),
        allowance: Duration::ZERO,
    };
    let held = Arc::new(Held::granted(&flight, window, now, Vec::new(), 0));
    assert!(lines.hold(&held).is_ok());
    held
}

/// The head of a line that gave back what two others wait for, in an engine that wakes all of them every time: after the wake-ups of
/// its own release and of the first of the others.
async fn stepped_back<'a>(lines: &'a Lines, claim: &'a Claim) -> (LineSeat<'a>, Arc<Notify>) {
    let held = given_back(lines, claim);
    let mut head = lines.join(claim, &SHAPE, 0, TTL);
    let signal = Arc::new(Notify::new());
    head.schedule().denied(&Denial::default(), TTL, || Wakeups::new(signal.clone(), ()));
    assert!(matches!(head.turn(), HeadTurn::Local(_)));
    held.finish_release();
    lines.ended(&held, Some(3));
    for wake_up in ["its own", "the first one's"] {
        assert!(matches!(head.turn(), HeadTurn::SteppedBack(_)), "it went first, before {wake_up} wake-up");
        signal.notify_one();
        head.schedule().woken().await;
    }
    (head, signal)
}

/// Between the end of a release and the news of it anybody may find that the lease is over.
#[tokio::test(start_paused = true)]
async fn the_head_is_called_although_somebody_else_saw_the_end_first() {
    let (lines, claim) = (Lines::new(Arc::default()), claim());
    let join = || lines.join(&claim, &SHAPE, 0, TTL);
    let held = given_back(&lines, &claim);

    let (mut first, mut second) = (join(), join());
    assert!(matches!(first.turn(), HeadTurn::Local(_)));
    assert!(matches!(second.turn(), HeadTurn::NotHead));
    // The one who waits for the release is gone, and the next one does not know yet that it is the head.
    drop(first);
    held.finish_release();
    let mut third = join();
    assert!(matches!(third.turn(), HeadTurn::NotHead));
    assert!(second.called().now_or_never().is_none());
    lines.ended(&held, None);
    assert!(second.called().now_or_never().is_some(), "the head waits for ever");
    assert!(matches!(second.turn(), HeadTurn::Ask(_)));
}

/// Proves: B5
#[tokio::test(start_paused = true)]
async fn a_line_lets_each_of_the_others_have_a_turn_before_its_next() {
    let (lines, claim) = (Lines::new(Arc::default()), claim());
    let (mut head, signal) = stepped_back(&lines, &claim).await;
    assert!(matches!(head.turn(), HeadTurn::SteppedBack(_)), "the second one had no turn");
    signal.notify_one();
    head.schedule().woken().await;
    assert!(matches!(head.turn(), HeadTurn::Ask(_)), "both had their turns");
}

/// The others have given up meanwhile: nobody wakes this line any more, and the key is free.
///
/// Proves: B5
#[tokio::test(start_paused = true)]
async fn a_line_that_let_others_go_first_asks_although_nobody_wakes_it() {
    let (lines, claim) = (Lines::new(Arc::default()), claim());
    let (mut head, _signal) = stepped_back(&lines, &claim).await;
    let HeadTurn::SteppedBack(until) = head.turn() else { panic!("the second one had no turn") };
    tokio::time::sleep_until(until).await;
    assert!(matches!(head.turn(), HeadTurn::Ask(_)), "it waits for its next poll, and the key is free");
}

/// Whoever was passed the lease has left the line; what another one has there meanwhile, under the same number, stays.
#[tokio::test(start_paused = true)]
async fn one_who_was_passed_the_lease_takes_nobody_else_out_of_the_line() {
    let (lines, claim) = (Lines::new(Arc::default()), claim());
    let join = || lines.join(&claim, &SHAPE, 0, TTL);
    let held = granted(&lines, &claim);
    let mut first = join();
    // As the head it knows something that it leaves behind.
    assert!(matches!(first.turn(), HeadTurn::Local(_)));
    assert!(matches!(lines.hand_over(&held, 0), Handed::Over { .. }));
    let mut second = join();
    assert!(first.take_passed().is_some());
    drop(first);
    assert!(matches!(lines.hand_over(&held, 1), Handed::Over { .. }), "nobody is in the line");
    assert!(second.take_passed().is_some());
}
