//! The `clinch` program: any command under a distributed lock.
//!
//! `main` reads the arguments ([`args`]), carries out the one command they name ([`run`]) and ends with its exit code
//! ([`exit`]). Everything that clinch itself says goes through [`message`].

#[cfg(not(unix))]
compile_error!("the clinch program passes signals on and stops process groups; it is for Unix only");

mod args;
mod exit;
mod message;
mod run;

use std::process::ExitCode;

use crate::args::{Command, Stop};
use crate::exit::Exit;
use crate::message::say;

fn main() -> ExitCode {
    let exit = match args::parse(std::env::args_os()) {
        Ok(command) => carry_out(&command),
        Err(Stop::Text(text)) => {
            message::print(&text);
            Exit::OK
        }
        Err(Stop::Usage(problem)) => {
            say(&problem);
            Exit::USAGE
        }
    };
    exit.into()
}

fn carry_out(command: &Command) -> Exit {
    // One thread is enough: nothing here blocks, so renewals are never late.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("cannot start: {error}"));
            return Exit::OS;
        }
    };
    let exit = runtime.block_on(async {
        match command {
            Command::Run(job) => run::run(job).await,
        }
    });
    // A name lookup that hangs must not keep the program from ending.
    runtime.shutdown_background();
    exit
}
