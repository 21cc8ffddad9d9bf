//! One file a command.

pub(crate) mod breaker;
pub(crate) mod contend;
pub(crate) mod counter;
pub(crate) mod cycles;
mod engine;
pub(crate) mod fair;
pub(crate) mod fences;
pub(crate) mod handover;
mod kid;
pub(crate) mod load;
pub(crate) mod permits;
pub(crate) mod queue;
pub(crate) mod renewals;
pub(crate) mod screenshots;
pub(crate) mod simulate;
mod spans;
pub(crate) mod torture;
pub(crate) mod with_redis;

use std::process::{Child, Command, Stdio};

/// Another process of this very program, with its standard input and output as pipes.
fn another(arguments: &[String]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process of this program")
}
