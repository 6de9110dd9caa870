//! The command line as its user sees it: help, exit codes, and messages on bad input.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

#[path = "cli/binaries.rs"]
mod binaries;
#[path = "cli/costs.rs"]
mod costs;
#[path = "cli/documented.rs"]
mod documented;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/explain.rs"]
mod explain;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/items.rs"]
mod items;
#[path = "cli/looks.rs"]
mod looks;
#[path = "cli/mine.rs"]
mod mine;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/privileges.rs"]
mod privileges;
#[path = "cli/python.rs"]
mod python;
#[path = "cli/sampling.rs"]
mod sampling;
#[path = "cli/specs.rs"]
mod specs;
#[path = "cli/targets.rs"]
mod targets;
#[path = "cli/traces.rs"]
mod traces;
#[path = "cli/validate.rs"]
mod validate;
#[path = "cli/view.rs"]
mod view;

use pebs_tests::process::Finished;
use pebs_tests::recording::pebs_trace;
use pebs_tests::workload::Workload;

/// Records `/bin/true` with these arguments before the `--`, to a directory that must not exist.
fn record(args: &[&str]) -> Finished {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let dir = trace.display().to_string();
    let mut all = vec!["-o", &dir];
    all.extend(args);
    all.extend(["--", "/bin/true"]);
    let done = pebs_trace(all);
    assert!(
        done.code() != Some(2) || !trace.exists(),
        "a refused run leaves no trace\n{done}"
    );
    done
}

fn record_spec(spec: &str) -> Finished {
    record(&["--uprobe", spec])
}

/// A SPEC that is in order.
fn good_spec() -> String {
    Workload::build("plain").spec("handle(id=*(arg1):u64)")
}

/// Checks that the run was refused: exit 2, one line `error: ` in lower case that contains all of these words,
/// ignoring case, then perhaps a hint; no panic, no backtrace.
fn refused(done: &Finished, words: &[&str]) {
    assert_eq!(done.code(), Some(2), "{done}");
    let lines: Vec<&str> = done.stderr.lines().collect();
    let errors: Vec<&&str> = lines
        .iter()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "one error\n{done}");
    let first = errors[0].trim_start_matches("error: ").chars().next();
    assert!(
        first.is_some_and(|c| !c.is_uppercase()),
        "lower case\n{done}"
    );
    assert!(!errors[0].ends_with('.'), "no full stop\n{done}");
    for word in ["panicked", "os error"] {
        assert!(!done.stderr.contains(word), "{done}");
    }
    let stderr = done.stderr.to_lowercase();
    for word in words {
        assert!(
            stderr.contains(&word.to_lowercase()),
            "'{word}' is not said\n{done}"
        );
    }
}

/// Checks that the refusal has a hint with all of these words.
fn hints(done: &Finished, words: &[&str]) {
    let hint: Vec<&str> = done
        .stderr
        .lines()
        .filter(|line| line.starts_with("hint: "))
        .collect();
    assert_eq!(hint.len(), 1, "one hint\n{done}");
    for word in words {
        assert!(
            hint[0].contains(word),
            "the hint does not say '{word}'\n{done}"
        );
    }
}
