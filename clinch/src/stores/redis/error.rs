//! What Redis's errors mean for a step.

use redis::{ErrorKind as RedisErrorKind, RedisError};

use crate::store::{ErrorKind, StoreError};

/// Codes by which the server refuses a step, before its first write.
const CODES: &[(&str, ErrorKind)] = &[
    ("WRONGTYPE", ErrorKind::WrongType),
    ("READONLY", ErrorKind::ReadOnly),
    ("LOADING", ErrorKind::Busy),
    ("BUSY", ErrorKind::Busy),
    ("MASTERDOWN", ErrorKind::Busy),
    ("TRYAGAIN", ErrorKind::Busy),
    ("CLUSTERDOWN", ErrorKind::Busy),
    ("OOM", ErrorKind::Full),
    ("MISCONF", ErrorKind::Refused),
    ("NOREPLICAS", ErrorKind::Refused),
    ("NOAUTH", ErrorKind::Auth),
    ("WRONGPASS", ErrorKind::Auth),
    ("NOPERM", ErrorKind::Auth),
];

/// What to do about each kind of refusal.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::WrongType => {
            "; the key holds something that is not a lease and was not touched: choose another key or prefix"
        }
        ErrorKind::ReadOnly => "; this is a read-only replica: connect to its primary",
        ErrorKind::Full => "; nothing was evicted: raise `maxmemory` or free some",
        ErrorKind::Auth => "; check the user, the password and the rights of the user",
        ErrorKind::Refused => "; the server refuses writes: see its log",
        _ => "",
    }
}

/// An answer by which the server refused the step.
pub(super) fn refused(error: RedisError) -> StoreError {
    refusal(error.code().unwrap_or_default(), &error.to_string()).with_source(error)
}

/// The same, where a script handed the server's words on.
pub(super) fn refused_in_words(words: &str) -> StoreError {
    refusal("", words)
}

fn refusal(code: &str, text: &str) -> StoreError {
    // Up to 6.2 an error inside a script comes as `ERR Error running script …: <the code> …`.
    let named = |(name, _): &&(&str, ErrorKind)| {
        code == *name || text.split([' ', ':', '-']).any(|word| word == *name)
    };
    let kind = CODES.iter().find(named).map_or(ErrorKind::Protocol, |(_, kind)| *kind);
    let advice = match code {
        "MOVED" | "ASK" => "; this is a server of a Cluster: use `redis+cluster://…`",
        _ => advice(kind),
    };
    StoreError::not_applied(kind, format!("Redis refused: {text}{advice}"))
}

/// A failure while connecting: nothing was sent.
pub(super) fn not_connected(shown: &str, error: RedisError) -> StoreError {
    let (kind, reason) = match error.kind() {
        RedisErrorKind::AuthenticationFailed => {
            (ErrorKind::Auth, format!("Redis at {shown} refused the credentials: {error}"))
        }
        RedisErrorKind::Parse | RedisErrorKind::UnexpectedReturnType => {
            let error = error.to_string().replace('\n', " ");
            (ErrorKind::Protocol, format!("what listens at {shown} does not speak Redis's protocol: {error}"))
        }
        RedisErrorKind::InvalidClientConfig => (ErrorKind::Config, format!("cannot use {shown}: {error}")),
        RedisErrorKind::Io | RedisErrorKind::Client => {
            (ErrorKind::Unavailable, format!("cannot connect to Redis at {shown}: {error}"))
        }
        _ => {
            let refused = refused(error.clone());
            (refused.kind(), format!("Redis at {shown} refused the connection: {error}"))
        }
    };
    StoreError::not_applied(kind, reason).with_source(error)
}

/// A connection that failed under a call: the step may have been carried out.
pub(super) fn broke(shown: &str, error: RedisError) -> StoreError {
    let kind =
        if error.kind() == RedisErrorKind::Parse { ErrorKind::Protocol } else { ErrorKind::Unavailable };
    StoreError::unknown(kind, format!("the connection to Redis at {shown} failed: {error}"))
        .with_source(error)
}

/// An answer that makes no sense.
pub(super) fn nonsense(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::unknown(ErrorKind::Protocol, format!("Redis gave an answer that makes no sense: {error}"))
        .with_source(error)
}
