//! The one row of bytes that a submission is hashed as.
//!
//! Readers write values, and groups of named fields, in the order in which they find them; closing a group brings its
//! fields into the order of their names, and leaves those of one name in the order in which they came. The row can be
//! read back in one way only: every item begins with a tag that says what it is, every text is preceded by its length,
//! and every group is ended. So two submissions make the same row only if they are the same.
//!
//! What has become long is *sealed*: replaced by its hash. So nothing is copied again at every level around it, and the
//! row stays short. Whether something is sealed depends on nothing but its length in the row, which no order changes.

use std::cell::Cell;
use std::sync::LazyLock;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

use super::value::Fingerprint;

/// Longer items are sealed. One chunk of BLAKE3: shorter ones cost a whole compression or more for nothing.
const SEAL: usize = 1024;

/// Part of the hash, so that no other use of BLAKE3 makes the same one. A change of the row's format changes the number.
const CONTEXT: &str = "clinch submission fingerprint 1";

/// What BLAKE3 makes of the context, every time the same.
static CONTEXT_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(CONTEXT));

/// What a thread keeps for its next row, at most, in bytes.
const KEPT: usize = 8 * 1024;

thread_local! {
    /// The buffers of the last row of this thread, for the next one: taking memory anew costs more than a short body.
    static SPARE: Cell<Option<Canon>> = const { Cell::new(None) };
}

/// What an item is. The numbers are part of the hash: do not change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    // Items without content.
    Nothing = 0,
    Null = 1,
    False = 2,
    True = 3,
    // Items with a length and bytes.
    Bytes = 4,
    Text = 5,
    Number = 6,
    FileName = 7,
    ExtFileName = 8,
    // Groups, up to `End`.
    Fields = 16,
    Object = 17,
    Array = 18,
    Multipart = 19,
    Part = 20,
    Encoded = 21,
    /// A field of a group: its name as a length and bytes, then its value.
    Field = 30,
    End = 31,
    /// The hash of an item or group that is too long to stand here itself.
    Sealed = 32,
}

/// Writes the row.
#[derive(Debug, Default)]
pub(super) struct Canon {
    row: Vec<u8>,
    /// The fields of all groups that are open, those of the innermost group last.
    fields: Vec<Field>,
    scratch: Vec<u8>,
}

/// One field in the row.
#[derive(Debug)]
struct Field {
    /// The beginning of its name, because most comparisons need no more.
    prefix: u64,
    start: usize,
    end: usize,
}

/// A group that is open, or any place to go back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    row: usize,
    fields: usize,
}

impl Canon {
    /// With room for what most submissions are.
    pub(super) fn new() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        spare.unwrap_or_else(|| Self {
            row: Vec::with_capacity(256),
            fields: Vec::with_capacity(8),
            scratch: Vec::with_capacity(256),
        })
    }

    /// Leaves its buffers to the next row, unless they have become large.
    fn leave(mut self) {
        let bytes =
            self.row.capacity() + self.scratch.capacity() + self.fields.capacity() * size_of::<Field>();
        if bytes <= KEPT {
            self.row.clear();
            self.fields.clear();
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(Some(self)));
        }
    }

    /// Writes an item without content.
    pub(super) fn tag(&mut self, tag: Tag) {
        self.row.push(tag as u8);
    }

    /// Writes an item with content.
    pub(super) fn blob(&mut self, tag: Tag, bytes: &[u8]) {
        if bytes.len() > SEAL {
            let mut hasher = Hasher::new();
            hasher.update(&[tag as u8]).update(bytes);
            self.seal(&hasher);
        } else {
            self.counted(tag, bytes);
        }
    }

    fn counted(&mut self, tag: Tag, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(length @ 0..=0x7f) => self.row.extend_from_slice(&[tag as u8, length]),
            _ => {
                self.tag(tag);
                self.length(bytes.len());
            }
        }
        self.row.extend_from_slice(bytes);
    }

    /// Begins a group, either of fields or of items.
    pub(super) fn open(&mut self, tag: Tag) -> Mark {
        let mark = self.mark();
        self.tag(tag);
        mark
    }

    /// Begins a field of the innermost group; its value is written next.
    pub(super) fn begin_field(&mut self, name: &[u8]) {
        let mut prefix = [0; 8];
        let length = name.len().min(prefix.len());
        prefix[..length].copy_from_slice(&name[..length]);
        let prefix = u64::from_be_bytes(prefix);
        let start = self.row.len();
        self.fields.push(Field { prefix, start, end: start });
        self.counted(Tag::Field, name);
    }

    /// Ends the field that was begun last.
    pub(super) fn end_field(&mut self) {
        if let Some(field) = self.fields.last_mut() {
            field.end = self.row.len();
        }
    }

    /// Takes the field that was begun last back, name and value.
    pub(super) fn drop_field(&mut self) {
        if let Some(field) = self.fields.pop() {
            self.row.truncate(field.start);
        }
    }

    /// Ends a group.
    pub(super) fn close(&mut self, group: Mark) {
        let Self { row, fields, scratch } = self;
        let fields_here = &mut fields[group.fields..];
        let by_name = |a: &Field, b: &Field| {
            a.prefix.cmp(&b.prefix).then_with(|| name_at(row, a.start).cmp(name_at(row, b.start)))
        };
        let in_order = fields_here.is_sorted_by(|a, b| by_name(a, b).is_le());
        if !in_order {
            // Stable, so that fields of one name stay as they came.
            fields_here.sort_by(by_name);
        }
        if row.len() - group.row > SEAL {
            let mut hasher = Hasher::new();
            if in_order {
                hasher.update(&row[group.row..]);
            } else {
                hasher.update(&row[group.row..=group.row]);
                for field in fields_here {
                    hasher.update(&row[field.start..field.end]);
                }
            }
            self.rewind(group);
            self.seal(&hasher);
        } else {
            if !in_order {
                scratch.clear();
                scratch.reserve(row.len() - group.row);
                for field in fields_here {
                    scratch.extend_from_slice(&row[field.start..field.end]);
                }
                row.truncate(group.row + 1);
                row.extend_from_slice(scratch);
            }
            fields.truncate(group.fields);
            self.tag(Tag::End);
        }
    }

    /// Where the row ends now.
    pub(super) fn mark(&self) -> Mark {
        Mark { row: self.row.len(), fields: self.fields.len() }
    }

    /// Takes back everything that was written since.
    pub(super) fn rewind(&mut self, mark: Mark) {
        self.row.truncate(mark.row);
        self.fields.truncate(mark.fields);
    }

    /// Hashes the row.
    pub(super) fn finish(self) -> Fingerprint {
        let mut hasher = Hasher::new_from_context_key(&CONTEXT_KEY);
        hasher.update(&self.row);
        self.leave();
        Fingerprint::new(hasher.finalize().into())
    }

    fn seal(&mut self, hasher: &Hasher) {
        self.tag(Tag::Sealed);
        self.row.extend_from_slice(hasher.finalize().as_bytes());
    }

    /// Writes a length in groups of seven bits, the lowest first; the high bit says that another group follows.
    fn length(&mut self, mut length: usize) {
        while length > 0x7f {
            self.row.push(length.to_le_bytes()[0] | 0x80);
            length >>= 7;
        }
        self.row.push(length.to_le_bytes()[0]);
    }
}

/// The name of the field that starts there.
fn name_at(row: &[u8], start: usize) -> &[u8] {
    let (mut at, mut length, mut shift) = (start + 1, 0, 0);
    loop {
        let byte = row[at];
        at += 1;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return &row[at..at + length];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of fields of this name, each with a value of one byte.
    fn group(name: &[u8], values: &[u8]) -> Canon {
        let mut canon = Canon::default();
        let group = canon.open(Tag::Fields);
        for value in values {
            canon.begin_field(name);
            canon.blob(Tag::Bytes, &[*value]);
            canon.end_field();
        }
        canon.close(group);
        canon
    }

    #[test]
    fn names_of_any_length_are_read_back() {
        for length in [0, 1, 7, 8, 9, 127, 128, 129, 16_383, 16_384, 3_000_000] {
            let name = vec![b'n'; length];
            let mut canon = Canon::default();
            canon.tag(Tag::Null);
            canon.begin_field(&name);
            canon.tag(Tag::Null);
            assert_eq!(name_at(&canon.row, 1), name, "{length}");
        }
    }

    #[test]
    fn what_is_long_is_sealed_and_what_is_short_stands_as_it_is() {
        // A tag, then six bytes for every field.
        let short = group(b"n", &[7; 170]);
        assert_eq!((short.row.len(), short.row[0]), (1 + 170 * 6 + 1, Tag::Fields as u8));
        let long = group(b"n", &[7; 171]);
        assert_eq!((long.row.len(), long.row[0]), (33, Tag::Sealed as u8));
        assert!(short.fields.is_empty() && long.fields.is_empty());

        let mut canon = Canon::default();
        canon.blob(Tag::Bytes, &[0; SEAL]);
        assert_eq!(canon.row.len(), 1 + 2 + SEAL);
        canon.blob(Tag::Bytes, &[0; SEAL + 1]);
        assert_eq!(canon.row.len(), 1 + 2 + SEAL + 33);
    }

    #[test]
    fn a_dropped_field_and_a_rewound_group_leave_nothing() {
        let mut canon = group(b"n", &[1]);
        let before = canon.row.clone();
        let mark = canon.mark();
        let open = canon.open(Tag::Object);
        canon.begin_field(b"x");
        let inner = canon.open(Tag::Object);
        canon.begin_field(b"y");
        canon.rewind(mark);
        assert!(canon.row == before && canon.fields.is_empty());

        assert_eq!((open.row, inner.fields), (before.len(), 1));
        let open = canon.open(Tag::Object);
        canon.begin_field(b"x");
        canon.tag(Tag::Null);
        canon.drop_field();
        canon.close(open);
        assert_eq!(canon.row[before.len()..], [Tag::Object as u8, Tag::End as u8]);
    }

    /// The key that is made of the context once is what BLAKE3 itself would make of it.
    #[test]
    fn a_row_is_hashed_in_its_context() {
        for values in [&[][..], &[1, 2, 3], &[7; 170], &[7; 171]] {
            let canon = group(b"n", values);
            let expected = blake3::derive_key(CONTEXT, &canon.row);
            assert_eq!(*canon.finish().as_bytes(), expected);
        }
    }
}
