//! The engine: its memory, its clock, and the rules by which a step changes the memory.
//!
//! The rules are a trait so that an engine can be broken on purpose. What a step did is not taken from its answer but
//! seen in the [`Table`], so that a broken engine cannot lie to the history.

mod replica;
mod rules;
mod table;
mod time;

pub(in crate::sim) use replica::Replica;
pub(crate) use rules::role;
pub use rules::{Asked, Asking, Honest, Refusal, Rules, acquire_by};
pub use table::{Place, Table};
pub use time::EngineTime;
