//! The steps of the port, each inside a transaction.

use std::time::Duration;

use rusqlite::params;

use super::clock::At;
use super::error::Fault;
use super::session::Tx;
use super::site::parse;
use super::table::{Table, from_stored, mode};
use crate::lease::{Attempt, Claim, ClaimKey, Holder, Record, Token};
use crate::store::{Cursor, Page, Revocation, Verdict};
use crate::stores::rules::Moment;
use crate::stores::rules::entry::{Call, Finish};
use crate::stores::rules::steps as rules;

/// How many holders a page of a listing has, roughly: a page ends with a key.
const PAGE: usize = 100;

pub(super) fn acquire(tx: &mut Tx<'_, '_>, attempt: &Attempt) -> Result<Verdict, Fault> {
    let mut table = Table::load(tx, attempt.claims().iter().map(Claim::on))?;
    let verdict = rules::acquire(&mut table, attempt, tx.now)?;
    table.store(tx)?;
    Ok(verdict)
}

/// Whether all of the lease was held, and is extended.
pub(super) fn renew(tx: &mut Tx<'_, '_>, lease: &Attempt) -> Result<bool, Fault> {
    let mut table = Table::load(tx, lease.claims().iter().map(Claim::on))?;
    let extended = rules::renew(&mut table, lease, tx.now);
    table.store(tx)?;
    Ok(extended)
}

/// Whether all of the lease was held.
pub(super) fn release(tx: &mut Tx<'_, '_>, lease: &Attempt) -> Result<bool, Fault> {
    let mut table = Table::load(tx, lease.claims().iter().map(Claim::on))?;
    let held = rules::release(&mut table, lease, tx.now);
    table.store(tx)?;
    Ok(held)
}

/// Whether the record is there, now or from before.
pub(super) fn complete(
    tx: &mut Tx<'_, '_>,
    on: &ClaimKey,
    token: &Token,
    record: &Record,
    ttl: Option<Duration>,
) -> Result<bool, Fault> {
    let until = ttl.map(|ttl| tx.now.after(ttl.max(Duration::from_millis(1))));
    let mut table = Table::load(tx, [on])?;
    let finish = table.only()?.finish(token, until, || Ok(record.clone()))?;
    if finish == Finish::Now {
        table.wake(Call::Everybody);
    }
    table.store(tx)?;
    Ok(finish != Finish::Lost)
}

/// Whether this token held the key.
pub(super) fn revoke(tx: &mut Tx<'_, '_>, on: &ClaimKey, token: &Token) -> Result<bool, Fault> {
    let mut table = Table::load(tx, [on])?;
    let now = tx.now;
    let Some(leaving) = table.only()?.end(token, now) else { return Ok(false) };
    table.wake(leaving.call);
    table.store(tx)?;
    tx.tell_revoked(Revocation { on: on.clone(), token: token.clone() })?;
    Ok(true)
}

pub(super) fn inspect(tx: &mut Tx<'_, '_>, on: &ClaimKey) -> Result<Vec<Holder>, Fault> {
    let now = tx.now;
    let mut table = Table::load(tx, [on])?;
    Ok(table.only()?.live(now).map(|place| place.holder(on, now)).collect())
}

pub(super) fn list(tx: &mut Tx<'_, '_>, cursor: Cursor) -> Result<Page, Fault> {
    let mut page = Page::default();
    // No key has a hash beyond; and the end is a place to go on from, too.
    let Ok(from) = i64::try_from(cursor.position()) else { return Ok(page) };
    let (now, mut last) = (tx.now, None);
    let mut rows = tx.sql.page.query(params![from, tx.site.prefix, now.0])?;
    while let Some(row) = rows.next()? {
        let hash: i64 = row.get(0)?;
        if page.holders.len() >= PAGE && last != Some(hash) {
            page.next = u64::try_from(hash).ok().map(Cursor::new);
            break;
        }
        last = Some(hash);
        let Some(on) = parse(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?) else { continue };
        let token = Token::from_text(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?);
        let remaining = At(row.get(4)?).since(now).max(Duration::from_millis(1));
        let fence: Option<i64> = row.get(5)?;
        let holder = Holder::new(on, mode(row.get(3)?)?, token, Some(remaining));
        page.holders.push(holder.with_fence(fence.map(from_stored)));
    }
    page.holders.sort_by(|a, b| a.on().cmp(b.on()));
    Ok(page)
}
