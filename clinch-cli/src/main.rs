//! The `clinch` program: any command under a distributed lock, and a look at who holds what.
//!
//! `main` reads the arguments ([`args`]), carries out the one command they name (a module each: [`run`], [`ls`], …) and ends with
//! its exit code ([`exit`]). Everything that clinch itself says goes through [`message`].

#[cfg(not(unix))]
compile_error!("the clinch program passes signals on and stops process groups; it is for Unix only");

mod args;
mod audit;
mod bench;
mod completions;
mod config;
mod doctor;
mod engine;
mod exit;
mod failure;
mod holder;
mod inspect;
mod listing;
mod ls;
mod message;
mod output;
mod pattern;
mod release;
mod run;
mod runtime;
mod serve;
mod state;

use std::process::ExitCode;

use crate::args::Stop;
use crate::exit::Exit;

fn main() -> ExitCode {
    let exit = match args::parse(std::env::args_os()) {
        Ok(command) => command.carry_out(),
        Err(Stop::Text(text)) => {
            message::print(&text);
            Exit::OK
        }
        Err(Stop::Refused(failure)) => failure.tell(),
    };
    exit.into()
}
