//! Fingerprints: which submissions are the same.
//!
//! This module promises that two submissions have the same [`Fingerprint`] exactly when their parameters are the same
//! under the rules that [`Params`] states, as far as BLAKE3 has no collisions. It is pure: it reads what it is given,
//! and knows neither HTTP types nor engines. Whatever a client sends, it neither panics nor recurses, and its time and
//! memory grow with the size of what it reads, not faster (but for the logarithm of a sort).
//!
//! The way of a parameter: a reader (`json`, `form`, `multipart`) takes the submission apart and hands names and values
//! to `canon`, which brings them into one order and one unambiguous row of bytes. Only that row is hashed.

mod body;
mod canon;
mod disposition;
mod exclude;
mod form;
mod json;
mod limits;
mod multipart;
mod param;
mod value;

use std::fmt;

use bytes::Bytes;

use self::body::Body;
use self::canon::{Canon, Tag};
use self::exclude::Exclude;
use self::json::Unfit;

pub use limits::{FingerprintError, Limits};
pub use value::Fingerprint;
pub(crate) use value::Short;

/// The parameters of one submission, from which its [`Fingerprint`] is made.
///
/// ```
/// use clinch::submit::Params;
/// use bytes::Bytes;
///
/// let json = Some(&b"application/json"[..]);
/// let (one, two) = (Bytes::from(r#"{"sku":7,"at":1}"#), Bytes::from(r#"{ "at": 2, "sku": 7 }"#));
/// let exclude = ["at".to_owned()];
/// let print = |body| Params::new().exclude(&exclude).query("a=1&b=2").body(json, None, body).fingerprint();
/// assert_eq!(print(&one)?, print(&two)?);
/// # Ok::<(), clinch::submit::FingerprintError>(())
/// ```
///
/// # What makes two submissions the same
/// - **Order.** The order of different names does not matter; the order of the values under one name does. So
///   `a=1&b=2` is `b=2&a=1`, and `a=1&a=2` is not `a=2&a=1`. This holds for path parameters, queries, forms, multipart
///   parts and JSON objects alike (an object that repeats a key keeps all of its values). The order of a JSON array
///   always matters.
/// - **Where a parameter stands.** Path, query, function parameters and body are apart: `a=1` in the query is not `a=1`
///   in a form, and a form is not a JSON object with the same fields.
/// - **Queries and forms** are percent-decoded to bytes (`%FF` is not `%FE`, even though neither is text), and `+` is a
///   blank. A percent sign that starts no escape stands for itself. A name without `=` has an empty value, so `a` is
///   `a=`. Empty pieces do not count, so `a=1&&b=2` is `a=1&b=2`. A form without any field is the same as no body.
/// - **JSON.** A number is what is written: `1`, `1.0` and `1e0` are three numbers, and integers of any size stay
///   apart. A string is its decoded value, so `"A"` is `"\u0041"`. White space between tokens does not matter. `null`,
///   `""`, `{}` and a missing field are four different things. A body that says it is JSON (`application/json`,
///   `text/json`, `…+json`) and is not, or has a string with half of a surrogate pair, counts by its bytes.
/// - **Multipart** (`multipart/form-data`): a part is its name, its file name and its content. The boundary, what stands
///   before the first and after the last part, and what else the headers of a part say do not count. A body that is
///   broken, or has a part that is not clearly named, counts by its bytes.
/// - **Any other body** is its bytes; its content type does not count. An empty body is the same as none.
/// - **Content codings.** A body with a `Content-Encoding` other than `identity` is its bytes as they came, together
///   with the lower-cased name of the coding. It is never decoded, so what is excluded cannot be found in it.
///
/// # What is excluded
/// Names that are excluded count as if they had not been sent, wherever they stand. See [`exclude`](Self::exclude).
#[derive(Clone, Default)]
#[must_use]
pub struct Params<'a> {
    exclude: &'a [String],
    limits: Limits,
    path: Option<&'a str>,
    path_params: Vec<(&'a str, &'a str)>,
    query: &'a str,
    arguments: Vec<(&'a str, &'a str)>,
    body: Body<'a>,
}

impl<'a> Params<'a> {
    /// A submission without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of a request, at once: what is added bit by bit is moved each time. The path counts where its parameters are not
    /// known by their names.
    #[cfg(feature = "http")]
    pub(crate) fn of_request(
        path: Result<Vec<(&'a str, &'a str)>, &'a str>,
        query: Option<&'a str>,
        body: Option<(&'a Bytes, [Option<&'a [u8]>; 2])>,
        limits: Limits,
    ) -> Self {
        Self {
            exclude: &[],
            limits,
            path: path.as_ref().err().copied(),
            path_params: path.unwrap_or_default(),
            query: query.unwrap_or_default(),
            arguments: Vec::new(),
            body: body.map_or_else(Body::default, |(bytes, [kind, coding])| Body::new(kind, coding, bytes)),
        }
    }

    /// The names that do not count.
    ///
    /// - A path parameter, a field of a query or form, or a multipart part does not count if its whole name is one of
    ///   them.
    /// - In a JSON body a name is the path of object keys, joined by dots: `items.timestamp` is the field `timestamp`
    ///   of the object `items`. Arrays are transparent: if `items` is a list of objects, it is that field of each. A
    ///   key that itself holds a dot is matched as it reads, so `a.b` also excludes the key `a.b`.
    /// - A parameter given by [`json`](Self::json) does not count if its name is one of them, and a path inside it
    ///   begins with its name: `order.timestamp`. Because a function often has one parameter that is the request, a
    ///   name without a dot also excludes the top-level field of that name in every such parameter: `timestamp`
    ///   excludes the parameter `timestamp` as well as the field `timestamp` of the parameter `order`.
    #[inline]
    pub fn exclude(mut self, names: &'a [String]) -> Self {
        self.exclude = names;
        self
    }

    /// How much is read, and how deep.
    #[inline]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The whole path as it was sent, for when no route template names its parameters. The last call counts.
    #[inline]
    pub fn path(mut self, path: &'a str) -> Self {
        self.path = Some(path);
        self
    }

    /// A parameter of the path, under the name that the route template gives it.
    #[inline]
    pub fn path_param(mut self, name: &'a str, value: &'a str) -> Self {
        self.path_params.push((name, value));
        self
    }

    /// The query as it was sent, without the question mark. The last call counts; an empty query is the same as none.
    #[inline]
    pub fn query(mut self, raw: &'a str) -> Self {
        self.query = raw;
        self
    }

    /// The body, and the headers `Content-Type` and `Content-Encoding` that say how to read it. The last call counts.
    #[inline]
    pub fn body(
        mut self,
        content_type: Option<&'a [u8]>,
        content_encoding: Option<&'a [u8]>,
        bytes: &'a Bytes,
    ) -> Self {
        self.body = Body::new(content_type, content_encoding, bytes);
        self
    }

    /// A named parameter as JSON text: this is how functions hand in their arguments. It is read by the rules for JSON
    /// above; a text that is no JSON counts by its bytes.
    #[inline]
    pub fn json(mut self, name: &'a str, json: &'a str) -> Self {
        self.arguments.push((name, json));
        self
    }

    /// The first value of a top-level parameter, for finding a `userId`.
    ///
    /// Looks in the path parameters, then in the query, then in what [`json`](Self::json) gave (a parameter of that
    /// name, or else a top-level field of that name in one of them), then in the body: a field of a form, a part of a
    /// multipart form that has no file name, or a top-level field of a JSON object. In JSON the value must be a string,
    /// which is decoded, or a number, which is taken as it is written. Where the first value is anything else or not
    /// UTF-8, there is `None`; a value is never changed to make it fit. Whether the name is excluded does not matter.
    pub fn param(&self, name: &str) -> Option<String> {
        param::find(self, name)
    }

    /// How often a name stands in the query.
    #[cfg(feature = "http")]
    pub(crate) fn in_query(&self, name: &str) -> usize {
        let query = form::blanks(self.query.as_bytes());
        form::fields(&query).filter(|(known, _)| **known == *name.as_bytes()).count()
    }

    /// Makes the fingerprint.
    ///
    /// # Errors
    /// [`FingerprintError::TooLarge`] and [`FingerprintError::TooDeep`] where the submission exceeds the
    /// [`limits`](Self::limits).
    pub fn fingerprint(self) -> Result<Fingerprint, FingerprintError> {
        self.fingerprint_without(self.exclude)
    }

    /// The fingerprint without these names, whichever it has been told.
    pub(crate) fn fingerprint_without(&self, names: &[String]) -> Result<Fingerprint, FingerprintError> {
        self.body.check(self.limits)?;
        let exclude = Exclude::new(names);
        let mut canon = Canon::new();

        // Every section is written, even an empty one, so that none can stand for another.
        match self.path {
            Some(path) => canon.blob(Tag::Bytes, path.as_bytes()),
            None => canon.tag(Tag::Nothing),
        }
        let section = canon.open(Tag::Fields);
        for (name, value) in &self.path_params {
            write_field(&mut canon, exclude, name.as_bytes(), value.as_bytes());
        }
        canon.close(section);
        write_form(&mut canon, exclude, self.query.as_bytes());
        let section = canon.open(Tag::Fields);
        for (name, json) in self.arguments.iter().filter(|(name, _)| !exclude.has(name.as_bytes())) {
            canon.begin_field(name.as_bytes());
            match json::write(&mut canon, json.as_bytes(), exclude.inside(name), self.limits.depth) {
                Ok(()) => {}
                Err(Unfit::TooDeep) => return Err(FingerprintError::TooDeep { limit: self.limits.depth }),
                Err(Unfit::NotJson) => canon.blob(Tag::Bytes, json.as_bytes()),
            }
            canon.end_field();
        }
        canon.close(section);
        self.body.write(&mut canon, exclude, self.limits)?;
        Ok(canon.finish())
    }
}

/// Writes a field whose value is bytes, unless it is excluded. True if it was written.
fn write_field(canon: &mut Canon, exclude: Exclude<'_>, name: &[u8], value: &[u8]) -> bool {
    let counts = !exclude.has(name);
    if counts {
        canon.begin_field(name);
        canon.blob(Tag::Bytes, value);
        canon.end_field();
    }
    counts
}

/// Writes the fields of a query or form. True if there was any.
fn write_form(canon: &mut Canon, exclude: Exclude<'_>, raw: &[u8]) -> bool {
    let group = canon.open(Tag::Fields);
    let mut any = false;
    for (name, value) in form::fields(&form::blanks(raw)) {
        any |= write_field(canon, exclude, &name, &value);
    }
    canon.close(group);
    any
}

/// Shows no values, because they are what users sent.
impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Params")
            .field("exclude", &self.exclude)
            .field("limits", &self.limits)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
