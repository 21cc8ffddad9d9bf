//! One file a command.

pub(crate) mod counter;
pub(crate) mod cycles;
pub(crate) mod fences;
pub(crate) mod handover;
pub(crate) mod simulate;
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
