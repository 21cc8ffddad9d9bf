//! What is sent in one exchange: a script by its hash, and by its source where the server does not know it; scripts together;
//! one with what must go before or behind it.

use std::borrow::Cow;
use std::mem;

use redis::{Cmd, RedisError, RedisResult, Value};

use super::scripts::Call;
use super::wire::Packed;

/// What the script says of a key that was free.
const SET: Value = Value::Int(0);

type Again<'a> = &'a (dyn Fn() -> Call + Sync);

/// What is sent.
pub(super) enum Request<'a> {
    Script(&'a Call),
    /// A `SET NX`, which is all that it takes where the key is free; the script, where it is not.
    SetOr(Packed, Again<'a>),
    /// A script by its hash; the same as a whole, where the server does not know it.
    HashOr(Packed, Again<'a>),
    /// All at once; each answer may be an error of its own.
    Scripts(&'a [Call]),
    /// After `ASKING`, which is good for the one command behind it.
    Asking(&'a Call),
    Command(&'a Cmd),
}

impl<'a> Request<'a> {
    /// Whether it would keep others waiting.
    pub(super) fn needs_own_connection(&self) -> bool {
        matches!(self, Self::Script(call) | Self::Asking(call) if call.confirmation().is_some())
    }

    /// What is sent first, and what becomes of the answers.
    pub(super) fn first(self) -> (Packed, Sequel<'a>) {
        match self {
            Self::Command(command) => (Packed::one(command), Sequel::End),
            Self::SetOr(set, call) => (set, Sequel::Script(call)),
            Self::HashOr(by_hash, call) => (by_hash, Sequel::Source(call)),
            Self::Script(call) => Around::of(call, false).first(),
            Self::Asking(call) => Around::of(call, true).first(),
            Self::Scripts(calls) => {
                (Packed::several(calls.iter().map(Call::by_hash)), Sequel::Sources(calls))
            }
        }
    }
}

/// What may have to be sent after what was answered.
pub(super) enum Sequel<'a> {
    /// Nothing.
    End,
    /// The script, where the `SET` did not take the key.
    Script(Again<'a>),
    /// The script by its source, where the server does not know its hash.
    Source(Again<'a>),
    /// The same for one with others around it.
    Around(Around<'a>),
    /// Nothing, of the same.
    EndOf(Around<'a>),
    /// The sources of several.
    Sources(&'a [Call]),
    /// Nothing, after the sources of some of them.
    EndOfSources { answers: Vec<Value>, unknown: Vec<usize> },
}

/// What came of an answer.
pub(super) enum Next {
    Answer(RedisResult<Value>),
    /// This is to be sent too.
    More(Packed),
}

impl Sequel<'_> {
    /// What the answer to what was sent last is an answer to, or what is to be sent next.
    pub(super) fn next(&mut self, answer: RedisResult<Value>) -> Next {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Next::Answer(Err(error)),
        };
        match mem::replace(self, Self::End) {
            Self::End => Next::Answer(answer.extract_error()),
            Self::Script(call) => match answer.extract_error() {
                Ok(Value::Nil) => {
                    *self = Self::Source(call);
                    Next::More(Packed::one(&call().by_hash()))
                }
                Ok(_) => Next::Answer(Ok(SET)),
                Err(error) => Next::Answer(Err(error)),
            },
            Self::Source(call) if lacks_script(&answer) => Next::More(Packed::one(&call().by_source())),
            Self::Source(_) => Next::Answer(answer.extract_error()),
            Self::Around(around) if around.lacks_script(&answer) => {
                let by_source = around.pack(Cow::Owned(around.call.by_source()));
                *self = Self::EndOf(around);
                Next::More(by_source)
            }
            Self::Around(around) | Self::EndOf(around) => Next::Answer(around.settled(answer)),
            Self::Sources(calls) => {
                let answers = all(answer);
                let unknown: Vec<usize> = (0..answers.len()).filter(|i| lacks_script(&answers[*i])).collect();
                if unknown.is_empty() {
                    return Next::Answer(Ok(Value::Array(answers)));
                }
                let sources = unknown.iter().filter_map(|i| calls.get(*i)).map(Call::by_source);
                let more = Packed::several(sources.map(Cow::Owned));
                *self = Self::EndOfSources { answers, unknown };
                Next::More(more)
            }
            Self::EndOfSources { mut answers, unknown } => {
                for (i, answer) in unknown.into_iter().zip(all(answer)) {
                    answers[i] = answer;
                }
                Next::Answer(Ok(Value::Array(answers)))
            }
        }
    }
}

/// A script, and what goes out before and behind it.
pub(super) struct Around<'a> {
    call: &'a Call,
    asking: bool,
    confirmation: Option<Cmd>,
}

impl<'a> Around<'a> {
    fn of(call: &'a Call, asking: bool) -> Self {
        Self { call, asking, confirmation: call.confirmation() }
    }

    fn first(self) -> (Packed, Sequel<'a>) {
        (self.pack(self.call.by_hash()), Sequel::Around(self))
    }

    const fn is_alone(&self) -> bool {
        !self.asking && self.confirmation.is_none()
    }

    fn pack(&self, script: Cow<'_, Cmd>) -> Packed {
        if self.is_alone() {
            return Packed::one(&script);
        }
        let asking = self.asking.then(|| Cow::Owned(redis::cmd("ASKING")));
        let confirmation = self.confirmation.as_ref().map(Cow::Borrowed);
        Packed::several(asking.into_iter().chain([script]).chain(confirmation))
    }

    fn lacks_script(&self, answer: &Value) -> bool {
        match answer {
            Value::Array(answers) if !self.is_alone() => answers.iter().any(lacks_script),
            answer => lacks_script(answer),
        }
    }

    /// The script's own answer; with that of the `WAIT` behind it, where replicas must confirm it.
    fn settled(&self, answer: Value) -> RedisResult<Value> {
        if self.is_alone() {
            return answer.extract_error();
        }
        let mut answers = all(answer);
        let mut last = || answers.pop().unwrap_or(Value::Nil);
        if self.confirmation.is_none() {
            return last().extract_error();
        }
        // What was not confirmed was granted all the same: why not is told beside it.
        let (confirmed, answer) = (last(), last().extract_error()?);
        Ok(Value::Array(vec![answer, confirmed]))
    }
}

/// The answers to what went out together.
fn all(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(answers) => answers,
        other => vec![other],
    }
}

fn lacks_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
}

/// Whether the server answered, as opposed to the connection failing.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}
