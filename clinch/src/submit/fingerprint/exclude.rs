//! Which names do not count.

/// The excluded names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exclude<'a>(&'a [String]);

impl<'a> Exclude<'a> {
    pub(super) fn new(names: &'a [String]) -> Self {
        Self(names)
    }

    /// Whether this whole name is excluded.
    pub(super) fn has(self, name: &[u8]) -> bool {
        // Not a set: the list is short, and a set would hash every path in full, however long a client makes it.
        self.0.iter().any(|excluded| excluded.as_bytes() == name)
    }

    /// For reading a JSON body.
    pub(super) fn trail(self) -> Trail<'a> {
        Trail { exclude: self, path: Vec::new(), keys: 0, own: 0 }
    }

    /// For reading the JSON of a function's parameter.
    pub(super) fn inside(self, parameter: &str) -> Trail<'a> {
        Trail { exclude: self, path: parameter.as_bytes().to_vec(), keys: 1, own: 1 }
    }
}

/// Where in a JSON text its reader stands: the keys of the objects around it, joined by dots.
#[derive(Debug)]
pub(super) struct Trail<'a> {
    exclude: Exclude<'a>,
    path: Vec<u8>,
    keys: usize,
    /// How many of the keys are not from the text: one if it belongs to a parameter.
    own: usize,
}

/// A place on the trail, to come back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    bytes: usize,
    keys: usize,
}

impl Trail<'_> {
    pub(super) fn place(&self) -> Place {
        Place { bytes: self.path.len(), keys: self.keys }
    }

    /// Goes to a key of the object at the current place. True if what is there is excluded.
    pub(super) fn enter(&mut self, key: &[u8]) -> bool {
        if self.exclude.0.is_empty() {
            return false;
        }
        if self.keys > 0 {
            self.path.push(b'.');
        }
        self.path.extend_from_slice(key);
        self.keys += 1;
        // `timestamp` also means the field of the one request object that a function takes.
        let is_field = self.own == 1 && self.keys == 2 && !key.contains(&b'.');
        self.exclude.has(&self.path) || (is_field && self.exclude.has(key))
    }

    /// Goes back.
    pub(super) fn leave(&mut self, to: Place) {
        self.path.truncate(to.bytes);
        self.keys = to.keys;
    }
}
