//! A history as text: one event a line, the same for the same seed.

use std::fmt;
use std::time::Duration;

use super::{Entry, Event, Header, HeldClaim, Placed, Step, Tag, Touched};

struct Ms(Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_millis(), self.0.subsec_micros() % 1000)
    }
}

struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, call_limit, latest_landing, quiet, nodes } = self;
        let (limit, landing) = (call_limit.as_millis(), latest_landing.as_millis());
        write!(
            f,
            "history seed={seed} call_limit={limit} latest_landing={landing} quiet={quiet} nodes={nodes}"
        )
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {}", Ms(self.at).to_string(), self.event)
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}<{}", self.token, self.role, Ms(self.expires))?;
        self.fence.map_or(Ok(()), |fence| write!(f, "#{fence}"))
    }
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, role, of, ttl, floor, before, after } = self;
        write!(f, "[{key} {role:?}/{of} ttl={} floor={}:", ttl.as_millis(), Maybe(*floor))?;
        before.iter().try_for_each(|placed| write!(f, " {placed}"))?;
        f.write_str(" ->")?;
        after.iter().try_for_each(|placed| write!(f, " {placed}"))?;
        f.write_str("]")
    }
}

impl fmt::Display for HeldClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, role, ttl, fence } = self;
        write!(f, "[{key} {role:?} ttl={} fence={}]", ttl.as_millis(), Maybe(*fence))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoke { op, client, key, wish } => write!(f, "invoke #{op} c{client} {key} {wish:?}"),
            Self::Complete { op, outcome } => write!(f, "complete #{op} {outcome:?}"),
            Self::Held { op, client, token, claims, degraded } => {
                write!(f, "held #{op} c{client} {token}")?;
                claims.iter().try_for_each(|claim| write!(f, " {claim}"))?;
                if *degraded { f.write_str(" degraded") } else { Ok(()) }
            }
            Self::Ended { op, token, how } => write!(f, "ended #{op} {token} {how:?}"),
            Self::Probe { op, token, valid } => write!(f, "probe #{op} {token} valid={valid}"),
            Self::Write { op, key, token, fence, taken } => {
                write!(f, "write #{op} {key} {token} fence={fence} taken={taken}")
            }
            Self::Stopped { client, until } => write!(f, "stopped c{client} until={}", Ms(*until)),
            Self::Port { client, op, call, token, answer } => {
                write!(f, "port c{client} #{} {call:?} {token} {answer:?}", Maybe(*op))
            }
            Self::Sent { client, op, call, token, connection } => {
                write!(f, "sent c{client} #{} {call:?} {token} over={connection}", Maybe(*op))
            }
            Self::Step(step) => {
                let Step { node, client, call, connection, token, patience, touched, .. } = step;
                let patience = patience.as_millis();
                write!(f, "engine n{node} c{client} {call:?} {token} over={connection} patience={patience}")?;
                touched.iter().try_for_each(|touched| write!(f, " {touched}"))
            }
            Self::Forgot { node, key, place } => write!(f, "engine n{node} forgot {key} {place}"),
            Self::Rewound { node, key, before, after } => {
                write!(f, "engine n{node} rewound [{key}:")?;
                before.iter().try_for_each(|placed| write!(f, " {placed}"))?;
                f.write_str(" ->")?;
                after.iter().try_for_each(|placed| write!(f, " {placed}"))?;
                f.write_str("]")
            }
            Self::Fault { id } => write!(f, "fault {id}"),
            Self::Shutdown { client, unreleased, guards } => {
                write!(f, "shutdown c{client} unreleased={unreleased} guards={guards}")
            }
            Self::Panicked { client } => write!(f, "panicked c{client}"),
            Self::End { left } => {
                write!(f, "end left={}", left.len())?;
                left.iter().try_for_each(|(key, token)| write!(f, " {key}:{token}"))
            }
        }
    }
}
