//! The body: what its headers say about it, and what is then hashed.

use bytes::Bytes;

use super::canon::{Canon, Tag};
use super::exclude::Exclude;
use super::json::{self, Unfit};
use super::limits::{FingerprintError, Limits};
use super::{multipart, write_form};

/// A body, and how to read it.
#[derive(Clone, Default)]
pub(super) struct Body<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) bytes: Option<&'a Bytes>,
}

/// How a body is read, by its headers alone.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Kind<'a> {
    #[default]
    Bytes,
    Form,
    Json,
    /// With the whole content type, which holds the boundary.
    Multipart(&'a [u8]),
    /// With the name of its coding.
    Encoded(&'a [u8]),
}

impl<'a> Kind<'a> {
    fn new(content_type: Option<&'a [u8]>, content_encoding: Option<&'a [u8]>) -> Self {
        let coding = content_encoding.unwrap_or_default().trim_ascii();
        if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity") {
            return Self::Encoded(coding);
        }
        let content_type = content_type.unwrap_or_default();
        let media = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let is = |name: &[u8]| media.eq_ignore_ascii_case(name);
        let ends = |end: &[u8]| {
            media.len().checked_sub(end.len()).is_some_and(|at| media[at..].eq_ignore_ascii_case(end))
        };
        if is(b"application/json") || is(b"text/json") || ends(b"+json") {
            Self::Json
        } else if is(b"application/x-www-form-urlencoded") {
            Self::Form
        } else if is(b"multipart/form-data") {
            Self::Multipart(content_type)
        } else {
            Self::Bytes
        }
    }
}

impl<'a> Body<'a> {
    pub(super) fn new(
        content_type: Option<&'a [u8]>,
        content_encoding: Option<&'a [u8]>,
        bytes: &'a Bytes,
    ) -> Self {
        Self { kind: Kind::new(content_type, content_encoding), bytes: Some(bytes) }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.map_or(0, Bytes::len)
    }

    fn is_encoded(&self) -> bool {
        matches!(self.kind, Kind::Encoded(_))
    }

    /// Before anything is read.
    pub(super) fn check(&self, limits: Limits) -> Result<(), FingerprintError> {
        if self.len() > limits.body_bytes {
            return Err(FingerprintError::TooLarge { bytes: self.len(), limit: limits.body_bytes });
        }
        Ok(())
    }

    pub(super) fn write(
        &self,
        canon: &mut Canon,
        exclude: Exclude<'_>,
        limits: Limits,
    ) -> Result<(), FingerprintError> {
        let Some(bytes) = self.bytes.filter(|bytes| !bytes.is_empty() || self.is_encoded()) else {
            canon.tag(Tag::Nothing);
            return Ok(());
        };
        let written = match self.kind {
            Kind::Bytes => false,
            Kind::Form => {
                let form = canon.mark();
                if !write_form(canon, exclude, bytes) {
                    canon.rewind(form);
                    canon.tag(Tag::Nothing);
                }
                true
            }
            Kind::Json => match json::write(canon, bytes, exclude.trail(), limits.depth) {
                Ok(()) => true,
                Err(Unfit::NotJson) => false,
                Err(Unfit::TooDeep) => return Err(FingerprintError::TooDeep { limit: limits.depth }),
            },
            Kind::Multipart(content_type) => multipart::write(canon, content_type, bytes, exclude),
            Kind::Encoded(coding) => {
                let group = canon.open(Tag::Encoded);
                canon.blob(Tag::Text, &coding.to_ascii_lowercase());
                canon.blob(Tag::Bytes, bytes);
                canon.close(group);
                true
            }
        };
        if !written {
            canon.blob(Tag::Bytes, bytes);
        }
        Ok(())
    }
}
