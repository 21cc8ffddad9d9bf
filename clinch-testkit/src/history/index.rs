//! A history, sorted for checking: who believed to hold what, who really did, and which belief is excused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Call, Event, HeldClaim, History, Outcome, Placed, Role, Step, Tag, Touched, Wanted, Wish};

/// Timers are this coarse, and a deadline may meet a few of them.
pub(super) const COARSE: Duration = Duration::from_millis(5);
/// News of a revocation takes this long at most where no fault can happen.
const NOTICE: Duration = Duration::from_millis(250);

/// A stretch of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Span {
    pub(super) fn contains(self, at: Duration) -> bool {
        self.from <= at && at < self.to
    }

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

/// What a caller believed to hold: one claim of a guard.
#[derive(Debug)]
pub(super) struct Hold {
    /// The operation that got the guard.
    pub(super) op: u64,
    pub(super) client: usize,
    pub(super) key: String,
    pub(super) role: Role,
    pub(super) token: Tag,
    pub(super) degraded: bool,
    pub(super) span: Span,
    /// Which event ended it, by its place in the history: instants are coarse, and order matters.
    pub(super) ended_by: Option<usize>,
}

/// What the engine really had under a token, without a break: held, kept or waited for.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) node: usize,
    pub(super) client: usize,
    pub(super) key: String,
    pub(super) token: Tag,
    pub(super) role: Role,
    pub(super) ttl: Duration,
    pub(super) span: Span,
    /// When it was extended last; its beginning if it never was.
    pub(super) last_set: Duration,
    /// It came back with a replica that did not know yet that it was over.
    pub(super) revived: bool,
    /// It was granted by another's release.
    pub(super) handed_over: bool,
    /// It is extended when it is asked for again.
    pub(super) inherits: bool,
    /// By how much a clock that was set back made it longer.
    pub(super) stretched: Duration,
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

    /// What it wants to hold.
    pub(super) const fn wanted(&self) -> Option<&Wanted> {
        match &self.wish {
            Wish::Lock(wanted) | Wish::Run(wanted) => Some(wanted),
            _ => None,
        }
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
    /// What a node of a quorum forgot: it grants that to nobody until it would have been over.
    pub(super) reserved: Vec<(usize, Excuse)>,
    /// When which process was stopped.
    pub(super) stops: Vec<(usize, Span)>,
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
                Event::Held { op, client, token, claims, degraded } => {
                    let span = Span { from: at, to: index.end };
                    let hold = |claim: &HeldClaim| Hold {
                        op: *op,
                        client: *client,
                        key: claim.key.clone(),
                        role: claim.role,
                        token: token.clone(),
                        degraded: *degraded,
                        span,
                        ended_by: None,
                    };
                    index.holds.extend(claims.iter().map(hold));
                }
                Event::Ended { op, .. } => index.end_hold(*op, at, place),
                Event::Stopped { client, until } => {
                    // What runs at the very instant at which it goes on comes after it.
                    index.stops.push((*client, Span { from: at, to: *until + COARSE }));
                }
                Event::Step(step) => {
                    index.steps.push((at, step));
                    for touched in &step.touched {
                        index.tenures.extend(engine.step(at, step, touched));
                        index.excuses.extend(excused_by_revocation(at, step, touched, history.header.quiet));
                    }
                }
                Event::Forgot { node, key, place: lost } => {
                    index.tenures.extend(engine.close(*node, key, lost, at));
                    if lost.role.is_held() {
                        let (key, token) = (key.clone(), lost.token.clone());
                        let excuse = Excuse { key, token, span: Span { from: at, to: lost.expires } };
                        if history.header.nodes > 1 {
                            index.reserved.push((*node, excuse));
                        } else {
                            index.excuses.push(excuse);
                        }
                    }
                }
                Event::Rewound { node, key, before, after } => {
                    index.tenures.extend(engine.rewind(at, *node, key, after));
                    if history.header.nodes == 1 {
                        index.excuses.extend(excused_by_rewinding(at, key, before, after));
                    }
                }
                _ => {}
            }
        }
        index.tenures.extend(engine.finish(index.end));
        index.tenures.sort_by_key(|tenure| tenure.span.from);
        index
    }

    /// What this guard holds ends here.
    fn end_hold(&mut self, op: u64, at: Duration, place: usize) {
        for hold in self.holds.iter_mut().filter(|hold| hold.op == op && hold.ended_by.is_none()) {
            hold.span.to = at;
            hold.ended_by = Some(place);
        }
    }

    /// When the engine really had this very claim for its holder: on more than half of its nodes. What one of several nodes
    /// forgot counts, because it grants that to nobody else meanwhile.
    pub(super) fn held_for(&self, hold: &Hold, majority: usize) -> Vec<Span> {
        if majority == 1 {
            return self.tenures_of(hold).map(|tenure| tenure.span).collect();
        }
        let forgot = self.reserved.iter().filter(|(_, e)| e.key == hold.key && e.token == hold.token);
        let spans: Vec<(usize, Span)> = self
            .tenures_of(hold)
            .map(|tenure| (tenure.node, tenure.span))
            .chain(forgot.map(|(node, excuse)| (*node, excuse.span)))
            .collect();
        let mut edges: Vec<_> = spans.iter().flat_map(|(_, span)| [span.from, span.to]).collect();
        edges.sort_unstable();
        edges.dedup();
        let piece = |edges: &[Duration]| Span { from: edges[0], to: edges[1] };
        let held = |piece: &Span| {
            let nodes: BTreeSet<usize> = spans
                .iter()
                .filter(|(_, span)| span.from <= piece.from && piece.to <= span.to)
                .map(|(node, _)| *node)
                .collect();
            nodes.len() >= majority
        };
        edges.windows(2).map(piece).filter(held).collect()
    }

    /// What the engine held for this very claim.
    pub(super) fn tenures_of<'b>(&'b self, hold: &'b Hold) -> impl Iterator<Item = &'b Tenure> {
        let same = |tenure: &&Tenure| {
            tenure.key == hold.key && tenure.token == hold.token && tenure.role == hold.role
        };
        self.tenures.iter().filter(same)
    }

    /// When a holder may believe what is not true: it cannot know better, or does nothing at all.
    pub(super) fn excuses_of<'b>(&'b self, hold: &'b Hold) -> impl Iterator<Item = Span> + 'b {
        let lost = self.excuses.iter().filter(|excuse| excuse.key == hold.key && excuse.token == hold.token);
        lost.map(|excuse| excuse.span).chain(self.stops_of(hold.client))
    }

    pub(super) fn stops_of(&self, client: usize) -> impl Iterator<Item = Span> + '_ {
        self.stops.iter().filter(move |(stopped, _)| *stopped == client).map(|(_, span)| *span)
    }
}

fn excused_by_revocation(at: Duration, step: &Step, touched: &Touched, quiet: bool) -> Option<Excuse> {
    let mine = |placed: &&Placed| placed.token == step.token && placed.role.is_held();
    let before = touched.before.iter().filter(mine).find(|before| before.expires > at)?;
    if step.call != Call::Revoke || touched.after.iter().any(|after| mine(&after)) {
        return None;
    }
    let to = if quiet { before.expires.min(at + NOTICE) } else { before.expires };
    Some(Excuse { key: touched.key.clone(), token: step.token.clone(), span: Span { from: at, to } })
}

/// Of what a replica did not know, or what ended early by a clock that was set ahead, its holder cannot know better: from
/// when it is over now until it was to be over.
fn excused_by_rewinding<'a>(
    at: Duration,
    key: &'a str,
    before: &'a [Placed],
    after: &'a [Placed],
) -> impl Iterator<Item = Excuse> + 'a {
    before.iter().filter(|before| before.role.is_held()).filter_map(move |before| {
        let same = |after: &&Placed| after.token == before.token && after.role == before.role;
        let from = after.iter().find(same).map_or(at, |after| after.expires.max(at));
        let (key, token) = (key.to_owned(), before.token.clone());
        (from < before.expires).then_some(Excuse { key, token, span: Span { from, to: before.expires } })
    })
}

/// Replays the engine's memory from the differences that its steps made.
#[derive(Default)]
struct Engine {
    now: BTreeMap<(usize, String), Vec<Tenure>>,
    /// Who asked under a token, and for how long on each key.
    asked: BTreeMap<(String, Tag), (usize, Duration)>,
}

impl Engine {
    fn step(&mut self, at: Duration, step: &Step, touched: &Touched) -> Vec<Tenure> {
        if step.call == Call::Acquire {
            self.asked.insert((touched.key.clone(), step.token.clone()), (step.client, touched.ttl));
        }
        if touched.before == touched.after {
            return Vec::new();
        }
        let tenures = self.now.entry((step.node, touched.key.clone())).or_default();
        let there = |tenure: &Tenure| {
            touched.after.iter().find(|after| after.token == tenure.token && after.role == tenure.role)
        };
        // What is no longer there, or had run out before it came again.
        let over = |tenure: &mut Tenure| there(tenure).is_none() || tenure.span.to <= at;
        let mut closed: Vec<_> = tenures.extract_if(.., over).collect();
        closed.iter_mut().for_each(|tenure| tenure.span.to = tenure.span.to.min(at));
        for after in touched.after.iter().filter(|after| after.expires > at) {
            let same = |tenure: &&mut Tenure| tenure.token == after.token && tenure.role == after.role;
            match tenures.iter_mut().find(same) {
                Some(tenure) if tenure.span.to == after.expires => {}
                Some(tenure) => {
                    tenure.span.to = after.expires;
                    tenure.last_set = at;
                }
                None => {
                    let handed_over = after.token != step.token;
                    let asked = self.asked.get(&(touched.key.clone(), after.token.clone()));
                    let (client, ttl) =
                        asked.filter(|_| handed_over).copied().unwrap_or((step.client, touched.ttl));
                    tenures.push(Tenure {
                        node: step.node,
                        client,
                        key: touched.key.clone(),
                        token: after.token.clone(),
                        role: after.role,
                        ttl,
                        span: Span { from: at, to: after.expires },
                        last_set: at,
                        // One that came back to wait, and was waited for no longer.
                        revived: closed.iter().any(|before| before.token == after.token && before.revived),
                        handed_over,
                        inherits: handed_over || step.inherits,
                        stretched: Duration::ZERO,
                    });
                }
            }
        }
        closed
    }

    /// Without a step, this is what is there now.
    fn rewind(&mut self, at: Duration, node: usize, key: &str, after: &[Placed]) -> Vec<Tenure> {
        let tenures = self.now.entry((node, key.to_owned())).or_default();
        let there = |tenure: &Tenure| after.iter().find(|p| p.token == tenure.token && p.role == tenure.role);
        let over = |tenure: &mut Tenure| there(tenure).is_none_or(|p| p.expires <= at) || tenure.span.to < at;
        let mut closed: Vec<_> = tenures.extract_if(.., over).collect();
        closed.iter_mut().for_each(|tenure| tenure.span.to = tenure.span.to.min(at));
        for after in after.iter().filter(|after| after.expires > at) {
            let same = |tenure: &&mut Tenure| tenure.token == after.token && tenure.role == after.role;
            match tenures.iter_mut().find(same) {
                Some(tenure) => {
                    tenure.stretched += after.expires.saturating_sub(tenure.span.to);
                    tenure.span.to = after.expires;
                }
                None => tenures.push(Tenure {
                    node,
                    client: usize::MAX,
                    key: key.to_owned(),
                    token: after.token.clone(),
                    role: after.role,
                    ttl: after.expires - at,
                    span: Span { from: at, to: after.expires },
                    last_set: at,
                    revived: true,
                    handed_over: false,
                    inherits: true,
                    stretched: Duration::ZERO,
                }),
            }
        }
        closed
    }

    /// What was lost is there no longer, if it had not run out already.
    fn close(&mut self, node: usize, key: &str, lost: &Placed, at: Duration) -> Option<Tenure> {
        let tenures = self.now.get_mut(&(node, key.to_owned()))?;
        let same = |tenure: &Tenure| tenure.token == lost.token && tenure.role == lost.role;
        let index = tenures.iter().position(same)?;
        let mut tenure = tenures.remove(index);
        tenure.span.to = tenure.span.to.min(at);
        Some(tenure)
    }

    fn finish(self, end: Duration) -> impl Iterator<Item = Tenure> {
        self.now.into_values().flatten().map(move |mut tenure| {
            tenure.span.to = tenure.span.to.min(end);
            tenure
        })
    }
}
