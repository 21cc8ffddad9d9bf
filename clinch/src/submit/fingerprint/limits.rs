//! How much is read, and what is said where that is not enough.

use serde::{Deserialize, Serialize};

/// How much of a submission is read for its fingerprint.
///
/// ```
/// use clinch::submit::Limits;
///
/// let limits = Limits::new().body_bytes(64 * 1024);
/// assert_eq!((limits.body_bytes, limits.depth), (65_536, 64));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Limits {
    /// The largest body in bytes. The default is 2 MiB.
    pub body_bytes: usize,
    /// The deepest nesting of JSON objects and arrays in each other. The default is 64; a number or a string that
    /// stands alone has none. Depth costs memory, but no stack.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: 2 * 1024 * 1024, depth: 64 }
    }
}

impl Limits {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the largest body in bytes.
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets the deepest nesting of JSON.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }
}

/// Why a submission has no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// The body is larger than [`Limits::body_bytes`].
    #[error("the body has {bytes} bytes; the limit `body_bytes` accepts at most {limit}")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// JSON is nested deeper than [`Limits::depth`].
    #[error(
        "the JSON is nested too deep; the limit `depth` accepts at most {limit} objects and arrays in each other"
    )]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
}
