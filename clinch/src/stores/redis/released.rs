//! What a release gave back, and whom it told, as the scripts say it.

use redis::Value;

use super::claims::{Way, way};
use super::error::nonsense;
use super::keys::Names;
use super::wake::Wake;
use crate::lease::{Attempt, Claim};
use crate::store::StoreError;

/// What a release gave back, and whom it told.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) held: bool,
    /// How many heard that the key is kept for them now.
    pub(super) heirs: usize,
    /// The channels on which somebody heard it, and how many subscribers the server says that were.
    pub(super) told: Vec<(String, usize)>,
}

impl Released {
    /// How many were woken.
    pub(super) fn woken(self, wake: &Wake) -> usize {
        let fired = self.told.into_iter().map(|(channel, receivers)| wake.fired(&channel, receivers));
        fired.sum::<usize>() + self.heirs
    }

    /// Nobody hears most releases, and then no channel need be named.
    fn new(held: bool, receivers: usize, channel: impl FnOnce() -> String) -> Self {
        let told = if receivers == 0 { Vec::new() } else { vec![(channel(), receivers)] };
        Self { held, heirs: 0, told }
    }
}

/// Whether it was held, and how many heard of it, as scripts tell that in one number.
fn held_and_heard(woken: i64) -> (bool, usize) {
    let held = woken >= 0;
    let heard = if held { woken } else { -1 - woken };
    (held, heard.try_into().unwrap_or(0))
}

/// What became of a release; or of a completion, which answers as the release of one exclusive claim does.
pub(super) fn released(names: &Names, lease: &Attempt, answer: Value) -> Result<Released, StoreError> {
    match (way(lease), lease.claims()) {
        (Way::Plain, [claim]) => {
            let woken: i64 = redis::from_redis_value(answer).map_err(nonsense)?;
            let (held, receivers) = held_and_heard(woken);
            Ok(Released::new(held, receivers, || names.channel(claim.on())))
        }
        (Way::Queued { .. }, [claim]) => {
            if let Value::Int(heard) = answer {
                let (held, heirs) = held_and_heard(heard);
                return Ok(Released { held, heirs, told: Vec::new() });
            }
            let (held, receivers): (bool, usize) = redis::from_redis_value(answer).map_err(nonsense)?;
            Ok(Released::new(held, receivers, || names.channel(claim.on())))
        }
        (_, claims) => released_some(names, claims.iter(), answer),
    }
}

/// What became of a release of some claims.
pub(super) fn released_some<'a>(
    names: &Names,
    claims: impl Iterator<Item = &'a Claim>,
    answer: Value,
) -> Result<Released, StoreError> {
    let answer: Vec<usize> = redis::from_redis_value(answer).map_err(nonsense)?;
    let mut answer = answer.into_iter();
    let held = answer.next() == Some(1);
    let heard = claims.zip(answer).filter(|(_, receivers)| *receivers > 0);
    let told = heard.map(|(claim, receivers)| (names.channel(claim.on()), receivers)).collect();
    Ok(Released { held, heirs: 0, told })
}
