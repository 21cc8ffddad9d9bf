//! The runtime that a command runs on.

use crate::exit::Exit;
use crate::message::say;

/// Runs a command on this thread. One is enough where nothing blocks: renewals are never late.
pub(crate) fn on_one_thread(command: impl Future<Output = Exit>) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("cannot start: {error}"));
            return Exit::OS;
        }
    };
    let exit = runtime.block_on(command);
    // A name lookup that hangs must not keep the program from ending.
    runtime.shutdown_background();
    exit
}
