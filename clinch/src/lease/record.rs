//! Records: what is left of a lease whose work is done.

use std::fmt;

use bytes::Bytes;

/// What a finished lease leaves behind for those who come later: a stored result, or nothing but the fact that it is
/// done. Cheap to clone. Its `Debug` shows only its length, because it may hold what users sent and got.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Record(Bytes);

impl Record {
    /// Takes the content, which is the caller's own business: stores keep it as it is.
    pub fn new(content: impl Into<Bytes>) -> Self {
        Self(content.into())
    }

    /// The content.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The content, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({} bytes)", self.0.len())
    }
}
