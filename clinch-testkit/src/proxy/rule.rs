//! What to strike at, and how.

use std::fmt;
use std::time::Duration;

/// A command as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Which connection it came on: 0 is the first that the proxy accepted.
    pub connection: usize,
    /// Its place among all commands that the proxy has seen, from 1. Never reset.
    pub ordinal: u64,
    /// Its name in upper case, without a subcommand.
    pub name: String,
    /// What follows the name.
    pub args: Vec<Vec<u8>>,
}

impl Command {
    /// An argument as text, from 0.
    #[must_use]
    pub fn arg(&self, index: usize) -> Option<String> {
        self.args.get(index).map(|arg| String::from_utf8_lossy(arg).into_owned())
    }

    /// Whether it belongs to setting up or looking after a connection, not to a lease: `HELLO`, `AUTH`,
    /// `CLIENT`, `SELECT`, `PING`, `SCRIPT`, `ROLE`, `INFO`, and all kinds of `SUBSCRIBE` and `UNSUBSCRIBE`.
    #[must_use]
    pub fn is_setup(&self) -> bool {
        is_setup(&self.name)
    }

    /// A copy that is small enough for the log.
    pub(super) fn cut_short(&self) -> Self {
        const ARGS: usize = 8;
        const BYTES: usize = 128;
        let args = self.args.iter().take(ARGS).map(|arg| arg[..arg.len().min(BYTES)].to_vec()).collect();
        Self { connection: self.connection, ordinal: self.ordinal, name: self.name.clone(), args }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} on {}: {}", self.ordinal, self.connection, self.name)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.escape_ascii()))
    }
}

/// See [`Command::is_setup`].
pub(super) fn is_setup(name: &str) -> bool {
    const SETUP: [&str; 8] = ["HELLO", "AUTH", "CLIENT", "SELECT", "PING", "SCRIPT", "ROLE", "INFO"];
    SETUP.contains(&name) || is_subscription(name)
}

/// Whether the command is answered by one confirmation for each channel.
pub(super) fn is_subscription(name: &str) -> bool {
    const SUBSCRIPTIONS: [&str; 6] =
        ["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"];
    SUBSCRIPTIONS.contains(&name)
}

/// What happens to a command that a [`Rule`] strikes.
///
/// "Closed" is a plain close: the client reads the end of the stream, or a reset if it had sent more than the
/// proxy had read. The server's side of the connection is closed with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// *Lost request.* The command is thrown away. When the replies to all earlier commands have been
    /// delivered, the connection is closed.
    DropRequestThenCut,
    /// *Half-open connection.* The command is thrown away, and so is all that follows it on this connection
    /// (still counted, but no rule acts on it). The connection stays open; replies to earlier commands are
    /// delivered.
    DropRequestThenStall,
    /// The connection is closed at once, before the command goes anywhere. Replies to earlier commands may be
    /// lost.
    CutBeforeRequest,
    /// *Lost reply.* The server gets the command and answers. When the answer is there, so that the command
    /// has surely been executed, the connection is closed instead of passing it on. Replies to earlier
    /// commands are delivered.
    CutAfterRequest,
    /// As [`Action::CutAfterRequest`], but the client gets the first *n* bytes of the reply, and then a reset
    /// (RST). The reply is never completed: *n* is cut to one byte less than its length.
    CutMidReply(usize),
    /// The command, and all behind it on this connection, reaches the server later.
    DelayRequest(Duration),
    /// The server executes the command at once; the reply, and all behind it on this connection, comes later.
    DelayReply(Duration),
    /// As [`Action::DelayRequest`], until [`FaultProxy::release_held`](super::FaultProxy::release_held).
    HoldRequest,
    /// As [`Action::DelayReply`], until [`FaultProxy::release_held`](super::FaultProxy::release_held).
    HoldReply,
    /// *A client that retries by itself.* The server gets the command twice in a row; the client gets the
    /// first reply.
    Duplicate,
    /// The command does not reach the server; the client gets these bytes as its reply, in its turn. They
    /// must be one whole reply, as `b"-READONLY You can't write against a read only replica.\r\n"`.
    ReplaceReply(Vec<u8>),
}

type Predicate = Box<dyn Fn(&Command) -> bool + Send + Sync>;

/// A fault: which command, and what happens to it.
///
/// A new rule strikes the next command, once. The methods narrow and widen that; all conditions must hold.
/// `nth` counts the commands that meet the others, from when the rule is [added](super::FaultProxy::add).
///
/// Every rule counts every command, but a command is struck once: if two rules are due, the one that was
/// added first acts, and the other at its next match.
#[must_use = "a rule does nothing until it is added to a proxy"]
pub struct Rule {
    action: Action,
    name: Option<String>,
    predicate: Option<Predicate>,
    connection: Option<usize>,
    lease_only: bool,
    /// Matches still to let pass.
    to_skip: u64,
    /// Matches still to strike.
    to_strike: u64,
}

impl Rule {
    /// A rule that does this to the next command.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            name: None,
            predicate: None,
            connection: None,
            lease_only: false,
            to_skip: 0,
            to_strike: 1,
        }
    }

    /// Only commands of this name, in any case.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_ascii_uppercase());
        self
    }

    /// Only commands for which this holds; it sees all arguments. It must not call the proxy, which is locked
    /// meanwhile.
    pub fn matching(mut self, predicate: impl Fn(&Command) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Box::new(predicate));
        self
    }

    /// Only commands that are not [setup](Command::is_setup).
    pub fn lease_only(mut self) -> Self {
        self.lease_only = true;
        self
    }

    /// Only commands on this connection: 0 is the first that the proxy accepted.
    pub fn on_connection(mut self, index: usize) -> Self {
        self.connection = Some(index);
        self
    }

    /// The `n`th match instead of the first; 0 means the first as well.
    pub fn nth(mut self, n: u64) -> Self {
        self.to_skip = n.saturating_sub(1);
        self
    }

    /// This many matches in a row instead of one.
    pub fn times(mut self, times: u64) -> Self {
        self.to_strike = times;
        self
    }

    /// All matches from the first (or `nth`) on, until
    /// [`FaultProxy::clear_rules`](super::FaultProxy::clear_rules).
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    fn matches(&self, command: &Command) -> bool {
        self.name.as_ref().is_none_or(|name| *name == command.name)
            && self.connection.is_none_or(|index| index == command.connection)
            && !(self.lease_only && command.is_setup())
            && self.predicate.as_ref().is_none_or(|predicate| predicate(command))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("action", &self.action)
            .field("name", &self.name)
            .field("predicate", &self.predicate.is_some())
            .field("connection", &self.connection)
            .field("lease_only", &self.lease_only)
            .field("to_skip", &self.to_skip)
            .field("to_strike", &self.to_strike)
            .finish()
    }
}

/// Counts the command in all rules, and returns what is to happen to it. Rules that have done their part are
/// removed.
pub(super) fn strike(rules: &mut Vec<Rule>, command: &Command) -> Option<Action> {
    let mut struck = None;
    for rule in rules.iter_mut().filter(|rule| rule.matches(command)) {
        if rule.to_skip > 0 {
            rule.to_skip -= 1;
        } else if struck.is_none() && rule.to_strike > 0 {
            rule.to_strike = rule.to_strike.saturating_sub(1);
            struck = Some(rule.action.clone());
        }
    }
    rules.retain(|rule| rule.to_strike > 0);
    struck
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, connection: usize) -> Command {
        Command { connection, ordinal: 1, name: name.into(), args: vec![b"key".to_vec()] }
    }

    #[test]
    fn the_nth_match_is_struck_once() {
        let mut rules = vec![Rule::new(Action::Duplicate).named("set").on_connection(1).nth(2)];
        assert_eq!(strike(&mut rules, &command("SET", 1)), None);
        assert_eq!(strike(&mut rules, &command("SET", 0)), None);
        assert_eq!(strike(&mut rules, &command("GET", 1)), None);
        assert_eq!(strike(&mut rules, &command("SET", 1)), Some(Action::Duplicate));
        assert_eq!(strike(&mut rules, &command("SET", 1)), None);
        assert!(rules.is_empty());
    }

    #[test]
    fn of_two_rules_that_are_due_the_second_acts_at_its_next_match() {
        let mut rules = vec![
            Rule::new(Action::HoldReply).lease_only(),
            Rule::new(Action::Duplicate)
                .matching(|command| command.arg(0).as_deref() == Some("key"))
                .times(2),
        ];
        assert_eq!(strike(&mut rules, &command("PING", 0)), Some(Action::Duplicate));
        assert_eq!(strike(&mut rules, &command("SET", 0)), Some(Action::HoldReply));
        assert_eq!(strike(&mut rules, &command("SET", 0)), Some(Action::Duplicate));
        assert_eq!(strike(&mut rules, &command("SET", 0)), None);
    }
}
