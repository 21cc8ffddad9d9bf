//! What Clinch is tested with: real servers and deployments of several, a fault proxy, a browser, a simulated store, history checkers.

pub mod browser;
pub mod deployment;
mod hearing;
#[cfg(feature = "simulation")]
pub mod history;
pub mod http;
pub mod ledger;
#[cfg(feature = "simulation")]
mod passes_on;
#[cfg(feature = "simulation")]
pub mod planted;
pub mod prometheus;
pub mod proxy;
pub mod serve;
pub mod server;
#[cfg(feature = "simulation")]
pub mod sim;

pub use hearing::hears;
