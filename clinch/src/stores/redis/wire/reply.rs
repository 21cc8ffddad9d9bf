//! Answers as they stand on the wire. Those that every step is answered with are read here, in one pass and without a copy
//! that is not kept; whatever is rarer (errors, types that only some servers send) is read by the client library.

use redis::{ErrorKind, RedisError, RedisResult, Value};

/// How deep arrays may lie in each other.
const DEPTH: u8 = 16;

/// Reads the answer at the front: it, and how many bytes it takes; `None`, if it is not all there yet.
pub(super) fn read(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let mut at = 0;
    Ok(value(bytes, &mut at, DEPTH)?.map(|value| (value, at)))
}

fn value(bytes: &[u8], at: &mut usize, depth: u8) -> RedisResult<Option<Value>> {
    let begin = *at;
    let Some((kind, line)) = line(bytes, at) else { return unfinished(bytes, begin) };
    Ok(Some(match kind {
        b':' => Value::Int(number(line)?),
        b'+' if line == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(String::from_utf8_lossy(line).into_owned()),
        b'$' => match usize::try_from(number(line)?) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let Some(text) = blob(bytes, at, length)? else { return Ok(None) };
                Value::BulkString(text.to_vec())
            }
        },
        b'*' => match usize::try_from(number(line)?) {
            Err(_) => Value::Nil,
            Ok(_) if depth == 0 => return Err(garbage("it is nested too deep")),
            Ok(length) => {
                // What is claimed is not yet there: the memory grows with what is.
                let mut items = Vec::with_capacity(length.min(64));
                for _ in 0..length {
                    let Some(item) = value(bytes, at, depth - 1)? else { return Ok(None) };
                    items.push(item);
                }
                Value::Array(items)
            }
        },
        _ => {
            *at = begin;
            let Some(()) = skip(bytes, at, depth)? else { return Ok(None) };
            redis::parse_redis_value(&bytes[begin..*at])?
        }
    }))
}

/// The kind of what begins here, and the rest of its first line; `at` is behind it then.
pub(super) fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<(u8, &'a [u8])> {
    let (kind, rest) = bytes.get(*at..)?.split_first()?;
    let length = rest.iter().position(|byte| *byte == b'\r')?;
    // The line feed belongs to it.
    rest.get(length + 1)?;
    *at += length + 3;
    Some((*kind, &rest[..length]))
}

/// Whether what has no whole line yet can still become an answer: what is not Redis need not send any.
pub(super) fn unfinished(bytes: &[u8], begin: usize) -> RedisResult<Option<Value>> {
    match bytes.get(begin) {
        Some(kind) if !b":+$*-_,#!=(%~>|".contains(kind) => Err(garbage("it begins with no known sign")),
        _ => Ok(None),
    }
}

/// So many bytes, and the end of their line.
pub(super) fn blob<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> RedisResult<Option<&'a [u8]>> {
    let end = at.checked_add(length).ok_or_else(|| garbage("it is too long"))?;
    let Some(after) = end.checked_add(2).filter(|after| *after <= bytes.len()) else { return Ok(None) };
    let text = &bytes[*at..end];
    *at = after;
    Ok(Some(text))
}

/// Goes behind one value of any kind.
pub(super) fn skip(bytes: &[u8], at: &mut usize, depth: u8) -> RedisResult<Option<()>> {
    let begin = *at;
    let Some((kind, line)) = line(bytes, at) else {
        return unfinished(bytes, begin).map(|_| None);
    };
    let items = match kind {
        b':' | b'+' | b'-' | b'_' | b',' | b'#' | b'(' => return Ok(Some(())),
        b'$' | b'!' | b'=' => {
            return match usize::try_from(number(line)?) {
                Ok(length) => Ok(blob(bytes, at, length)?.map(|_| ())),
                Err(_) => Ok(Some(())),
            };
        }
        b'*' | b'~' | b'>' => number(line)?,
        b'%' => number(line)?.saturating_mul(2),
        b'|' => number(line)?.saturating_mul(2).saturating_add(1),
        _ => return Err(garbage("it begins with no known sign")),
    };
    if depth == 0 {
        return Err(garbage("it is nested too deep"));
    }
    for _ in 0..items {
        let Some(()) = skip(bytes, at, depth - 1)? else { return Ok(None) };
    }
    Ok(Some(()))
}

pub(super) fn number(line: &[u8]) -> RedisResult<i64> {
    let (negative, digits) = match line.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, line),
    };
    let mut number = 0i64;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        let next = number.checked_mul(10).and_then(|tens| tens.checked_add(digit)).filter(|_| digit <= 9);
        number = next.ok_or_else(|| garbage("there is no number where one is due"))?;
    }
    if digits.is_empty() {
        return Err(garbage("there is no number where one is due"));
    }
    Ok(if negative { -number } else { number })
}

fn garbage(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Parse, "an answer cannot be read", why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: &[&[u8]] = &[
        b":0\r\n",
        b":-12\r\n",
        b":9223372036854775807\r\n",
        b"+OK\r\n",
        b"+PONG\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"$0\r\n\r\n",
        b"$7\r\na\r\nb\r\nc\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n$2\r\nxy\r\n*2\r\n$-1\r\n+OK\r\n",
        b"-ERR something is wrong\r\n",
        b"-NOSCRIPT No matching script.\r\n",
        b"*2\r\n:1\r\n-WRONGTYPE no\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"%1\r\n+role\r\n+master\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
        b"=6\r\ntxt:ab\r\n",
        b"~2\r\n:1\r\n:2\r\n",
    ];

    /// What is read here is what the client library reads, whatever stands behind it.
    #[test]
    fn answers_are_read_as_the_client_library_reads_them() {
        for answer in ANSWERS {
            let expected = redis::parse_redis_value(answer).unwrap();
            let mut more = answer.to_vec();
            more.extend_from_slice(b":7\r\n");
            assert_eq!(read(&more).unwrap(), Some((expected, answer.len())), "{}", answer.escape_ascii());
        }
    }

    #[test]
    fn an_answer_that_is_not_all_there_is_waited_for() {
        for answer in ANSWERS {
            for length in 0..answer.len() {
                let part = &answer[..length];
                assert_eq!(read(part).unwrap(), None, "{}", part.escape_ascii());
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let deep = b"*1\r\n".repeat(usize::from(DEPTH) + 2);
        let garbage: [&[u8]; 8] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"x",
            b":12a\r\n",
            b":\r\n",
            b"$x\r\n",
            b":9223372036854775808\r\n",
            b"%1\r\n?\r\n",
            &deep,
        ];
        for bytes in garbage {
            assert_eq!(read(bytes).unwrap_err().kind(), ErrorKind::Parse, "{}", bytes.escape_ascii());
        }
        // Nothing is set aside for what is only claimed.
        assert_eq!(read(b"*9000000000000000000\r\n").unwrap(), None);
        assert_eq!(read(b"$9000000000000000000\r\n").unwrap(), None);
    }
}
