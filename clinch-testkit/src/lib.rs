//! What Clinch is tested with: real servers, a fault proxy, a browser, a simulated store, history checkers.

pub mod browser;
pub mod history;
pub mod http;
pub mod ledger;
pub mod planted;
pub mod prometheus;
pub mod proxy;
pub mod serve;
pub mod server;
pub mod sim;
