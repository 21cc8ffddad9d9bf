//! What is sent in one exchange: a script by its hash, and by its source where the server does not know it; scripts together;
//! one with what must go before or behind it.

use std::borrow::Cow;
use std::mem;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisError, RedisResult, Value};

use super::lane::Commands;
use super::scripts::Call;

/// What the script says of a key that was free.
const SET: Value = Value::Int(0);

/// What is sent.
pub(super) enum Request<'a> {
    Script(&'a Call),
    /// A `SET NX`, which is all that it takes where the key is free; the script, where it is not.
    SetOr(Cmd, &'a (dyn Fn() -> Call + Sync)),
    /// A script by its hash; the same as a whole, where the server does not know it.
    HashOr(Cmd, &'a (dyn Fn() -> Call + Sync)),
    /// All at once; each answer may be an error of its own.
    Scripts(&'a [Call]),
    /// After `ASKING`, which is good for the one command behind it.
    Asking(&'a Call),
    Command(&'a Cmd),
}

impl Request<'_> {
    /// Whether it would keep others waiting.
    pub(super) fn needs_own_connection(&self) -> bool {
        matches!(self, Self::Script(call) | Self::Asking(call) if call.confirmation().is_some())
    }

    /// What it sends first, if others' calls may go out with it.
    pub(super) fn first(&mut self) -> Option<Commands> {
        Some(match self {
            Self::Script(call) if call.confirmation().is_none() => Commands::One(call.by_hash().into_owned()),
            Self::SetOr(command, _) | Self::HashOr(command, _) => Commands::One(mem::take(command)),
            Self::Command(command) => Commands::One(command.clone()),
            Self::Asking(call) if call.confirmation().is_none() => {
                Commands::Several(vec![redis::cmd("ASKING"), call.by_hash().into_owned()])
            }
            Self::Script(_) | Self::Asking(_) | Self::Scripts(_) => return None,
        })
    }

    /// What the answer to that is an answer to; `None`, if more is to be sent.
    pub(super) fn answer(&self, first: RedisResult<Value>) -> Option<RedisResult<Value>> {
        let answer = match (self, first) {
            (Self::Asking(_), Ok(Value::Array(mut answers))) => {
                answers.pop().unwrap_or(Value::Nil).extract_error()
            }
            (_, answer) => answer.and_then(Value::extract_error),
        };
        match (self, answer) {
            (Self::SetOr(..), Ok(Value::Nil)) => None,
            (Self::SetOr(..), Ok(_)) => Some(Ok(SET)),
            (Self::Script(_) | Self::HashOr(..) | Self::Asking(_), Err(error)) if is_noscript(&error) => None,
            (_, answer) => Some(answer),
        }
    }

    /// Sends that.
    pub(super) async fn more(&self, mut redis: MultiplexedConnection) -> RedisResult<Value> {
        let by_source = match self {
            Self::SetOr(_, call) => return script(redis, call()).await,
            Self::Script(call) => call.by_source(),
            Self::HashOr(_, call) => call().by_source(),
            Self::Asking(call) => return asking(redis, call).await,
            Self::Command(_) | Self::Scripts(_) => return Ok(Value::Nil),
        };
        redis.req_packed_command(&by_source).await?.extract_error()
    }

    /// Sends it by itself. Whatever is rarer than one command is larger, and not part of everybody's future.
    pub(super) async fn send(&self, mut redis: MultiplexedConnection) -> RedisResult<Value> {
        let first = match self {
            Self::Asking(call) => return Box::pin(asking(redis, call)).await,
            Self::Script(call) if call.confirmation().is_some() => {
                return Box::pin(confirmed(redis, None, call)).await;
            }
            Self::Scripts(calls) => return Box::pin(together(redis, calls)).await,
            Self::Script(call) => call.by_hash(),
            Self::SetOr(command, _) | Self::HashOr(command, _) => Cow::Borrowed(command),
            Self::Command(command) => Cow::Borrowed(*command),
        };
        let answer = redis.send_packed_command(&first).await;
        match self.answer(answer) {
            Some(answer) => answer,
            None => Box::pin(self.more(redis)).await,
        }
    }
}

/// Runs a script by its hash, or by its source.
async fn script(mut redis: MultiplexedConnection, call: Call) -> RedisResult<Value> {
    match redis.req_packed_command(&call.by_hash()).await.and_then(Value::extract_error) {
        Err(error) if is_noscript(&error) => {
            redis.req_packed_command(&call.by_source()).await?.extract_error()
        }
        answer => answer,
    }
}

/// Runs a script on a server that is told to serve it although the key has not all come to it yet.
async fn asking(mut redis: MultiplexedConnection, call: &Call) -> RedisResult<Value> {
    let asking = redis::cmd("ASKING");
    if call.confirmation().is_some() {
        return confirmed(redis, Some(asking), call).await;
    }
    let mut answers =
        pipelined(&mut redis, [asking.clone(), call.by_hash().into_owned()].into_iter()).await?;
    if answers.last().is_some_and(lacks_script) {
        answers = pipelined(&mut redis, [asking, call.by_source()].into_iter()).await?;
    }
    answers.pop().unwrap_or(Value::Nil).extract_error()
}

/// Runs scripts that have nothing to do with each other.
async fn together(mut redis: MultiplexedConnection, calls: &[Call]) -> RedisResult<Value> {
    let mut answers = pipelined(&mut redis, calls.iter().map(|call| call.by_hash().into_owned())).await?;
    let unknown: Vec<usize> = (0..answers.len()).filter(|i| lacks_script(&answers[*i])).collect();
    if !unknown.is_empty() {
        let by_source = unknown.iter().filter_map(|i| calls.get(*i)).map(Call::by_source);
        let again = pipelined(&mut redis, by_source).await?;
        for (i, answer) in unknown.into_iter().zip(again) {
            answers[i] = answer;
        }
    }
    Ok(Value::Array(answers))
}

/// Runs a script that replicas must confirm.
async fn confirmed(mut redis: MultiplexedConnection, before: Option<Cmd>, call: &Call) -> RedisResult<Value> {
    let with_wait = |script| before.clone().into_iter().chain([script]).chain(call.confirmation());
    let mut answers = pipelined(&mut redis, with_wait(call.by_hash().into_owned())).await?;
    if answers.iter().any(lacks_script) {
        answers = pipelined(&mut redis, with_wait(call.by_source())).await?;
    }
    let mut last = || answers.pop().unwrap_or(Value::Nil);
    // What was not confirmed was granted all the same: why not is told beside it.
    let (confirmed, answer) = (last(), last().extract_error()?);
    Ok(Value::Array(vec![answer, confirmed]))
}

async fn pipelined(
    redis: &mut MultiplexedConnection,
    commands: impl Iterator<Item = Cmd>,
) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    commands.for_each(|command| {
        pipeline.add_command(command);
    });
    redis.req_packed_commands(&pipeline, 0, pipeline.len()).await
}

fn lacks_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript)
}
