//! What every step of the engine may do, seen in the difference that it made.

use std::time::Duration;

use super::super::{Call, Placed, Role, Step, Touched};
use super::{Checker, Rule, Violation, allowance, violation};

/// What a token holds of a key after a step, or before it.
fn held<'a>(placed: &'a [Placed], step: &Step) -> Option<&'a Placed> {
    placed.iter().find(|placed| placed.token == step.token && placed.role.is_held())
}

/// What it held before, if that had not run out.
fn held_before<'a>(touched: &'a Touched, step: &Step, at: Duration) -> Option<&'a Placed> {
    held(&touched.before, step).filter(|before| before.expires > at)
}

/// What the step granted on this key.
fn granted<'a>(touched: &'a Touched, step: &Step, at: Duration) -> Option<&'a Placed> {
    let live = held(&touched.after, step).filter(|after| after.expires > at)?;
    held_before(touched, step, at).is_none().then_some(live)
}

/// Who is in the queue.
fn queue(placed: &[Placed], at: Duration) -> impl Iterator<Item = &Placed> {
    placed.iter().filter(move |placed| placed.role == Role::Queued && placed.expires > at)
}

impl Checker<'_> {
    fn touched(&self) -> impl Iterator<Item = (Duration, &Step, &Touched)> {
        self.index
            .steps
            .iter()
            .flat_map(|(at, step)| step.touched.iter().map(move |touched| (*at, *step, touched)))
    }

    // (b), (f): what the engine set.
    pub(super) fn expiries(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step, touched) in self.touched() {
            let (call, token, key, ttl) = (step.call, &step.token, &touched.key, touched.ttl);
            for waits in touched.after.iter().filter(|after| after.token == *token) {
                let set = matches!(waits.role, Role::Writer | Role::Queued | Role::Next)
                    && !touched.before.contains(waits);
                if set && waits.expires > at + step.patience + allowance(step.patience) {
                    let (role, until) = (waits.role, waits.expires.as_millis());
                    let what = format!("{token} is remembered on {key} as {role:?} until {until} ms");
                    found.push(violation(Rule::Leftover, at, what));
                }
            }
            if call == Call::Release
                && step.touched.len() == 1
                && touched.after.iter().any(|after| after.token == *token && after.role != Role::Done)
            {
                found.push(violation(
                    Rule::Leftover,
                    at,
                    format!("{token} released {key} and is still there"),
                ));
            }
            let Some(after) = held(&touched.after, step) else { continue };
            match held_before(touched, step, at) {
                None if call != Call::Acquire && after.expires > at => {
                    let what = format!("{call:?} brought {token} back on {key}");
                    found.push(violation(Rule::Leftover, at, what));
                }
                Some(before)
                    if call == Call::Acquire && !step.inherits && before.expires != after.expires =>
                {
                    let what = format!("asking again moved the expiry of {token} on {key}");
                    found.push(violation(Rule::Leftover, at, what));
                }
                Some(before) if before.expires > after.expires => {
                    let what = format!("{call:?} shortened the lease of {token} on {key}");
                    found.push(violation(Rule::FalseBelief, at, what));
                }
                Some(before) if before.expires == after.expires => {}
                _ if after.expires > at + ttl + allowance(ttl) => {
                    let (expires, ttl) = (after.expires.as_millis(), ttl.as_millis());
                    let what =
                        format!("{call:?} of {token} on {key} for {ttl} ms set its expiry to {expires} ms");
                    found.push(violation(Rule::Leftover, at, what));
                }
                _ => {}
            }
        }
        found
    }

    // (e)
    pub(super) fn trespasses(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step, touched) in self.touched() {
            let mine = granted(touched, step, at).is_some_and(|mine| mine.role == Role::Exclusive);
            for before in
                touched.before.iter().filter(|before| before.token != step.token && before.expires > at)
            {
                let same = touched.after.contains(before);
                let allowed = match before.role {
                    // Its turn has come.
                    Role::Queued => {
                        touched.after.iter().any(|p| p.token == before.token && p.role == Role::Heir)
                    }
                    Role::Writer => mine,
                    // The key is this one's now.
                    Role::Next => {
                        let heir = |p: &Placed| p.token == before.token && p.role == Role::Exclusive;
                        let waits_too = !step.inherits && !step.patience.is_zero();
                        let handed_over = step.call == Call::Release && touched.after.iter().any(heir);
                        handed_over || step.call == Call::Acquire && waits_too
                    }
                    _ => false,
                };
                if !same && !allowed {
                    let (call, token, other, key) = (step.call, &step.token, &before.token, &touched.key);
                    let what = format!("{call:?} of {token} changed what {other} had on {key}");
                    found.push(violation(Rule::Trespass, at, what));
                }
            }
        }
        found
    }

    // (l)
    pub(super) fn limits(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step, touched) in self.touched() {
            if granted(touched, step, at).is_none_or(|granted| granted.role != Role::Permit) {
                continue;
            }
            let held = touched.after.iter().filter(|p| p.role.is_held() && p.expires > at).count();
            let believed = self.index.holds.iter().filter(|hold| {
                hold.key == touched.key
                    && hold.token != step.token
                    && !hold.degraded
                    && hold.span.contains(at)
                    && !self.index.excuses_of(hold).any(|excuse| excuse.contains(at))
            });
            let most = held.max(believed.count() + 1);
            if u32::try_from(most).is_ok_and(|most| most > touched.of) {
                let (token, key, of) = (&step.token, &touched.key, touched.of);
                let what = format!("{token} got one of {of} permits on {key}, which makes {most}");
                found.push(violation(Rule::Limit, at, what));
            }
        }
        found
    }

    // (m)
    pub(super) fn turns(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step, touched) in self.touched() {
            let mut wrong =
                |what: String| found.push(violation(Rule::Turn, at, format!("{}: {what}", touched.key)));
            let (before, after) = (&touched.before, &touched.after);
            let heirs: Vec<_> = after.iter().filter(|p| p.role == Role::Heir && p.expires > at).collect();
            if heirs.len() > 1 {
                wrong(format!("kept for {} at once", heirs.len()));
            }
            let withdraws = |placed: &Placed| step.call == Call::Release && placed.token == step.token;
            let first = queue(before, at).find(|placed| !withdraws(placed));
            for heir in heirs.iter().filter(|heir| !before.contains(heir)) {
                if first.is_none_or(|first| first.token != heir.token) {
                    wrong(format!("handed over to {}, who was not first in the queue", heir.token));
                }
                if after.iter().any(|p| p.role.is_held() && p.expires > at) {
                    wrong(format!("kept for {} while it is held", heir.token));
                }
            }
            let stood: Vec<_> = queue(before, at).map(|placed| &placed.token).collect();
            let stands: Vec<_> = queue(after, at).map(|placed| &placed.token).collect();
            let stayed = stood.iter().filter(|token| stands.contains(token));
            if !stayed.eq(stands.iter().take_while(|token| stood.contains(token))) {
                wrong("the queue is out of order".to_owned());
            }
            let Some(granted) = granted(touched, step, at) else { continue };
            let token = &step.token;
            if after.iter().any(|p| p.token == *token && !p.role.is_held()) {
                wrong(format!("{token} was granted and still waits"));
            }
            let was_heir = before.iter().any(|p| p.token == *token && p.role == Role::Heir);
            if step.queues && !was_heir && first.is_some_and(|first| first.token != *token) {
                wrong(format!("{token} overtook the queue"));
            }
            let writer =
                before.iter().find(|p| p.role == Role::Writer && p.token != *token && p.expires > at);
            if let (Role::Shared, Some(writer)) = (granted.role, writer) {
                wrong(format!("{token} reads although {} waits to write", writer.token));
            }
        }
        found
    }

    // (n)
    pub(super) fn partial(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (at, step) in self.index.steps.iter().filter(|(_, step)| step.touched.len() > 1) {
            let (call, token, claims) = (step.call, &step.token, step.touched.len());
            let count =
                |of: &dyn Fn(&Touched) -> bool| step.touched.iter().filter(|touched| of(touched)).count();
            let new = count(&|touched| granted(touched, step, *at).is_some());
            let (done, whole) = match call {
                Call::Acquire if new > 0 => (count(&|touched| held(&touched.after, step).is_some()), claims),
                Call::Release => {
                    let there = |after: &Placed| after.token == *token && after.role != Role::Done;
                    (count(&|touched| !touched.after.iter().any(there)), claims)
                }
                Call::Renew => {
                    let extended = |touched: &Touched| {
                        let before = held(&touched.before, step).map(|before| before.expires);
                        held(&touched.after, step).map(|after| after.expires) > before
                    };
                    let whole = |touched: &Touched| {
                        let least = (*at + touched.ttl).saturating_sub(allowance(touched.ttl));
                        held(&touched.after, step).is_some_and(|after| after.expires >= least)
                    };
                    let extended = count(&extended);
                    if extended == 0 { (0, 0) } else { (count(&whole), claims) }
                }
                _ => (0, 0),
            };
            if done < whole {
                let what = format!("{call:?} of {token} was carried out for {done} of {claims} claims");
                found.push(violation(Rule::Partial, *at, what));
            }
        }
        found
    }
}
