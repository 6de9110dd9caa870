//! Rules for slow items, by duration or by time on the CPU.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::baseline::Rule;

/// Quantity by which items are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankBy {
    /// From begin to end.
    #[default]
    Duration,
    /// Time on the CPU between the two.
    CpuTime,
}

/// A rule for slow items, and what it is applied to: `3x`, `cpu:3x`, `cpu`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlowBy {
    pub by: RankBy,
    /// `None`: those above a gap, else p99.
    pub rule: Option<Rule>,
}

const CPU: &str = "cpu";

/// Name of the default rule: a gap in the tail.
pub(crate) const GAP: &str = "gap";

impl FromStr for SlowBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rule) = text.strip_prefix(CPU) else {
            return Ok(Self {
                by: RankBy::Duration,
                rule: Some(text.parse()?),
            });
        };
        let rule = match rule.strip_prefix(':') {
            Some(rule) if !rule.starts_with(CPU) => Some(rule.parse()?),
            None if rule.is_empty() => None,
            _ => return Err("cpu, or cpu: and a rule (cpu:p99, cpu:3x, cpu:5ms)".to_owned()),
        };
        Ok(Self {
            by: RankBy::CpuTime,
            rule,
        })
    }
}

impl fmt::Display for SlowBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.by, self.rule) {
            (RankBy::Duration, None) => f.write_str(GAP),
            (RankBy::Duration, Some(rule)) => rule.fmt(f),
            (RankBy::CpuTime, None) => f.write_str(CPU),
            (RankBy::CpuTime, Some(rule)) => write!(f, "{CPU}:{rule}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules are displayed as they are typed, and others are refused with what is accepted.
    #[test]
    fn forms() {
        for text in [
            "p99", "3x", "500us", "cpu", "cpu:p99", "cpu:1.5x", "cpu:5ms",
        ] {
            assert_eq!(text.parse::<SlowBy>().unwrap().to_string(), text);
        }
        for text in ["", "cpu:", "cpup99", "cpu:5", "cpu:cpu", "cpu=5ms"] {
            assert!(!text.parse::<SlowBy>().unwrap_err().is_empty(), "{text}");
        }
    }
}
