//! From attempts to calls of scripts, and from answers back: which script serves what, and what its words mean.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::address::Replicas;
use super::error::{nonsense, refused_in_words};
use super::keys::{AroundQueue, Names, joined};
use super::scripts::{self, Call, Lua};
use super::wire::Packed;
use crate::lease::{Attempt, Claim, ClaimKey, Fence, Holder, Mode, Patience, Record, Space, Token};
use crate::store::{Denial, ErrorKind, Grant, StoreError, Verdict};

/// What stands before the token in the value of a key that is held by readers.
const MARKER: &str = "shared:";

/// What stands before the token in the value of a finished key, in a space that keeps records. After the token comes a
/// line feed, and then the record.
const DONE: &[u8] = b"done:";

/// The longest time that is sent: far beyond any life, and safe to add to a clock.
const LONGEST: u64 = 1 << 50;

/// Floors from here on leave a fence no room; in microseconds since 1970 it is the year 2112.
const TOO_HIGH: u64 = 1 << 52;

/// Which scripts serve an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// One exclusive claim, out of the queue.
    Plain,
    /// One exclusive claim on a lock, in the key's queue.
    Queued {
        confirm: Duration,
    },
    /// One permit.
    Permit {
        of: NonZeroU32,
    },
    General,
}

pub(super) fn way(attempt: &Attempt) -> Way {
    match (attempt.claims(), attempt.patience()) {
        ([claim], Patience::Queue { confirm, .. })
            if claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock =>
        {
            Way::Queued { confirm }
        }
        ([claim], _) => match claim.mode() {
            Mode::Exclusive => Way::Plain,
            Mode::Permit { of } if !matches!(attempt.patience(), Patience::Queue { .. }) => {
                Way::Permit { of }
            }
            _ => Way::General,
        },
        _ => Way::General,
    }
}

/// Whole milliseconds, at least one.
pub(super) fn millis(time: Duration) -> u64 {
    whole_millis(time).max(1)
}

/// The same, or none.
pub(super) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(LONGEST)
}

/// How long a writer that readers deny is remembered, in milliseconds; `None` for one that does not wait.
fn noted_for(patience: Patience) -> Option<u64> {
    match patience {
        Patience::Wait { again_within, .. } if !patience.left().is_zero() => {
            Some(millis(patience.left().min(again_within)))
        }
        Patience::Try | Patience::Wait { .. } | Patience::Queue { .. } => None,
    }
}

/// For how long the key is kept for it if it is handed over, if it can be. Such a one says so whenever it asks, because its own
/// token may be in the way, and then it has only so much time.
fn inherits(attempt: &Attempt) -> Option<Duration> {
    match (way(attempt), attempt.claims()) {
        (Way::Plain, [claim]) if claim.on().space == Space::Lock && claim.fence_floor().is_none() => {
            attempt.patience().inherits().map(|kept_for| kept_for.min(claim.ttl()))
        }
        _ => None,
    }
}

/// Why this store does not serve an attempt, if it does not.
pub(super) fn unsupported(attempt: &Attempt) -> Option<StoreError> {
    let refused = |message: String| Some(StoreError::not_applied(ErrorKind::Unsupported, message));
    if matches!(attempt.patience(), Patience::Queue { .. }) && !matches!(way(attempt), Way::Queued { .. }) {
        return refused("a queue is for a single exclusive claim on a lock".to_owned());
    }
    let fenced = attempt.claims().iter().filter_map(|claim| Some((claim, claim.fence_floor()?)));
    for (claim, floor) in fenced {
        if claim.mode() != Mode::Exclusive {
            return refused(format!("only exclusive claims have fences, not {claim:?}"));
        }
        if floor.get() / Fence::STEP >= TOO_HIGH {
            return refused(format!("there is no fence above the floor {floor}"));
        }
    }
    None
}

/// The floor in the engine's own count.
fn floor(claim: &Claim) -> Option<u64> {
    claim.fence_floor().map(|floor| floor.get() / Fence::STEP)
}

/// The call that acquires an attempt which is supported.
pub(super) fn acquire(names: &Names, attempt: &Attempt, replicas: Option<Replicas>) -> Call {
    acquire_by(names, attempt, replicas.is_some()).confirmed_by(replicas)
}

fn acquire_by(names: &Names, attempt: &Attempt, confirmed_by_others: bool) -> Call {
    let (token, patience) = (attempt.token().as_str(), attempt.patience());
    match (way(attempt), attempt.claims()) {
        (Way::Plain, [claim]) if claim.fence_floor().is_none() => {
            let on = claim.on();
            let call = scripts::ACQUIRE.call().key(names.key(on)).arg(token).arg(millis(claim.ttl()));
            let noted_for = noted_for(patience).filter(|_| on.space == Space::Lock);
            match (inherits(attempt).filter(|_| !confirmed_by_others), noted_for) {
                (Some(kept_for), noted_for) => {
                    // What it would have by the news must still be worth having when they come.
                    let lives = millis((kept_for / 2).min(patience.left()));
                    let call = call.key(names.writer(on)).arg(noted_for.unwrap_or(0)).arg(lives);
                    call.arg(format!("{} {} ", millis(kept_for), names.asked_now()))
                }
                (None, Some(noted_for)) => call.key(names.writer(on)).arg(noted_for),
                (None, None) => call,
            }
        }
        (Way::Queued { confirm }, [claim]) => {
            let (around, floor) = (names.around_queue(claim.on()), floor(claim));
            let call = in_queue(&scripts::ACQUIRE_QUEUED, &around);
            let call = if floor.is_some() { call.key(names.fence(claim.on())) } else { call };
            let call = call.arg(token).arg(millis(claim.ttl())).arg(whole_millis(patience.left()));
            let call = call.arg(millis(confirm)).arg(joined(around.channel())).arg(names.listener());
            match floor {
                // Its number is given when it asks.
                Some(floor) => call.arg("").arg(floor),
                None if confirmed_by_others => call.arg(""),
                None => call.arg(names.asked_now()),
            }
        }
        (Way::Plain, [claim]) if claim.on().space == Space::Lock => {
            let on = claim.on();
            let call = scripts::ACQUIRE_FENCED.call().key(names.key(on)).key(names.fence(on));
            let call = call.arg(token).arg(millis(claim.ttl())).arg(floor(claim).unwrap_or_default());
            match noted_for(patience) {
                Some(noted_for) => call.key(names.writer(on)).arg(noted_for),
                None => call,
            }
        }
        (Way::Permit { of }, [claim]) => {
            let call = scripts::ACQUIRE_PERMIT.call().key(names.key(claim.on()));
            call.arg(token).arg(millis(claim.ttl())).arg(of.get())
        }
        (_, claims) => acquire_all(names, token, noted_for(patience).unwrap_or(0), claims.iter()),
    }
}

/// The plain command that grants what is free, for an attempt that needs no more than that. A note on a writer stays as it is.
pub(super) fn set(names: &Names, attempt: &Attempt) -> Option<Packed> {
    let [claim] = attempt.claims() else { return None };
    if way(attempt) != Way::Plain || claim.fence_floor().is_some() {
        return None;
    }
    let (key, token) = (names.key_parts(claim.on()), attempt.token().as_str());
    let set = Packed::command(6, length(&key) + token.len() + 40).word("SET").joined(key).word(token);
    Some(set.word("NX").word("PX").number(millis(claim.ttl())))
}

fn acquire_all<'a>(
    names: &Names,
    token: &str,
    noted_for: impl redis::ToSingleRedisArg,
    claims: impl Iterator<Item = &'a Claim>,
) -> Call {
    claims.fold(scripts::ACQUIRE_ALL.call().arg(token).arg(noted_for), |call, claim| {
        let ttl = millis(claim.ttl());
        let call = match (claim.mode(), floor(claim)) {
            (Mode::Exclusive, None) if claim.on().space == Space::Lock => writer(call, names, claim.on()),
            (Mode::Exclusive, Some(_)) => fenced(call, names, claim.on()),
            _ => one(call, names, claim),
        };
        match (claim.mode(), floor(claim)) {
            (Mode::Permit { of }, _) => call.arg(ttl).arg(of.get()),
            (_, Some(floor)) => call.arg(ttl).arg(floor),
            _ => call.arg(ttl).arg(""),
        }
    })
}

/// Some claims of an attempt, by their places in it.
pub(super) fn some<'a>(of: &'a Attempt, places: &'a [usize]) -> impl Iterator<Item = &'a Claim> {
    places.iter().filter_map(|place| of.claims().get(*place))
}

/// The call that acquires some claims of an attempt, all of them or none.
pub(super) fn acquire_some(names: &Names, attempt: &Attempt, places: &[usize]) -> Call {
    let noted_for = noted_for(attempt.patience()).unwrap_or(0);
    acquire_all(names, attempt.token().as_str(), noted_for, some(attempt, places))
}

/// The call that only looks whether they could be.
pub(super) fn look_at_some(names: &Names, attempt: &Attempt, places: &[usize]) -> Call {
    acquire_all(names, attempt.token().as_str(), -1, some(attempt, places))
}

/// What became of some claims of an attempt.
#[derive(Debug)]
pub(super) enum Part {
    /// They are held: their fences, and the places of those that were not held before.
    Granted {
        fences: Vec<Option<Fence>>,
        new: Vec<usize>,
    },
    Denied(Denial),
}

/// The answer to [`acquire_some`] or [`look_at_some`], with places in the whole attempt.
pub(super) fn part(attempt: &Attempt, places: &[usize], answer: Value) -> Result<Part, StoreError> {
    match answer {
        Value::Array(words) if words.first() == Some(&Value::Int(0)) => {
            let mut words = words.into_iter().skip(1);
            let fences = words.by_ref().take(places.len()).map(fence).collect::<Result<_, _>>()?;
            let new = places.iter().zip(words).filter(|(_, new)| *new == Value::Int(1));
            Ok(Part::Granted { fences, new: new.map(|(place, _)| *place).collect() })
        }
        words => {
            let (within, kind, holder, left, again): (usize, String, Vec<u8>, i64, i64) =
                redis::from_redis_value(words).map_err(nonsense)?;
            let place =
                within.checked_sub(1).and_then(|within| places.get(within)).copied().unwrap_or_default();
            match denied(attempt, place + 1, &kind, holder, left, again) {
                Verdict::Denied(denial) => Ok(Part::Denied(denial)),
                Verdict::Granted(_) => Ok(Part::Denied(Denial::default())),
            }
        }
    }
}

/// The call that renews some claims of a lease, all of them or none.
pub(super) fn renew_some(names: &Names, lease: &Attempt, places: &[usize]) -> Call {
    let call = scripts::RENEW_EACH.call().arg(lease.token().as_str()).arg(places.len());
    some(lease, places).fold(call, |call, claim| one(call, names, claim).arg(millis(claim.ttl())))
}

/// The call that gives some claims of a lease back.
pub(super) fn release_some(names: &Names, lease: &Attempt, places: &[usize]) -> Call {
    release_all(names, lease, some(lease, places))
}

fn release_all<'a>(names: &Names, lease: &Attempt, claims: impl Iterator<Item = &'a Claim>) -> Call {
    let waits = matches!(lease.patience(), Patience::Wait { .. });
    claims.fold(scripts::RELEASE_ALL.call().arg(lease.token().as_str()), |call, claim| {
        let noted = waits && claim.mode() == Mode::Exclusive && claim.on().space == Space::Lock;
        let call = if noted { writer(call, names, claim.on()) } else { one(call, names, claim) };
        call.arg(names.channel(claim.on()))
    })
}

/// The kind and the keys of a claim, as `claims.lua` reads them.
fn one(call: Call, names: &Names, claim: &Claim) -> Call {
    let on = claim.on();
    match claim.mode() {
        Mode::Exclusive => call.arg("x").key(names.key(on)),
        Mode::Shared => shared(call, names, on),
        Mode::Permit { .. } => call.arg("p").key(names.key(on)),
    }
}

fn shared(call: Call, names: &Names, on: &ClaimKey) -> Call {
    call.arg("s").key(names.key(on)).key(names.readers(on)).key(names.writer(on))
}

fn writer(call: Call, names: &Names, on: &ClaimKey) -> Call {
    call.arg("w").key(names.key(on)).key(names.writer(on))
}

fn fenced(call: Call, names: &Names, on: &ClaimKey) -> Call {
    call.arg("f").key(names.key(on)).key(names.writer(on)).key(names.fence(on))
}

/// What a key may be held by, for scripts that look at a key and know of no claim.
fn kind_of_key(call: Call, names: &Names, on: &ClaimKey) -> Call {
    match on.space {
        Space::Lock => shared(call, names, on),
        Space::Duplicate | Space::Idempotency => call.arg("x").key(names.key(on)),
        Space::Permit => call.arg("p").key(names.key(on)),
    }
}

/// Whether a lease was granted by the news that its turn has come.
pub(super) fn took_turn(lease: &Attempt) -> bool {
    lease.route().took_turn()
}

/// A call about a queue, with its keys.
fn in_queue(script: &'static Lua, around: &AroundQueue<'_>) -> Call {
    let call = script.call().key(around.key().to_owned()).key(joined(around.queue()));
    call.key(joined(around.queued())).key(joined(around.writer()))
}

/// The call that renews a lease of the common kind, and `None` for others.
pub(super) fn renew(names: &Names, lease: &Attempt) -> Option<Call> {
    match (way(lease), lease.claims()) {
        (way @ (Way::Plain | Way::Queued { .. }), [claim]) => {
            let call = scripts::RENEW.call().key(names.key(claim.on()));
            let call = match way {
                Way::Queued { .. } => {
                    let [_, queued] = names.queue(claim.on());
                    call.key(queued)
                }
                _ => call,
            };
            Some(call.arg(lease.token().as_str()).arg(millis(claim.ttl())).arg(u8::from(took_turn(lease))))
        }
        _ => None,
    }
}

/// The call that renews each of these leases.
pub(super) fn renew_each<'a>(names: &Names, leases: impl Iterator<Item = &'a Attempt>) -> Call {
    leases.fold(scripts::RENEW_EACH.call(), |call, lease| {
        let call = call.arg(lease.token().as_str()).arg(lease.claims().len());
        lease.claims().iter().fold(call, |call, claim| one(call, names, claim).arg(millis(claim.ttl())))
    })
}

/// Whether one lease of those was extended.
pub(super) fn extended(answer: Value) -> Result<bool, StoreError> {
    match answer {
        Value::BulkString(words) => Err(refused_in_words(&String::from_utf8_lossy(&words))),
        answer => redis::from_redis_value(answer).map_err(nonsense),
    }
}

/// The call that releases a lease or withdraws an attempt.
pub(super) fn release(names: &Names, lease: &Attempt) -> Call {
    let token = lease.token().as_str();
    match (way(lease), lease.claims()) {
        (Way::Plain, [claim]) => {
            let on = claim.on();
            let call = scripts::RELEASE.call().key(names.key(on)).arg(token).arg(told_on(names, on));
            if notes_writers(lease) && on.space == Space::Lock { call.key(names.writer(on)) } else { call }
        }
        (Way::Queued { .. }, [claim]) => {
            let around = names.around_queue(claim.on());
            let call = in_queue(&scripts::RELEASE_QUEUED, &around);
            call.arg(token).arg(joined(around.channel())).arg(u8::from(took_turn(lease)))
        }
        (Way::Permit { .. }, [claim]) => {
            let on = claim.on();
            scripts::RELEASE_PERMIT.call().key(names.key(on)).arg(token).arg(names.channel(on))
        }
        (_, claims) => release_all(names, lease, claims.iter()),
    }
}

/// Whether the engine may have a note on it as a writer that waits.
fn notes_writers(lease: &Attempt) -> bool {
    matches!(lease.patience(), Patience::Wait { .. })
}

/// The same by its hash and ready to go, for what is nearly always released.
pub(super) fn release_known(names: &Names, lease: &Attempt) -> Option<Packed> {
    let [claim] = lease.claims() else { return None };
    if way(lease) != Way::Plain {
        return None;
    }
    let (on, token, hash) = (claim.on(), lease.token().as_str(), scripts::RELEASE.hash());
    let (key, channel) = (names.key_parts(on), names.channel_parts(on));
    let noted = notes_writers(lease) && on.space == Space::Lock;
    let words = 6 + usize::from(noted);
    let writer = if noted { length(&key) + length(&channel) } else { 0 };
    let bytes = length(&key) + token.len() + length(&channel) + writer + hash.len() + 48;
    let release = Packed::command(words, bytes).word("EVALSHA").word(hash);
    let release = if noted {
        release.word("2").joined(key).word(&names.writer(on))
    } else {
        release.word("1").joined(key)
    };
    let release = release.word(token);
    Some(if on.space.is_waited_for() { release.joined(channel) } else { release.word("") })
}

/// The channel on which the end of a lease is told; empty where nobody waits for it.
fn told_on(names: &Names, on: &ClaimKey) -> String {
    if on.space.is_waited_for() { names.channel(on) } else { String::new() }
}

/// How long they are together.
fn length(parts: &[&str]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// The call that finishes a lease of this one claim.
pub(super) fn complete(
    names: &Names,
    lease: &Attempt,
    claim: &Claim,
    record: &Record,
    ttl: Option<Duration>,
) -> Call {
    let on = claim.on();
    let call =
        scripts::COMPLETE.call().key(names.key(on)).arg(lease.token().as_str()).arg(told_on(names, on));
    call.bytes(record.as_bytes()).arg(ttl.map_or(0, millis)).arg(millis(claim.ttl()))
}

/// The verdict on an attempt.
pub(super) fn verdict(attempt: &Attempt, answer: Value) -> Result<Verdict, StoreError> {
    match answer {
        Value::Int(0) => Ok(Verdict::granted()),
        Value::Array(words) if words.first() == Some(&Value::Int(0)) => granted(attempt, words),
        // Of the one claim of the common kind.
        Value::Array(words) if words.len() == 2 => {
            let (holder, left): (Vec<u8>, i64) =
                redis::from_redis_value(Value::Array(words)).map_err(nonsense)?;
            Ok(denied(attempt, 1, "v", holder, left, left))
        }
        // Of one in a queue.
        Value::BulkString(words) if matches!(attempt.patience(), Patience::Queue { .. }) => {
            let mut words = words.splitn(3, |byte| *byte == b' ');
            let (left, again) = (number(words.next())?, number(words.next())?);
            let holder = words.next().unwrap_or_default().to_vec();
            Ok(denied(attempt, 1, "v", holder, left, again))
        }
        // Of the one claim with a fence.
        Value::BulkString(_) => Ok(Verdict::Granted(Grant { fences: vec![fence(answer)?] })),
        words => {
            let (place, kind, holder, left, again): (usize, String, Vec<u8>, i64, i64) =
                redis::from_redis_value(words).map_err(nonsense)?;
            Ok(denied(attempt, place, &kind, holder, left, again))
        }
    }
}

/// A number in a text.
fn number(digits: Option<&[u8]>) -> Result<i64, StoreError> {
    let digits = std::str::from_utf8(digits.unwrap_or_default()).map_err(nonsense)?;
    digits.parse().map_err(nonsense)
}

fn denied(attempt: &Attempt, place: usize, kind: &str, value: Vec<u8>, left: i64, again: i64) -> Verdict {
    let claim = place.saturating_sub(1);
    let of = attempt.claims().get(claim);
    let finished = |claim: &Claim| kind == "v" && claim.on().space.keeps_records() && value.starts_with(DONE);
    let (holder, done) = if of.is_some_and(finished) {
        (None, Some(record(value)))
    } else {
        (of.and_then(|claim| named(claim, kind, &value, left)), None)
    };
    Verdict::Denied(Denial { claim, holder, retry_after: time_left(again), done })
}

/// The record in the value of a finished key.
fn record(value: Vec<u8>) -> Record {
    let line = value.iter().position(|byte| *byte == b'\n');
    let begins = line.map_or(value.len(), |line| line + 1);
    Record::new(Bytes::from(value).slice(begins..))
}

fn granted(attempt: &Attempt, words: Vec<Value>) -> Result<Verdict, StoreError> {
    if attempt.claims().iter().all(|claim| claim.fence_floor().is_none()) {
        return Ok(Verdict::granted());
    }
    let fences =
        words.into_iter().skip(1).take(attempt.claims().len()).map(fence).collect::<Result<_, _>>()?;
    Ok(Verdict::Granted(Grant { fences }))
}

/// The fence that an engine's number stands for, if it is one.
fn fence(number: Value) -> Result<Option<Fence>, StoreError> {
    let digits: String = redis::from_redis_value(number).map_err(nonsense)?;
    if digits.is_empty() {
        return Ok(None);
    }
    let number: u64 = digits.parse().map_err(nonsense)?;
    Ok(Some(Fence::new(number.saturating_mul(Fence::STEP))))
}

/// The holder that a denial names.
fn named(claim: &Claim, kind: &str, holder: &[u8], left: i64) -> Option<Holder> {
    let on = claim.on().clone();
    match kind {
        "v" if left != -2 => {
            let token = token(holder);
            // Only Clinch's own tokens are named by markers; anything else that begins like one is another client's.
            let reader = token.as_str().strip_prefix(MARKER).map(Token::from_text);
            Some(match reader.filter(|reader| reader.owner().is_some()) {
                Some(reader) => Holder::new(on, Mode::Shared, reader, time_left(left)),
                None => Holder::new(on, Mode::Exclusive, token, time_left(left)),
            })
        }
        "s" => Some(Holder::new(on, Mode::Shared, token(holder), time_left(left))),
        // Of how many the holder's own claim was is not kept; this one's is what counted.
        "p" => Some(Holder::new(on, claim.mode(), token(holder), time_left(left))),
        _ => None,
    }
}

/// Another client's value may be any bytes; it is only shown, and compared where it is text.
fn token(bytes: &[u8]) -> Token {
    match std::str::from_utf8(bytes) {
        Ok(text) => Token::from_text(text),
        Err(_) => Token::from_text(String::from_utf8_lossy(bytes)),
    }
}

/// `PTTL`'s answer: never less than 1 ms; `None` for a key that has no expiry or was gone again.
fn time_left(pttl: i64) -> Option<Duration> {
    match pttl {
        -1 | -2 => None,
        pttl => Some(Duration::from_millis(u64::try_from(pttl).unwrap_or_default().max(1))),
    }
}

/// The call that looks at these keys. `strict`: one that is no lease is an error.
pub(super) fn inspect(names: &Names, on: &[ClaimKey], strict: bool) -> Call {
    on.iter().fold(scripts::INSPECT.call().arg(u8::from(strict)), |call, on| {
        let call = kind_of_key(call, names, on);
        if on.space == Space::Permit { call } else { call.key(names.fence(on)) }
    })
}

/// The holders of one of those keys.
pub(super) fn holders(on: &ClaimKey, found: Vec<Value>) -> Result<Vec<Holder>, StoreError> {
    let of = u32::try_from(found.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    let holder = |found: Value| {
        let (kind, value, left, number): (String, Vec<u8>, i64, Value) =
            redis::from_redis_value(found).map_err(nonsense)?;
        let mode = match kind.as_str() {
            "s" => Mode::Shared,
            // Of how many each holder's claim was is not kept; this many are held.
            "p" => Mode::Permit { of },
            _ => Mode::Exclusive,
        };
        let holder = Holder::new(on.clone(), mode, token(&value), time_left(left));
        Ok(holder.with_fence(fence(number)?))
    };
    found.into_iter().map(holder).collect()
}

/// The call that ends one holder's lease.
pub(super) fn revoke(names: &Names, on: &ClaimKey, token: &Token) -> Call {
    let call = scripts::REVOKE.call().arg(token.as_str()).arg(names.channel(on)).arg(names.revocations());
    kind_of_key(call, names, on)
}
