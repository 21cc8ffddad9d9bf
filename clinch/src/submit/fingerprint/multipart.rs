//! Multipart forms: parts with a name, perhaps a file name, and content.
//!
//! `multer` takes the body apart. It is asynchronous, but a body that is already here never makes it wait. What a part
//! is called is read by [`Disposition`], and not by `multer`, which reads it for convenience: it finds a `filename`
//! inside a quoted name, and gives no name at all for one that is not UTF-8, so two different parts could look the same.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use multer::Multipart;

use super::canon::{Canon, Tag};
use super::disposition::Disposition;
use super::exclude::Exclude;

pub(super) struct Part {
    pub(super) called: Disposition,
    pub(super) content: Bytes,
}

/// The parts in the order in which they stand; `None` if the body is broken, or a part is not clearly named.
pub(super) fn parts(content_type: &[u8], body: &Bytes) -> Option<Vec<Part>> {
    let boundary = multer::parse_boundary(str::from_utf8(content_type).ok()?).ok()?;
    let mut form = Multipart::new(stream::iter([Ok::<_, Infallible>(body.clone())]), boundary);
    let mut parts = Vec::new();
    while let Some(part) = form.next_field().now_or_never()?.ok()? {
        let called = Disposition::parse(part.headers().get("content-disposition")?.as_bytes())?;
        let content = part.bytes().now_or_never()?.ok()?;
        parts.push(Part { called, content });
    }
    Some(parts)
}

/// Writes the parts. False if the body is broken; then nothing is written.
pub(super) fn write(canon: &mut Canon, content_type: &[u8], body: &Bytes, exclude: Exclude<'_>) -> bool {
    let Some(parts) = parts(content_type, body) else {
        return false;
    };
    let group = canon.open(Tag::Multipart);
    for Part { called, content } in parts.iter().filter(|part| !exclude.has(&part.called.name)) {
        canon.begin_field(&called.name);
        let part = canon.open(Tag::Part);
        if let Some(name) = &called.file_name {
            canon.blob(Tag::FileName, name);
        }
        if let Some(name) = &called.ext_file_name {
            canon.blob(Tag::ExtFileName, name);
        }
        canon.blob(Tag::Bytes, content);
        canon.close(part);
        canon.end_field();
    }
    canon.close(group);
    true
}
