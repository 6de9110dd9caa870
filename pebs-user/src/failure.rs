//! The error that ends a command, with its causes and a hint; and warnings, which have one, too.
//!
//! Every error of this crate that can end a command is a [`Hint`]: only those convert to a [`Failure`], so that no
//! hint is forgotten.

use std::fmt::{self, Display};
use std::io;

/// An error with advice for the user.
pub trait Hint {
    /// The value seen and the command to run; `None` if the message suffices.
    fn hint(&self) -> Option<String>;
}

/// A problem that does not stop the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The problem.
    pub text: String,
    /// Command or option against it.
    pub hint: String,
}

/// Errors of libraries: our errors that wrap them have the hints.
macro_rules! without_hint {
    ($($error:ty),* $(,)?) => {
        $(impl Hint for $error {
            fn hint(&self) -> Option<String> {
                None
            }
        })*
    };
}

without_hint!(
    io::Error,
    fmt::Error,
    clap::Error,
    serde_json::Error,
    tokio::task::JoinError,
);

impl Hint for pebs_selfcount::Error {
    fn hint(&self) -> Option<String> {
        self.hint()
    }
}

impl Hint for pebs_mine::csv::CsvError {
    fn hint(&self) -> Option<String> {
        self.hint()
    }
}

/// The error that ends a command.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
}

/// Result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An error without a type of its own, with a hint.
    #[must_use]
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..Self::bare(message)
        }
    }

    /// An error whose message needs no hint.
    #[must_use]
    pub fn bare(message: impl Into<String>) -> Self {
        Self {
            error: anyhow::Error::msg(message.into()),
            hint: None,
        }
    }

    /// Prefixes the error with the attempted action.
    #[must_use]
    pub fn context(self, attempted: impl Into<String>) -> Self {
        Self {
            error: self.error.context(attempted.into()),
            ..self
        }
    }

    /// The hint, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the reader of a pipe had enough: `pebs-trace export ... | head` is not a failure.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        let mut io = self
            .error
            .chain()
            .filter_map(|it| it.downcast_ref::<io::Error>());
        io.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// One line: the error and its causes, each once.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        for cause in self.error.chain() {
            let text = without_number(cause.to_string());
            if line.is_empty() {
                line = text;
            } else if !line.contains(&text) {
                line = format!("{line}: {text}");
            }
        }
        f.write_str(&line)
    }
}

/// The system's words for an error, without its number.
fn without_number(mut text: String) -> String {
    if let Some(at) = text.rfind(" (os error ").filter(|_| text.ends_with(')')) {
        text.truncate(at);
    }
    text
}

impl<E> From<E> for Failure
where
    E: std::error::Error + Hint + Send + Sync + 'static,
{
    fn from(error: E) -> Self {
        Self {
            hint: error.hint(),
            error: error.into(),
        }
    }
}

/// Adds the attempted action to an error.
pub trait Context<T> {
    /// # Errors
    /// The error, behind this text.
    fn context(self, attempted: impl Into<String>) -> Result<T>;

    /// # Errors
    /// The error, behind this text.
    fn with_context<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Failure>> Context<T> for std::result::Result<T, E> {
    fn context(self, attempted: impl Into<String>) -> Result<T> {
        self.with_context(|| attempted)
    }

    fn with_context<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(attempted()))
    }
}
