//! `clinch config check` and `clinch config show`.

use std::path::PathBuf;

use clinch::config::{Config, ConfigError};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Failure, exit_of};
use crate::message::say;
use crate::output::{Output, write, write_json};

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Configuration {
    Check { file: PathBuf, output: Output },
    Show { config: Box<Config>, output: Output },
}

#[derive(Debug, Serialize)]
struct Checked<'a> {
    file: &'a str,
    ok: bool,
    /// The rest only if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl Configuration {
    pub(crate) fn carry_out(&self) -> Exit {
        exit_of(match self {
            Self::Check { file, output } => check(file, *output),
            Self::Show { config, output } => show(config, *output),
        })
    }
}

fn check(file: &PathBuf, output: Output) -> Result<Exit, Failure> {
    let shown = file.display().to_string();
    let error = Config::from_file(file).err();
    let exit = if error.is_some() { Exit::CONFIG } else { Exit::OK };
    let error: Option<&ConfigError> = error.as_ref();
    let written = match error {
        _ if output.json => write_json(&Checked {
            file: &shown,
            ok: error.is_none(),
            place: error.and_then(ConfigError::place).map(ToString::to_string),
            field: error.and_then(ConfigError::field),
            problem: error.map(ConfigError::problem),
        }),
        Some(error) => {
            say(&error.to_string());
            Ok(())
        }
        None => write(&format!("{shown}: nothing is wrong\n")),
    };
    written.map_err(|failure| failure.quiet_with(exit))?;
    Ok(exit)
}

fn show(config: &Config, output: Output) -> Result<Exit, Failure> {
    if output.json {
        return write_json(&config.to_json()).map(|()| Exit::OK);
    }
    for told in config.unknown_variables() {
        say(&format!("warning: {told}"));
    }
    write(&config.to_toml()).map(|()| Exit::OK)
}
