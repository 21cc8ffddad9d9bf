//! What comes over a connection that listens, read where it lies: nothing is copied, and nothing is set aside for it.
//!
//! By RESP2 pushes are arrays, by RESP3 they have a sign of their own; both are understood.

use redis::{RedisError, RedisResult, Value};

use super::reply::{self, blob, line, number, skip, unfinished};

/// How deep a push may be nested. None is.
const DEPTH: u8 = 4;

/// What has come.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Push<'a> {
    /// Somebody has published this on a channel.
    Message {
        channel: &'a [u8],
        payload: &'a [u8],
    },
    Subscribed(&'a [u8]),
    /// The subscription of this channel has ended, be it that nobody asked for that.
    Unsubscribed(&'a [u8]),
    /// An answer to something else.
    Answer,
    /// What was asked last was refused.
    Refused(RedisError),
}

/// Reads what is at the front: it, and how many bytes it takes; `None`, if it is not all there yet.
pub(in super::super) fn read(bytes: &[u8]) -> RedisResult<Option<(Push<'_>, usize)>> {
    if !matches!(bytes.first(), Some(b'*' | b'>')) {
        let answer = |(value, length)| match value {
            Value::ServerError(error) => (Push::Refused(error.into()), length),
            _ => (Push::Answer, length),
        };
        return Ok(reply::read(bytes)?.map(answer));
    }
    let mut at = 0;
    let Some((_, count)) = line(bytes, &mut at) else { return unfinished(bytes, 0).map(|_| None) };
    let mut words: [&[u8]; 3] = [&[]; 3];
    for place in 0..usize::try_from(number(count)?).unwrap_or_default() {
        let Some(word) = word(bytes, &mut at)? else { return Ok(None) };
        if let Some(known) = words.get_mut(place) {
            *known = word;
        }
    }
    let [kind, channel, payload] = words;
    let push = match kind {
        b"message" | b"smessage" => Push::Message { channel, payload },
        b"subscribe" | b"ssubscribe" => Push::Subscribed(channel),
        b"unsubscribe" | b"sunsubscribe" => Push::Unsubscribed(channel),
        _ => Push::Answer,
    };
    Ok(Some((push, at)))
}

/// The next text, or nothing in the place of what is none.
fn word<'a>(bytes: &'a [u8], at: &mut usize) -> RedisResult<Option<&'a [u8]>> {
    if bytes.get(*at) != Some(&b'$') {
        return Ok(skip(bytes, at, DEPTH)?.map(|()| &[][..]));
    }
    let Some((_, length)) = line(bytes, at) else { return Ok(None) };
    match usize::try_from(number(length)?) {
        Ok(length) => blob(bytes, at, length),
        Err(_) => Ok(Some(&[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushes() -> Vec<(&'static [u8], Push<'static>)> {
        vec![
            (
                b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\n\r\n\r\n\r\n",
                Push::Message { channel: b"c", payload: b"\r\n\r\n" },
            ),
            (
                b"*3\r\n$8\r\nsmessage\r\n$2\r\ncd\r\n$0\r\n\r\n",
                Push::Message { channel: b"cd", payload: b"" },
            ),
            (b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", Push::Subscribed(b"c")),
            (b">3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n", Push::Subscribed(b"c")),
            (b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n", Push::Unsubscribed(b"")),
            (b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n", Push::Unsubscribed(b"c")),
            (b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", Push::Answer),
            (b"+PONG\r\n", Push::Answer),
            (b"*0\r\n", Push::Answer),
            (b"*-1\r\n", Push::Answer),
        ]
    }

    #[test]
    fn pushes_are_read_where_they_lie() {
        for (bytes, push) in pushes() {
            let mut more = bytes.to_vec();
            more.extend_from_slice(b"*3\r\n");
            assert_eq!(read(&more).unwrap(), Some((push, bytes.len())), "{}", bytes.escape_ascii());
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length]).unwrap(), None, "{length} of {}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn what_was_refused_is_told_and_what_is_no_push_is_an_error() {
        let refused = read(b"-NOPERM no\r\n").unwrap().unwrap();
        assert!(
            matches!(&refused, (Push::Refused(error), 12) if error.code() == Some("NOPERM")),
            "{refused:?}"
        );
        for bytes in [&b"HTTP/1.1 400\r\n"[..], b"*x\r\n", b"*1\r\n$x\r\n", b"*1\r\nx\r\n"] {
            assert!(read(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        // Nothing is set aside for what is only claimed.
        assert_eq!(read(b"*9000000000000000000\r\n").unwrap(), None);
        assert_eq!(read(b"*3\r\n$9000000000000000000\r\n").unwrap(), None);
    }
}
