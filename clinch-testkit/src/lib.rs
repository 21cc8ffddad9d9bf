//! What Clinch is tested with: real servers, a fault proxy, a simulated store, history checkers.

pub mod history;
pub mod ledger;
pub mod planted;
pub mod proxy;
pub mod server;
pub mod sim;
