//! Presets: SPECs for kinds of programs, as data.
//!
//! A preset is a file in TOML, whose form is [`Preset`]. Built-in ones are in `data/presets`; a user's own and those of the
//! machine are looked up first ([`catalog`]). [`choose`] takes the one that fits a program, and [`expand`] makes the SPECs
//! of it: the first form of each probe and argument that this build of the program can be read by. What can't be read is
//! left out with a reason, and never guessed: offsets of members come from debug information, or from the preset's table
//! for exactly this build.

pub(crate) mod catalog;
pub(crate) mod choose;
mod expand;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::probe::redact::Rule;

/// A preset, as in its file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preset {
    /// Description of its items, a few words.
    pub about: String,
    /// File names of the programs it is for; `*` stands for any text.
    #[serde(default)]
    pub programs: Vec<String>,
    /// File names of libraries, of which the program has one; `*` stands for any text.
    #[serde(default)]
    pub libraries: Vec<String>,
    /// Functions of which the program has one, for programs of any name.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Whether it is taken without being asked for.
    #[serde(default = "yes")]
    pub auto: bool,
    /// Versions with which it was tried.
    #[serde(default)]
    pub tried: Vec<String>,
    /// Rules of `--redact preset` for arguments that may hold personal data, by their names.
    #[serde(default)]
    pub redact: BTreeMap<String, Rule>,
    /// Begins and ends of items.
    #[serde(rename = "probe", default)]
    pub probes: Vec<ProbeForm>,
    /// Values of placeholders that hold for one build alone, by its build id; for programs built by one version of Go, by
    /// `go1.19`.
    #[serde(rename = "build", default)]
    pub builds: BTreeMap<String, BTreeMap<String, String>>,
}

/// A probe of a preset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeForm {
    /// A SPEC with placeholders: `{bin}` stands for the program, `{args}` for the arguments that can be read, `{goid}` for
    /// the offset of a goroutine's number in a Go program's runtime, and each other name for the value of the build's table.
    pub spec: String,
    /// Whether it marks where a thread goes on with an item, as `--resume` does.
    #[serde(default)]
    pub resume: bool,
    /// Whether it is taken only where no probe before it could be.
    #[serde(default)]
    pub otherwise: bool,
    /// For each argument the ways to read it, the first that works is taken.
    #[serde(default)]
    pub args: BTreeMap<String, Vec<String>>,
}

/// The SPECs of a preset for a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The preset's name.
    pub name: String,
    /// SPECs of items.
    pub uprobes: Vec<String>,
    /// SPECs of where items are resumed.
    pub resumes: Vec<String>,
    /// Parts of the preset that could not be read in this build, with the reasons.
    pub left_out: Vec<String>,
    /// Rules for arguments that may hold personal data.
    pub redact: BTreeMap<String, Rule>,
}

const fn yes() -> bool {
    true
}

impl Preset {
    /// Reads the text of a preset.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        const HINT: &str = "'pebs-trace presets redis' prints one to learn from";
        let preset: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|it| {
                let before = text.get(..it.start).unwrap_or_default();
                format!("line {}: ", before.matches('\n').count() + 1)
            });
            let what = error.message().replace('\n', " ");
            let line = line.unwrap_or_default();
            Failure::new(format!("cannot read preset {name}: {line}{what}"), HINT)
        })?;
        if preset.probes.is_empty() {
            return Err(Failure::new(
                format!("cannot read preset {name}: it has no [[probe]]"),
                HINT,
            ));
        }
        Ok(preset)
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|left| {
            let ends = left.char_indices().map(|(at, _)| at);
            ends.chain([left.len()])
                .any(|at| left.get(at..).is_some_and(|left| matches(rest, left)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, is) in [
            ("redis-server", "redis-server", true),
            ("redis", "redis-server", false),
            ("php-fpm*", "php-fpm8.2", true),
            ("php-fpm*", "php-fpm", true),
            ("lib*.so.*", "libssl.so.3", true),
            ("lib*.so.*", "libssl.so", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }

    /// Faults are reported with their line; unknown keys are faults.
    #[test]
    fn faults() {
        let of = |text: &str| Preset::parse("own", text).unwrap_err().to_string();
        let text = of("about = \"a\"\nprogram = [\"x\"]\n");
        assert!(
            text.contains("own: line 2: unknown field `program`"),
            "{text}"
        );
        assert!(of("about = \"a\"").contains("no [[probe]]"));
        assert!(of("about = 1").contains("line 1"), "{}", of("about = 1"));
        assert!(!of("{bin}:handle").contains('\n'));
    }
}
