//! Results: a table for people, JSON for machines, on stdout.
//!
//! Colour is for terminals only, unless it was asked for. Whoever closes stdout early (`clinch ls | head`) has seen
//! enough: that ends the program quietly.

mod paint;
mod table;
mod time;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

pub(crate) use self::paint::Paint;
pub(crate) use self::table::{Cell, Table};
pub(crate) use self::time::{span, stamp};
use crate::exit::Exit;
use crate::failure::Failure;

/// How results are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) colour: bool,
}

impl Output {
    /// A text in a colour, if there is colour.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.colour { paint.on(text) } else { text.to_owned() }
    }
}

/// Writes a text to stdout.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

/// Writes a value to stdout as one line of JSON.
pub(crate) fn write_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| unwritten(&error.into()))?;
    write(&(line + "\n"))
}

fn unwritten(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::quiet(Exit::OK);
    }
    Failure::new(Exit::IO, format!("cannot write to stdout: {error}"))
}

/// Whether somebody sits before stdout who likes colours. See <https://no-color.org>.
pub(crate) fn colour_by_default() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}
