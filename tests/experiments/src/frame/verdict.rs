//! Goals of an experiment: how many are met, and the exit code.

use std::process::ExitCode;

/// 0 if all is well, else 1.
#[must_use]
pub fn exit_code(is_well: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_well))
}

/// Whether something is within its limit, in a table.
#[must_use]
pub const fn word(is_within: bool) -> &'static str {
    if is_within { "ok" } else { "MISSED" }
}

/// Requirements, and whether each is met.
#[derive(Default)]
pub struct Verdict {
    goals: Vec<(String, bool)>,
}

impl Verdict {
    pub fn goal(&mut self, what: impl Into<String>, is_met: bool) {
        self.goals.push((what.into(), is_met));
    }

    /// All of them, in order.
    #[must_use]
    pub fn goals(&self) -> &[(String, bool)] {
        &self.goals
    }

    /// Those that are missed.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        let missed = self.goals.iter().filter(|it| !it.1);
        missed.map(|it| it.0.as_str())
    }

    #[must_use]
    pub fn is_met(&self) -> bool {
        self.missed().next().is_none()
    }
}

impl From<Vec<(String, bool)>> for Verdict {
    fn from(goals: Vec<(String, bool)>) -> Self {
        Self { goals }
    }
}
