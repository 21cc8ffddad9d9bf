//! Holders as people and programs see them: everything but the token.

use clinch::Holder;
use clinch::lease::{Mode, Space};
use serde::Serialize;

use crate::output::{Cell, Paint, Table, span, stamp};

/// One holder, as JSON has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    /// What this holder is called, and no other on any key; see [`id`].
    pub(crate) id: String,
    /// These are `null` for another client's value, which Clinch did not write.
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) task: Option<u64>,
    pub(crate) label: Option<String>,
    /// By that machine's wall clock.
    pub(crate) since: Option<String>,
    /// `null`: it never expires, which only other clients' values do.
    pub(crate) remaining_ms: Option<u64>,
    /// As text: it is larger than what most readers of JSON take for a whole number.
    pub(crate) fence: Option<String>,
}

impl View {
    pub(crate) fn new(holder: &Holder) -> Self {
        let owner = holder.owner();
        let since = holder.since().map(stamp);
        let (host, pid, task, label) = match owner {
            Some(owner) => (Some(owner.host), Some(owner.pid), owner.task, owner.label),
            None => (None, None, None, None),
        };
        let remaining = holder.remaining().map(|left| left.as_millis().try_into().unwrap_or(u64::MAX));
        let fence = holder.fence().map(|fence| fence.to_string());
        let key = holder.on().key.to_string();
        Self {
            key,
            kind: kind(holder),
            id: id(holder),
            host,
            pid,
            task,
            label,
            since,
            remaining_ms: remaining,
            fence,
        }
    }
}

/// What a holder holds: a lock alone or shared, a permit, a duplicate window, an idempotency key.
pub(crate) fn kind(holder: &Holder) -> &'static str {
    match (holder.on().space, holder.mode()) {
        (Space::Lock, Mode::Shared) => "shared",
        (Space::Lock, _) => "lock",
        (Space::Permit, _) => "permit",
        (Space::Duplicate, _) => "duplicate",
        (Space::Idempotency, _) => "idempotency",
        (other, _) => other.word(),
    }
}

/// A name for this holder on this key, the same whoever looks. It is a hash of its token, so it says nothing about it.
pub(crate) fn id(holder: &Holder) -> String {
    let on = holder.on().to_string();
    let mut hasher = blake3::Hasher::new();
    // The length first: no two pairs of texts make the same bytes.
    hasher.update(&on.len().to_le_bytes());
    hasher.update(on.as_bytes());
    hasher.update(holder.token().as_str().as_bytes());
    hasher.finalize().to_hex()[..12].to_owned()
}

/// Who it is, since when, and for how long, as a sentence has it: `host:77 (nightly) since …, 29.8s left`.
pub(crate) fn sentence(holder: &Holder) -> String {
    let mut text = holder.owner().map_or_else(|| "an unknown client".to_owned(), |owner| owner.to_string());
    if let Some(since) = holder.since() {
        text += &format!(" since {}", stamp(since));
    }
    text += &match holder.remaining() {
        Some(left) => format!(", {} left", span(left)),
        None => ", without expiry".to_owned(),
    };
    // Whoever wrote the value may have written anything.
    text.replace(char::is_control, "?")
}

/// Holders as a table; their fences too, if there are any.
pub(crate) fn table(holders: &[Holder]) -> Table {
    let fenced = holders.iter().any(|holder| holder.fence().is_some());
    let headings = ["KEY", "KIND", "HOLDER", "LABEL", "SINCE", "LEFT", "ID", "FENCE"];
    let mut table = Table::new(if fenced { &headings } else { &headings[..7] });
    for holder in holders {
        let view = View::new(holder);
        let who = match (view.host, view.pid, view.task) {
            (Some(host), Some(pid), Some(task)) => Cell::new(format!("{host}:{pid} task {task}")),
            (Some(host), Some(pid), None) => Cell::new(format!("{host}:{pid}")),
            _ => Cell::new("an unknown client").in_colour(Paint::Yellow),
        };
        let left = match holder.remaining() {
            Some(left) => Cell::new(span(left)),
            None => Cell::new("for ever").in_colour(Paint::Red),
        };
        let mut row = vec![
            Cell::new(view.key),
            Cell::new(view.kind).in_colour(Paint::Cyan),
            who,
            Cell::new(view.label.unwrap_or_default()),
            Cell::new(view.since.unwrap_or_default()),
            left,
            Cell::new(view.id).in_colour(Paint::Dim),
        ];
        if fenced {
            row.push(Cell::new(view.fence.unwrap_or_default()));
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clinch::lease::ClaimKey;
    use clinch::{Key, Token};

    use super::*;

    fn holder(key: &str, token: &str) -> Holder {
        let on = ClaimKey::lock(Key::new(key).unwrap());
        Holder::new(on, Mode::Exclusive, Token::from_text(token), Some(Duration::from_millis(29_870)))
    }

    #[test]
    fn an_id_is_of_one_holder_on_one_key_and_hides_the_token() {
        let name = id(&holder("a", "secret"));
        assert_eq!(name, id(&holder("a", "secret")));
        for other in [holder("a", "secret2"), holder("b", "secret"), holder("as", "ecret")] {
            assert_ne!(name, id(&other));
        }
        assert!(!name.contains("secret"));
    }

    #[test]
    fn a_holder_is_told_without_its_token() {
        let random = "00112233445566778899aabbccddeeff";
        let known = holder("k", &format!("{random}@web:77:nightly:5:1700000000123"));
        assert_eq!(sentence(&known), "web:77 task 5 (nightly) since 2023-11-14T22:13:20Z, 29.8s left");
        let foreign = Holder::new(known.on().clone(), Mode::Exclusive, Token::from_text("secret"), None);
        assert_eq!(sentence(&foreign), "an unknown client, without expiry");
        for holder in [&known, &foreign] {
            let json = serde_json::to_string(&View::new(holder)).unwrap();
            assert!(!json.contains(random) && !json.contains("secret"), "{json}");
        }
    }
}
