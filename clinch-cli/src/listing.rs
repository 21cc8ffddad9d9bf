//! Looking at what is held, and by whom.

use clinch::lease::{ClaimKey, Space};
use clinch::store::Cursor;
use clinch::{Error, Holder, Key, LockManager};

/// Everything that a key can name.
const SPACES: [Space; 4] = [Space::Lock, Space::Permit, Space::Duplicate, Space::Idempotency];

/// All who hold this key, in whatever way: a lock alone or shared, permits, a duplicate window, an idempotency key.
pub(crate) async fn holders_of(locks: &LockManager, key: &Key) -> Result<Vec<Holder>, Error> {
    let mut holders = Vec::new();
    for space in SPACES {
        holders.extend(locks.holders(&ClaimKey { space, key: key.clone() }).await?);
    }
    Ok(holders)
}

/// All holders, a page at a time.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    locks: &'a LockManager,
    /// `None` at the end.
    next: Option<Cursor>,
}

impl<'a> Pages<'a> {
    pub(crate) const fn of(locks: &'a LockManager) -> Self {
        Self { locks, next: Some(Cursor::START) }
    }

    /// The next page, which may be empty; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Holder>>, Error> {
        let Some(cursor) = self.next else { return Ok(None) };
        let page = self.locks.list(cursor).await?;
        self.next = page.next;
        Ok(Some(page.holders))
    }
}
