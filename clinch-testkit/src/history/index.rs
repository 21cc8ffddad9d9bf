//! A history, sorted for checking: who believed to hold what, who really did, and which belief is excused.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Call, Event, History, Outcome, Placed, Step, Tag, Wish};

/// News of a revocation takes this long at most where no fault can happen.
const NOTICE: Duration = Duration::from_millis(250);

/// A stretch of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Span {
    /// Whether the two have an instant in common.
    pub(super) fn meets(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    /// What the two have in common, if that is more than an instant.
    pub(super) fn overlap(self, other: Self) -> Option<Self> {
        let common = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (common.from < common.to).then_some(common)
    }

    /// The first instant that `covers` leave open, if they do not cover all of it.
    pub(super) fn gap(self, covers: impl IntoIterator<Item = Self>) -> Option<Duration> {
        let mut covers: Vec<_> = covers.into_iter().collect();
        covers.sort_by_key(|cover| cover.from);
        let mut open = self.from;
        for cover in covers {
            if cover.from <= open {
                open = open.max(cover.to);
            }
        }
        (open < self.to).then_some(open)
    }
}

/// What a caller believed to hold.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) client: usize,
    pub(super) key: String,
    pub(super) token: Tag,
    pub(super) span: Span,
    /// Which event ended it, by its place in the history: instants are coarse, and order matters.
    pub(super) ended_by: Option<usize>,
}

/// What the engine really had under a token, without a break.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) client: usize,
    pub(super) key: String,
    pub(super) token: Tag,
    pub(super) ttl: Duration,
    pub(super) span: Span,
    /// When it was extended last; its beginning if it never was.
    pub(super) last_set: Duration,
}

/// A lease that was taken away from its holder may be believed in until then: its holder cannot know better.
#[derive(Debug)]
pub(super) struct Excuse {
    pub(super) key: String,
    pub(super) token: Tag,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) client: usize,
    pub(super) key: String,
    pub(super) wish: Wish,
    pub(super) began: Duration,
    /// Which event began it, by its place in the history.
    pub(super) begun_by: usize,
    pub(super) ended: Option<(Duration, Outcome)>,
}

impl Operation {
    pub(super) fn span(&self) -> Option<Span> {
        self.ended.as_ref().map(|(to, _)| Span { from: self.began, to: *to })
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.ended.as_ref().map(|(_, outcome)| outcome)
    }
}

#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    pub(super) holds: Vec<Hold>,
    pub(super) tenures: Vec<Tenure>,
    pub(super) excuses: Vec<Excuse>,
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) steps: Vec<(Duration, &'a Step)>,
    pub(super) end: Duration,
}

impl<'a> Index<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut index =
            Self { end: history.entries.last().map_or(Duration::ZERO, |last| last.at), ..Self::default() };
        let mut engine = Engine::default();
        for (place, entry) in history.entries.iter().enumerate() {
            let at = entry.at;
            match &entry.event {
                Event::Invoke { op, client, key, wish } => {
                    let operation = Operation {
                        client: *client,
                        key: key.clone(),
                        wish: wish.clone(),
                        began: at,
                        begun_by: place,
                        ended: None,
                    };
                    index.operations.insert(*op, operation);
                }
                Event::Complete { op, outcome } => {
                    if let Some(operation) = index.operations.get_mut(op) {
                        operation.ended = Some((at, outcome.clone()));
                    }
                }
                Event::Held { client, key, token, .. } => {
                    let span = Span { from: at, to: index.end };
                    let (key, token) = (key.clone(), token.clone());
                    index.holds.push(Hold { client: *client, key, token, span, ended_by: None });
                }
                Event::Ended { token, .. } => index.end_hold(token, at, place),
                Event::Step(step) => {
                    index.steps.push((at, step));
                    index.tenures.extend(engine.step(at, step));
                    index.excuses.extend(excused_by_revocation(at, step, history.header.quiet));
                }
                Event::Forgot { key, place: lost } => {
                    index.tenures.extend(engine.close(key, at));
                    let (key, token) = (key.clone(), lost.token.clone());
                    index.excuses.push(Excuse { key, token, span: Span { from: at, to: lost.expires } });
                }
                _ => {}
            }
        }
        index.tenures.extend(engine.finish(index.end));
        index.tenures.sort_by_key(|tenure| tenure.span.from);
        index
    }

    /// The last hold under this token that has not ended yet ends here.
    fn end_hold(&mut self, token: &Tag, at: Duration, place: usize) {
        let open = |hold: &&mut Hold| hold.token == *token && hold.ended_by.is_none();
        if let Some(hold) = self.holds.iter_mut().rev().find(open) {
            hold.span.to = at;
            hold.ended_by = Some(place);
        }
    }

    pub(super) fn tenures_of<'b>(&'b self, key: &'b str, token: &'b Tag) -> impl Iterator<Item = &'b Tenure> {
        self.tenures.iter().filter(move |tenure| tenure.key == key && tenure.token == *token)
    }

    pub(super) fn excuses_of<'b>(&'b self, key: &'b str, token: &'b Tag) -> impl Iterator<Item = Span> + 'b {
        let of = self.excuses.iter().filter(move |excuse| excuse.key == key && excuse.token == *token);
        of.map(|excuse| excuse.span)
    }
}

fn excused_by_revocation(at: Duration, step: &Step, quiet: bool) -> Option<Excuse> {
    let before = step.before.as_ref().filter(|before| before.token == step.token && before.expires > at)?;
    if step.call != Call::Revoke || step.after.is_some() {
        return None;
    }
    let to = if quiet { before.expires.min(at + NOTICE) } else { before.expires };
    Some(Excuse { key: step.key.clone(), token: step.token.clone(), span: Span { from: at, to } })
}

/// Replays the engine's memory from the differences that its steps made.
#[derive(Default)]
struct Engine {
    now: BTreeMap<String, Tenure>,
}

impl Engine {
    fn step(&mut self, at: Duration, step: &Step) -> Option<Tenure> {
        if step.before == step.after {
            return None;
        }
        if let (Some(after), Some(tenure)) = (&step.after, self.now.get_mut(&step.key))
            && tenure.token == after.token
            && tenure.span.to >= at
        {
            tenure.span.to = after.expires;
            tenure.last_set = at;
            return None;
        }
        let closed = self.close(&step.key, at);
        if let Some(Placed { token, expires }) = &step.after {
            let tenure = Tenure {
                client: step.client,
                key: step.key.clone(),
                token: token.clone(),
                ttl: step.ttl,
                span: Span { from: at, to: *expires },
                last_set: at,
            };
            self.now.insert(step.key.clone(), tenure);
        }
        closed
    }

    /// Whoever has the key has it no longer, if it had not run out already.
    fn close(&mut self, key: &str, at: Duration) -> Option<Tenure> {
        let mut tenure = self.now.remove(key)?;
        tenure.span.to = tenure.span.to.min(at);
        Some(tenure)
    }

    fn finish(self, end: Duration) -> impl Iterator<Item = Tenure> {
        self.now.into_values().map(move |mut tenure| {
            tenure.span.to = tenure.span.to.min(end);
            tenure
        })
    }
}
