//! The runtime that a command runs on.

use tokio::runtime::Builder;

use crate::exit::Exit;
use crate::message::say;

/// Runs a command on this thread. One is enough where nothing blocks: renewals are never late.
pub(crate) fn on_one_thread(command: impl Future<Output = Exit>) -> Exit {
    on(Builder::new_current_thread(), command)
}

/// Runs a server, on as many threads as there are processors.
pub(crate) fn on_all_threads(server: impl Future<Output = Exit>) -> Exit {
    on(Builder::new_multi_thread(), server)
}

fn on(mut runtime: Builder, command: impl Future<Output = Exit>) -> Exit {
    let runtime = match runtime.enable_all().build() {
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
