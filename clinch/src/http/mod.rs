//! Guards as tower layers.

mod address;
mod forwarded;
mod identity;

pub use self::address::{ClientAddress, ForwardedHeader, PeerAddress, TrustedProxies};
pub use self::identity::{
    Authorization, Identify, IdentityChain, Sender, SessionCookie, UserParam, Verified, VerifiedUser,
};
