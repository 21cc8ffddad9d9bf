//! Planted bugs: engines and stores that are broken on purpose, to prove the checker.
//!
//! A checker that was never seen to catch anything proves nothing. Every [`Plant`] breaks one thing, as somebody might
//! by mistake, in the engine (`engine`), between manager and engine (`port`), between a quorum and its nodes (`node`), or in a
//! bare client ([`Habit`]). The tests let each work through the same
//! workload, on the same seeds, that the unbroken code passes without a violation, and ask that
//! [`check`](crate::history::check) finds it.
//!
//! To add one: a variant in `engine`, `port` or `node`, and a line in `list`.

mod engine;
mod list;
mod node;
mod port;

use std::fmt;
use std::sync::Arc;

use clinch::store::Store;

pub use self::list::all;
use crate::history::Rule;
use crate::sim::workload::{Habit, Kind, Setup, Wrap};
use crate::sim::{Around, Honest, Rules, Shape};

/// Puts a broken store around an honest one.
type Wrapped = fn(Arc<dyn Store>) -> Arc<dyn Store>;

/// One planted bug.
#[derive(Clone, Copy)]
pub struct Plant {
    /// A short name.
    pub name: &'static str,
    /// What is broken.
    pub what: &'static str,
    /// The rule that must catch it; others may as well.
    pub breaks: Rule,
    /// In which world.
    pub kind: Kind,
    rules: fn() -> Box<dyn Rules>,
    wrap: Option<Wrapped>,
    /// What is put around the way to each node of a quorum.
    around: Option<Around>,
    /// A node that was restarted does not sit out.
    at_once: bool,
    habit: Habit,
}

impl Plant {
    /// The workload of this seed, with the bug in it.
    pub fn setup(&self, seed: u64) -> Setup {
        let wrap = self.wrap.map(|wrap| Arc::new(wrap) as Wrap);
        let mut setup = Setup::of_seed_on(self.kind, seed);
        if let (true, Shape::Quorum { sits_out, .. }) = (self.at_once, &mut setup.shape) {
            *sits_out = false;
        }
        Setup { rules: self.rules, wrap, around: self.around, habit: self.habit, ..setup }
    }
}

/// Puts the bug of this name around a real store, if it is one of a store.
pub fn wrap(name: &str, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
    let plant = all().into_iter().find(|plant| plant.name == name)?;
    Some((plant.wrap?)(store))
}

impl fmt::Debug for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

fn honest() -> Box<dyn Rules> {
    Box::new(Honest)
}
