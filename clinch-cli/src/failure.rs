//! What went wrong: what to say, and which code to end with.

use clinch::config::ConfigError;

use crate::exit::Exit;
use crate::message::say;

/// Why a command did not do what it was told to.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// Nothing, where there is nobody to tell.
    message: Option<String>,
    /// What to try, if more is known of that than the message says.
    remedy: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()), remedy: None }
    }

    /// The same, with what was not done.
    pub(crate) fn without(mut self, undone: &str) -> Self {
        if let Some(message) = &mut self.message {
            *message = format!("{message}; {undone}");
        }
        self
    }

    /// The same, with what to try.
    pub(crate) fn with_remedy(self, remedy: String) -> Self {
        Self { remedy: Some(remedy), ..self }
    }

    /// One that everybody knows of already.
    pub(crate) const fn quiet(exit: Exit) -> Self {
        Self { exit, message: None, remedy: None }
    }

    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// What there is to say.
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// What to try.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    pub(crate) const fn is_quiet(&self) -> bool {
        self.message.is_none()
    }

    /// The same, but with this code if there is nothing to say.
    pub(crate) fn quiet_with(self, exit: Exit) -> Self {
        if self.is_quiet() { Self::quiet(exit) } else { self }
    }

    /// Says it.
    pub(crate) fn tell(self) -> Exit {
        if let Some(message) = self.message {
            match self.remedy {
                Some(remedy) => say(&format!("{message}; {remedy}")),
                None => say(&message),
            }
        }
        self.exit
    }
}

/// Bad usage.
impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self::new(Exit::USAGE, problem)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        clinch::Error::from(error).into()
    }
}

impl From<clinch::Error> for Failure {
    fn from(error: clinch::Error) -> Self {
        Self::new(Exit::refused(&error), error.to_string())
    }
}

/// How a command ended, said if it needs to be.
pub(crate) fn exit_of(result: Result<Exit, Failure>) -> Exit {
    result.unwrap_or_else(Failure::tell)
}
