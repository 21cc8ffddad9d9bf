//! Who makes tokens: the same few for the whole life of a process.

use std::sync::{Mutex, PoisonError};

/// `host:pid:`, escaped, as it stands in tokens.
///
/// One for each host name that managers of this process were given, kept for good: so a token can point to it, and be copied
/// without counting who has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Maker(String);

impl Maker {
    pub(crate) fn named(owner: String) -> &'static Self {
        static ALL: Mutex<Vec<&'static Maker>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = all.iter().find(|maker| maker.0 == owner) {
            return same;
        }
        let new: &'static Self = Box::leak(Box::new(Self(owner)));
        all.push(new);
        new
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
