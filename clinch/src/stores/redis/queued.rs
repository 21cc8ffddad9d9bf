//! The calls that every hand-over in a fair queue takes, packed by hand: what their names have in common is put together
//! once, and nothing is copied twice. What is rarer (a fence, replicas that must confirm) goes the way of all scripts.

use super::claims::{Way, millis, took_turn, way, whole_millis};
use super::keys::Names;
use super::scripts;
use super::wire::Packed;
use crate::lease::Attempt;

/// The call that asks for a place in the key's queue, by its hash; `None`, if it is one of another kind.
pub(super) fn acquire(names: &Names, attempt: &Attempt) -> Option<Packed> {
    let (Way::Queued { confirm }, [claim]) = (way(attempt), attempt.claims()) else { return None };
    if claim.fence_floor().is_some() {
        return None;
    }
    let (around, token) = (names.around_queue(claim.on()), attempt.token().as_str());
    let hash = scripts::ACQUIRE_QUEUED.hash();
    let bytes = hash.len() + around.length() + token.len() + 160;
    let call = Packed::command(14, bytes).word("EVALSHA").word(hash).word("4").word(around.key());
    let call = call.joined(around.queue()).joined(around.queued()).joined(around.writer()).word(token);
    let call = call.number(millis(claim.ttl())).number(whole_millis(attempt.patience().left()));
    let call = call.number(millis(confirm)).joined(around.channel()).word(names.listener());
    Some(call.number(names.asked_now()))
}

/// The same for the call that gives such a lease back, or withdraws the attempt.
pub(super) fn release(names: &Names, lease: &Attempt) -> Option<Packed> {
    let (Way::Queued { .. }, [claim]) = (way(lease), lease.claims()) else { return None };
    let (around, token) = (names.around_queue(claim.on()), lease.token().as_str());
    let hash = scripts::RELEASE_QUEUED.hash();
    let bytes = hash.len() + around.length() + token.len() + 80;
    let call = Packed::command(10, bytes).word("EVALSHA").word(hash).word("4").word(around.key());
    let call = call.joined(around.queue()).joined(around.queued()).joined(around.writer()).word(token);
    Some(call.joined(around.channel()).word(if took_turn(lease) { "1" } else { "0" }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::key::Key;
    use crate::lease::{Claim, Patience, Token};
    use crate::stores::redis::claims;

    /// What is packed by hand is what the scripts are called with where it is not.
    #[tokio::test(start_paused = true)]
    async fn calls_by_hand_are_those_of_the_scripts() {
        for (prefix, key) in [("", "k"), ("app", "a:{b}:c")] {
            let (names, key) = (Names::new(prefix), Key::new(key).unwrap());
            let claim = Claim::exclusive(key, Duration::from_secs(10));
            let until = Instant::now() + Duration::from_millis(1_234);
            let patience = Patience::Queue { until, confirm: Duration::from_secs(1) };
            let attempt = Attempt::one(Token::from_text("a token"), claim).with_patience(patience);
            let by_script = |call: scripts::Call| Packed::one(&call.by_hash()).bytes().to_vec();
            let acquire = acquire(&names, &attempt).unwrap();
            assert_eq!(acquire.bytes(), by_script(claims::acquire(&names, &attempt, None)));
            assert_eq!(
                release(&names, &attempt).unwrap().bytes(),
                by_script(claims::release(&names, &attempt))
            );
        }
    }
}
