//! What ends a command: an error with its causes, and what to do about it.
//!
//! Every error of this crate that can end a command is a [`Hint`]: one that is not can't become a [`Failure`], so that
//! nobody forgets to say what to do.

use std::fmt::{self, Display};
use std::io;

/// What to do about an error.
pub trait Hint {
    /// The value seen and the command to run; `None` where the message says it all.
    fn hint(&self) -> Option<String>;
}

/// Errors of libraries: those of ours that have one as a cause know what to do.
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

/// What ends a command.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
}

/// What a command gives.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An error that is of no other type, and what to do about it.
    #[must_use]
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..Self::bare(message)
        }
    }

    /// An error whose message says it all.
    #[must_use]
    pub fn bare(message: impl Into<String>) -> Self {
        Self {
            error: anyhow::Error::msg(message.into()),
            hint: None,
        }
    }

    /// Puts what was attempted before it.
    #[must_use]
    pub fn context(self, attempted: impl Into<String>) -> Self {
        Self {
            error: self.error.context(attempted.into()),
            ..self
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the reader of a pipe had enough: `pebs-trace export ... | head` is no failure.
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

/// What was attempted when an error came.
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
