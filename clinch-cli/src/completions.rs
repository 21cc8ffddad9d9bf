//! `clinch completions`: a script for the shell that knows all commands and options.

use crate::exit::Exit;
use crate::failure::exit_of;
use crate::output::write;

/// The script, made of the arguments' own definition.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) script: String,
}

impl Completions {
    pub(crate) fn carry_out(&self) -> Exit {
        exit_of(write(&self.script).map(|()| Exit::OK))
    }
}
