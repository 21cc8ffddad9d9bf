//! Guards as tower layers, for any server on `http` types, and for axum.
//!
//! [`Web`] makes the layers: [`DuplicateLayer`], [`LockLayer`], [`LimitLayer`], [`IdempotencyLayer`], and the [`WebLayer`]
//! that handlers with attributes need. The lease lives in the response future, so what becomes of it when the client goes
//! away is a policy ([`Disconnect`](crate::submit::Disconnect)). A refusal is a response; the inner service's error type is
//! untouched. The handler sees the body unchanged.

mod address;
mod body;
#[cfg(feature = "axum")]
mod extract;
mod finishing;
mod forwarded;
mod gate;
mod idempotency;
mod idempotency_key;
#[cfg(fuzzing)]
pub(crate) use self::idempotency_key::idempotency_key;
mod identity;
mod layer;
mod look;
mod refusal;
mod refuse;
mod response_body;
mod route;
mod served;
mod service;
mod statuses;
mod web;

pub use self::address::{ClientAddress, ForwardedHeader, PeerAddress, TrustedProxies};
pub use self::body::RequestBody;
#[cfg(feature = "axum")]
pub use self::extract::Held;
pub use self::finishing::ResponseFuture;
pub use self::gate::{DuplicateGate, Gate, LimitGate, LockGate};
pub use self::idempotency::{IdempotencyLayer, IdempotencyService, Rest};
pub use self::identity::{
    Authorization, Identify, IdentityChain, Sender, SessionCookie, UserParam, Verified, VerifiedUser,
};
pub use self::layer::{DuplicateLayer, GuardLayer, LimitLayer, LockLayer};
pub use self::look::RouteTemplate;
pub use self::refusal::{Refusal, RefusalKind};
pub use self::refuse::{ProblemJson, Refuse};
pub use self::response_body::ResponseBody;
pub use self::served::{WebLayer, WebService};
pub use self::service::GuardService;
pub use self::statuses::Statuses;
pub use self::web::Web;
