//! The lease model as plain data: what is wanted, by whom, and what was granted.
//!
//! A [`Claim`] is the wish for one place on a key; an [`Attempt`] is one or more claims wanted together under one
//! [`Token`]; a *lease* is an attempt that was granted; a [`Holder`] is who has one, as others see it. Nothing here
//! talks to an engine or knows how one stores anything.

mod attempt;
mod claim;
mod claims;
mod fence;
mod holder;
mod maker;
mod record;
mod sent;
mod token;

pub use attempt::{Attempt, AttemptError, MAX_CLAIMS, Patience, Route};
pub use claim::{Claim, ClaimKey, Mode, Space};
pub(crate) use claims::Claims;
pub use fence::Fence;
pub use holder::Holder;
pub(crate) use maker::Maker;
pub use record::Record;
pub use token::{Owner, Token};
