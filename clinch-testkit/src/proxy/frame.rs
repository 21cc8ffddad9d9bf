//! Where commands and replies begin and end in the stream of bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest command or reply that the proxy stores.
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;

/// How deep arrays may be nested; Redis itself stays far below.
const MAX_DEPTH: usize = 64;

/// The arguments of a command, its name first.
pub(super) type Parts = Vec<Vec<u8>>;

/// Reads whole commands or replies from one side. Its methods may be cancelled without losing bytes.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    unparsed: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, unparsed: Vec::new() }
    }

    /// The next command, as bytes and as parts; `None` at the end of the stream.
    pub(super) async fn command(&mut self) -> io::Result<Option<(Vec<u8>, Parts)>> {
        loop {
            if let Some((parts, length)) = command(&self.unparsed)? {
                let bytes = self.take(length);
                if !parts.is_empty() {
                    return Ok(Some((bytes, parts)));
                }
            } else if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    /// The next reply; `None` at the end of the stream.
    pub(super) async fn reply(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = reply_length(&self.unparsed)? {
                return Ok(Some(self.take(length)));
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    /// Whatever bytes are next; `None` at the end of the stream.
    pub(super) async fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.unparsed.is_empty() && !self.read_more().await? {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.unparsed)))
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        self.unparsed.drain(..length).collect()
    }

    async fn read_more(&mut self) -> io::Result<bool> {
        if self.unparsed.len() > MAX_FRAME_BYTES {
            return Err(malformed("longer than the proxy can store"));
        }
        self.unparsed.reserve(16 * 1024);
        Ok(self.from.read_buf(&mut self.unparsed).await? > 0)
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The line that begins here, without its end, and where the next begins; `None` if it is not complete.
fn line(bytes: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(start..)?;
    let length = rest.windows(2).position(|end| end == b"\r\n")?;
    Some((&rest[..length], start + length + 2))
}

/// The length in a header like `$3` or `*2`; `None` for null (`-1`).
fn length(digits: &[u8]) -> io::Result<Option<usize>> {
    let digits = std::str::from_utf8(digits).map_err(|_| malformed("a length is not a number"))?;
    if digits == "-1" {
        return Ok(None);
    }
    match digits.parse() {
        Ok(length) if length <= MAX_FRAME_BYTES => Ok(Some(length)),
        Ok(_) => Err(malformed("longer than the proxy can store")),
        Err(_) => Err(malformed("a length is not a number")),
    }
}

/// The bulk string that begins here, and what is behind it; `None` if it is not complete.
fn bulk(bytes: &[u8], start: usize) -> io::Result<Option<(&[u8], usize)>> {
    let Some((header, start)) = line(bytes, start) else { return Ok(None) };
    let Some(digits) = header.strip_prefix(b"$") else {
        return Err(malformed("an argument is not a bulk string"));
    };
    let length = length(digits)?.ok_or_else(|| malformed("an argument is null"))?;
    let whole = bytes.get(start..start + length + 2);
    Ok(whole.map(|whole| (&whole[..length], start + length + 2)))
}

/// The command at the beginning, and its length in bytes; `None` if it is not complete.
fn command(bytes: &[u8]) -> io::Result<Option<(Parts, usize)>> {
    let Some((header, mut next)) = line(bytes, 0) else { return Ok(None) };
    let Some(digits) = header.strip_prefix(b"*") else {
        // An inline command, as people type it.
        let words = header.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(Some((words.map(<[u8]>::to_vec).collect(), next)));
    };
    let mut parts = Vec::new();
    for _ in 0..length(digits)?.unwrap_or(0) {
        let Some((part, behind)) = bulk(bytes, next)? else { return Ok(None) };
        parts.push(part.to_vec());
        next = behind;
    }
    Ok(Some((parts, next)))
}

/// The length of the reply (of RESP2 or RESP3) at the beginning; `None` if it is not complete.
fn reply_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    reply_end(bytes, 0, 0)
}

/// Where the reply that begins at `start` ends.
fn reply_end(bytes: &[u8], start: usize, depth: usize) -> io::Result<Option<usize>> {
    if depth > MAX_DEPTH {
        return Err(malformed("nested too deep"));
    }
    let Some((header, next)) = line(bytes, start) else { return Ok(None) };
    let Some((kind, rest)) = header.split_first() else { return Err(malformed("an empty reply")) };
    let elements = match kind {
        // simple string, error, integer, null, boolean, double, big number
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return Ok(Some(next)),
        // bulk string, bulk error, verbatim string
        b'$' | b'!' | b'=' => {
            let end = length(rest)?.map_or(next, |length| next + length + 2);
            return Ok((end <= bytes.len()).then_some(end));
        }
        // array, set, push
        b'*' | b'~' | b'>' => length(rest)?.unwrap_or(0),
        b'%' => 2 * length(rest)?.unwrap_or(0),
        // Attributes stand before the value that they belong to.
        b'|' => 2 * length(rest)?.unwrap_or(0) + 1,
        _ => return Err(malformed("an unknown kind of reply")),
    };
    let mut end = next;
    for _ in 0..elements {
        match reply_end(bytes, end, depth + 1)? {
            Some(next) => end = next,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

/// What a frame from the server is to the order of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The reply to a command.
    Reply,
    /// One of the answers to `SUBSCRIBE` and its like.
    Confirmation,
    /// Sent without being asked for.
    Message,
}

/// Tells replies from out-of-band frames. RESP2 has no mark for the latter, so there they are told by their
/// first element, and only on a connection that has `subscribed`.
pub(super) fn kind(frame: &[u8], subscribed: bool) -> Kind {
    let push = frame.starts_with(b">");
    let maybe_message = subscribed && frame.starts_with(b"*");
    if !push && !maybe_message {
        return Kind::Reply;
    }
    let first = line(frame, 0).and_then(|(_, next)| bulk(frame, next).ok()?);
    match first.map(|(first, _)| first) {
        Some(
            b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" | b"ssubscribe" | b"sunsubscribe",
        ) => Kind::Confirmation,
        Some(b"message" | b"pmessage" | b"smessage") => Kind::Message,
        _ if push => Kind::Message,
        _ => Kind::Reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_measured_and_no_part_of_it_is_taken_for_the_whole() {
        let replies: [&[u8]; 20] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-12\r\n",
            b"$0\r\n\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n+x\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",3.14\r\n",
            b",inf\r\n",
            b"(3492890328409238509324850943850943825024385\r\n",
            b"!5\r\nERR x\r\n",
            b"=7\r\ntxt:abc\r\n",
            b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
            b"~2\r\n:1\r\n:2\r\n",
            b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
            b"|1\r\n+ttl\r\n:3600\r\n:5\r\n",
        ];
        for reply in replies {
            for cut in 0..reply.len() {
                let part = reply_length(&reply[..cut]).unwrap();
                assert_eq!(part, None, "{} cut at {cut}", reply.escape_ascii());
            }
            let followed = [reply, b"+next\r\n"].concat();
            assert_eq!(reply_length(&followed).unwrap(), Some(reply.len()), "{}", reply.escape_ascii());
        }
        assert!(reply_length(b"?\r\n").is_err());
        assert!(reply_length(b"$x\r\n").is_err());
        assert!(reply_length(&b"*1\r\n".repeat(100)).is_err());
    }

    #[test]
    fn commands_are_read_however_they_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING  x\r\n";
        for cut in 0..23 {
            assert_eq!(command(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let (parts, length) = command(bytes).unwrap().unwrap();
        assert_eq!((parts, length), (vec![b"GET".to_vec(), b"a\r\nb".to_vec()], 23));
        assert_eq!(command(&bytes[23..]).unwrap(), Some((vec![b"PING".to_vec(), b"x".to_vec()], 9)));
        assert_eq!(command(b"\r\n").unwrap(), Some((vec![], 2)));
        assert!(command(b"*1\r\n:1\r\n").is_err());
    }

    #[test]
    fn out_of_band_frames_are_told_from_replies() {
        assert_eq!(kind(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", false), Kind::Confirmation);
        assert_eq!(kind(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", false), Kind::Message);
        assert_eq!(kind(b">2\r\n+invalidate\r\n*0\r\n", false), Kind::Message);
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
        assert_eq!(kind(message, true), Kind::Message);
        assert_eq!(kind(message, false), Kind::Reply);
        assert_eq!(kind(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", true), Kind::Reply);
        assert_eq!(kind(b"+OK\r\n", true), Kind::Reply);
    }
}
