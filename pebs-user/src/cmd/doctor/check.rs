//! A check of a feature, with how to fix it.

use std::fmt;

use serde::Serialize;

use super::facts::Answer;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing to fix.
    Ok,
    /// Recording works, with less precision, reach or comfort.
    Degraded,
    /// Recording does not work.
    Missing,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        })
    }
}

/// One line of the doctor's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the feature.
    pub name: &'static str,
    pub status: Status,
    pub found: String,
    /// Command or step that fixes it; always there unless the status is ok.
    pub fix: Option<String>,
    /// Whether the fix is a command for a shell, as it stands.
    #[serde(skip)]
    pub is_command: bool,
}

impl Check {
    /// A check with nothing to fix.
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            found: found.into(),
            fix: None,
            is_command: false,
        }
    }

    /// Its fix is a command that `--fix` can run.
    pub(super) fn by_command(self) -> Self {
        Self {
            is_command: true,
            ..self
        }
    }

    /// Works with less.
    pub(super) fn degraded(name: &'static str, found: impl Into<String>, fix: &str) -> Self {
        Self {
            name,
            status: Status::Degraded,
            found: found.into(),
            fix: Some(fix.into()),
            is_command: false,
        }
    }

    /// Does not work.
    pub(super) fn missing(name: &'static str, found: impl Into<String>, fix: &str) -> Self {
        Self {
            name,
            status: Status::Missing,
            found: found.into(),
            fix: Some(fix.into()),
            is_command: false,
        }
    }

    /// Check of a feature that recording needs: missing if the kernel lacks it, degraded if that could not be
    /// tested.
    pub(super) fn needed(name: &'static str, answer: &Answer, found: &str, fix: &str) -> Self {
        match answer {
            Answer::Yes => Self::ok(name, found),
            Answer::No(reason) => Self::missing(name, reason, fix),
            Answer::Unknown(reason) => {
                let found = format!("could not be checked: {reason}");
                Self::degraded(
                    name,
                    found,
                    "run 'sudo pebs-trace doctor'; as root see 'confinement'",
                )
            }
        }
    }
}
