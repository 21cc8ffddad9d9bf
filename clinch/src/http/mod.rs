//! Guards as tower layers.

mod address;
mod forwarded;
mod idempotency_key;
mod identity;
mod refusal;
mod refuse;
mod route;
mod statuses;

pub use self::address::{ClientAddress, ForwardedHeader, PeerAddress, TrustedProxies};
pub use self::identity::{
    Authorization, Identify, IdentityChain, Sender, SessionCookie, UserParam, Verified, VerifiedUser,
};
pub use self::refusal::{Refusal, RefusalKind};
pub use self::refuse::{ProblemJson, Refuse};
pub use self::statuses::Statuses;
