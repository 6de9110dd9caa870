//! Fetches missing debug files from debuginfod servers and reports the result.

use std::path::{Path, PathBuf};

use crate::binary::debuginfod::{self, CLIENT, Debuginfod, INSTALL, Missing, URLS};
use crate::binary::dwarf::{Lacking, lacking};
use crate::failure::Warning;

/// Maximum number of binaries named in a remark.
const NAMED: usize = 3;

/// Result of asking the servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// A remark.
    pub note: Option<String>,
    /// Set if nothing could be fetched.
    pub warning: Option<Warning>,
}

/// Fetches the debug files that are missing here for these binaries and the libraries they need; `asking` gets their
/// number first. Does nothing, and does not call `binaries`, unless servers are configured.
pub(crate) fn fetch(
    binaries: impl FnOnce() -> Vec<PathBuf>,
    asking: impl FnOnce(usize),
) -> Fetched {
    let service = Debuginfod::here();
    if service == Debuginfod::Off {
        return Fetched::default();
    }
    let lacking = lacking(binaries());
    if lacking.is_empty() {
        return Fetched::default();
    }
    let Debuginfod::Client(client) = service else {
        return no_client(&lacking);
    };
    asking(lacking.len());
    let ids: Vec<&str> = lacking.iter().map(|it| it.build_id.as_str()).collect();
    let answers = debuginfod::fetch(&client, &ids);
    remark(&lacking, &answers)
}

fn no_client(lacking: &[Lacking]) -> Fetched {
    let all: Vec<&Path> = lacking.iter().map(|it| it.path.as_path()).collect();
    Fetched {
        warning: Some(Warning {
            text: format!(
                "no debug information for {}: {URLS} is set, but {CLIENT} is not installed",
                named(&all)
            ),
            hint: INSTALL.to_owned(),
        }),
        ..Fetched::default()
    }
}

/// Turns the servers' answers into a remark or a warning.
fn remark(lacking: &[Lacking], answers: &[Result<(), Missing>]) -> Fetched {
    let found = answers.iter().filter(|answer| answer.is_ok()).count();
    let without = |wanted: fn(&Missing) -> bool| -> Vec<&Path> {
        let all = lacking.iter().zip(answers);
        let without = all.filter(|(_, answer)| answer.as_ref().is_err_and(wanted));
        without.map(|(it, _)| it.path.as_path()).collect()
    };
    let mut parts = Vec::new();
    let mut part = |what: &str, of: &[&Path]| {
        if !of.is_empty() {
            parts.push(format!("{what} {}", named(of)));
        }
    };
    part("none for", &without(|it| *it == Missing::Nowhere));
    part("too slow for", &without(|it| *it == Missing::Late));
    let failed = answers.iter().find_map(|answer| match answer {
        Err(Missing::Failed(why)) => Some(why.as_str()),
        _ => None,
    });
    if let Some(why) = failed {
        let all = without(|it| matches!(it, Missing::Failed(_)));
        part(&format!("failed ({why}) for"), &all);
    }
    let parts = parts.join(", ");
    if found == 0 {
        return Fetched {
            warning: Some(Warning {
                text: format!("debuginfod has no debug files: {parts}"),
                hint: format!(
                    "install debug symbols by hand (Debian: NAME-dbgsym), or check the servers in {URLS}"
                ),
            }),
            ..Fetched::default()
        };
    }
    let but = if parts.is_empty() {
        String::new()
    } else {
        format!("; {parts}")
    };
    Fetched {
        note: Some(format!("debuginfod gave {}{but}", count(found))),
        ..Fetched::default()
    }
}

/// A number of debug files.
pub(crate) fn count(files: usize) -> String {
    match files {
        1 => "1 debug file".to_owned(),
        n => format!("{n} debug files"),
    }
}

fn named(paths: &[&Path]) -> String {
    let shown = paths
        .iter()
        .take(NAMED)
        .map(|path| path.display().to_string());
    let shown: Vec<String> = shown.collect();
    match paths.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_answers(answers: &[Result<(), Missing>]) -> Fetched {
        let lacking = (0..answers.len()).map(|n| Lacking {
            path: format!("/bin/{n}").into(),
            build_id: n.to_string(),
        });
        remark(&lacking.collect::<Vec<_>>(), answers)
    }

    /// Fetched files are reported by a remark; if nothing was fetched, a warning with a hint. Each reason names its
    /// binaries.
    #[test]
    fn every_answer_is_reported() {
        let all = of_answers(&[Ok(()), Ok(())]);
        assert_eq!(all.note.as_deref(), Some("debuginfod gave 2 debug files"));
        assert_eq!(all.warning, None);
        let some = of_answers(&[Ok(()), Err(Missing::Nowhere), Err(Missing::Late)]).note;
        assert_eq!(
            some.as_deref(),
            Some("debuginfod gave 1 debug file; none for /bin/1, too slow for /bin/2")
        );
        let failed = || Err(Missing::Failed("Connection refused".to_owned()));
        let none = of_answers(&[failed(), failed(), failed(), failed()])
            .warning
            .unwrap();
        assert_eq!(
            none.text,
            "debuginfod has no debug files: failed (Connection refused) for /bin/0, /bin/1, /bin/2 and 1 more"
        );
        assert!(none.hint.contains("DEBUGINFOD_URLS"));
    }
}
