//! A response as it is stored, to be answered again.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::lease::Record;

/// The form of what is stored. Another one, of another version of this crate, is not read.
const FORM: u8 = 1;
const RESPONSE: u8 = 0;
const TOMBSTONE: u8 = 1;

/// Says that a response is the stored one.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What is stored of a request that was carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// What was asked for, as the fingerprint says.
    pub(super) fingerprint: String,
    pub(super) status: StatusCode,
    /// Nothing, if it was too large to be stored.
    pub(super) response: Option<(HeaderMap, Bytes)>,
}

impl Stored {
    pub(super) fn to_record(&self) -> Record {
        let body = self.response.as_ref().map_or(0, |(_, body)| body.len());
        let mut out = BytesMut::with_capacity(512 + body);
        out.put_u8(FORM);
        out.put_u8(if self.response.is_some() { RESPONSE } else { TOMBSTONE });
        put(&mut out, self.fingerprint.as_bytes());
        out.put_u16(self.status.as_u16());
        if let Some((headers, body)) = &self.response {
            let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
            out.put_u32(count);
            for (name, value) in headers {
                put(&mut out, name.as_str().as_bytes());
                put(&mut out, value.as_bytes());
            }
            out.extend_from_slice(body);
        }
        Record::new(out.freeze())
    }

    /// `None` if it is none that this version wrote.
    pub(super) fn of(record: Record) -> Option<Self> {
        let mut from = record.into_bytes();
        if from.try_get_u8().ok()? != FORM {
            return None;
        }
        let kind = from.try_get_u8().ok()?;
        let fingerprint = String::from_utf8(take(&mut from)?.into()).ok()?;
        let status = StatusCode::from_u16(from.try_get_u16().ok()?).ok()?;
        let response = match kind {
            TOMBSTONE => None,
            RESPONSE => {
                let mut headers = HeaderMap::new();
                for _ in 0..from.try_get_u32().ok()? {
                    let name = HeaderName::from_bytes(&take(&mut from)?).ok()?;
                    let value = HeaderValue::from_maybe_shared(take(&mut from)?).ok()?;
                    // More than a map can hold is none of ours.
                    headers.try_append(name, value).ok()?;
                }
                Some((headers, from))
            }
            _ => return None,
        };
        Some(Self { fingerprint, status, response })
    }

    /// The stored response, marked as such.
    pub(super) fn replay(self) -> Option<Response<Bytes>> {
        let (headers, body) = self.response?;
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    }
}

fn put(out: &mut BytesMut, field: &[u8]) {
    out.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(field);
}

fn take(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

/// The headers that are stored: those that are allowed, without what belongs to the first client, to its connection, or to
/// the moment.
pub(super) fn kept(headers: &HeaderMap, allowed: Option<&[String]>) -> HeaderMap {
    let of_connection: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let never = |name: &HeaderName| {
        const NEVER: [HeaderName; 8] =
            [CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
        NEVER.contains(name)
            || matches!(
                name.as_str(),
                "keep-alive" | "proxy-authenticate" | "proxy-authorization" | "proxy-connection"
            )
            || of_connection.iter().any(|named| named == name.as_str())
    };
    let allowed = |name: &HeaderName| {
        allowed.is_none_or(|names| names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name.as_str())))
    };
    headers
        .iter()
        .filter(|(name, _)| !never(name) && allowed(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let several = headers(&[("x-a", "1"), ("x-a", "2"), ("content-type", "text/plain")]);
        for response in [None, Some((several, Bytes::from_static(b"\0body\xff"))), Some(Default::default())] {
            let stored = Stored { fingerprint: "f".repeat(32), status: StatusCode::CREATED, response };
            assert_eq!(Stored::of(stored.to_record()), Some(stored));
        }
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        let stored =
            Stored { fingerprint: "f".into(), status: StatusCode::OK, response: Some(Default::default()) };
        let whole = stored.to_record().into_bytes();
        for length in 0..whole.len() {
            assert_eq!(Stored::of(Record::new(whole.slice(..length))), None, "{length}");
        }
        assert_eq!(Stored::of(Record::new("\u{2}anything")), None);
        let mut headers = BytesMut::from(&whole[..whole.len() - 4]);
        headers.put_u32(40_000);
        for number in 0..40_000 {
            put(&mut headers, format!("x-{number}").as_bytes());
            put(&mut headers, b"");
        }
        assert_eq!(Stored::of(Record::new(headers.freeze())), None, "more headers than a map can hold");
    }

    #[test]
    fn what_belongs_to_the_first_client_is_not_kept() {
        let all = headers(&[
            ("set-cookie", "a=b"),
            ("date", "now"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("content-type", "text/plain"),
            ("x-order", "17"),
        ]);
        assert_eq!(kept(&all, None), headers(&[("content-type", "text/plain"), ("x-order", "17")]));
        // As a configuration file may have them.
        let allowed = ["X-Order".to_owned(), "Set-Cookie".to_owned()];
        assert_eq!(kept(&all, Some(&allowed)), headers(&[("x-order", "17")]));
    }
}
