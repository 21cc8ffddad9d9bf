//! Histories: what was asked, what was answered, what the engine really did, and whether that can be.
//!
//! A [`Recorder`] writes [`Event`]s down on one clock; [`check`] reads a finished [`History`] and names every
//! [`Violation`]. A history is text, one event a line, so that two runs can be compared byte by byte and a failing one
//! can be read.
//!
//! # Three places where events are taken down
//! - **The caller's side**: operations and their outcomes ([`Event::Invoke`], [`Event::Complete`]), and what a caller
//!   *believes* to hold ([`Event::Held`] to [`Event::Ended`]).
//! - **The port**: what the manager was told by its store ([`Event::Port`]), by [`Observed`], the outermost wrapper.
//! - **The engine**: what really happened ([`Event::Step`], [`Event::Forgot`]), seen as the difference that each step
//!   made to the engine's memory, whatever the step answered. This is the ground truth.
//!
//! A lease that is passed on inside a process keeps its token: its guards are told apart by the operations that got
//! them.

mod check;
mod event;
mod index;
mod observed;
mod recorder;
mod show;

pub use check::{Rule, Violation, check};
pub use event::{
    Answer, Call, Entry, Event, FaultKind, Header, HeldClaim, Outcome, Placed, Role, Step, Stop, Tag,
    Touched, Wanted, Wish,
};
pub(crate) use observed::operation;
pub use observed::{Observed, in_operation};
pub use recorder::{History, Recorder};
