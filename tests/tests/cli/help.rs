//! Help of the program and of every subcommand.

use pebs_tests::recording::pebs_trace;

/// Longest first line of an argument's help.
const FIRST_LINE: usize = 72;

fn help_of(subcommand: Option<&str>) -> String {
    let done = pebs_trace(subcommand.into_iter().chain(["--help"]));
    assert_eq!(done.code(), Some(0), "{done}");
    assert_eq!(done.stderr, "", "help goes to stdout\n{done}");
    done.stdout
}

/// Names below `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .filter(|name| name != "help")
        .collect()
}

/// Entries below headings that end in `:`, each with the text that belongs to it.
fn arguments(help: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut listing = false;
    for line in help.lines() {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim();
        if indent == 0 && !text.is_empty() {
            listing = text.ends_with(':') && text != "Commands:";
        } else if listing && indent <= 6 && text.starts_with(['-', '<', '[']) {
            let (name, help) = text.split_once("  ").unwrap_or((text, ""));
            found.push((name.to_owned(), help.trim().to_owned()));
        } else if let (true, Some((_, help))) = (listing, found.last_mut()) {
            *help = format!("{help}\n{text}").trim().to_owned();
        }
    }
    found
}

/// Every argument of every subcommand has help, whose first line is short, imperative in form (a capital
/// letter, no full stop).
#[test]
fn every_argument_has_help() {
    let main = help_of(None);
    let mut pages = vec![("pebs-trace".to_owned(), main.clone())];
    for name in subcommands(&main) {
        let page = help_of(Some(&name));
        pages.push((name, page));
    }
    for (page, help) in pages {
        let arguments = arguments(&help);
        assert!(
            arguments.iter().any(|(name, _)| name.contains("--help")),
            "{page}: {help}"
        );
        for (argument, text) in arguments {
            let first = text.lines().next().unwrap_or_default();
            let ok = !first.is_empty()
                && first.len() <= FIRST_LINE
                && !first.ends_with('.')
                && first.starts_with(|c: char| c.is_uppercase());
            assert!(ok, "{page} {argument}: '{first}'");
        }
    }
}

/// The long help of a command with several exit statuses explains them.
#[test]
fn exit_statuses_have_help() {
    assert!(help_of(None).contains("Exit status: 0"));
    for name in [
        "diff",
        "import",
        "recover",
        "probes",
        "suggest",
        "events",
        "doctor",
        "calibrate",
        "plan",
        "validate",
    ] {
        let help = help_of(Some(name));
        assert!(help.contains("Exit status: 0"), "{name}: {help}");
    }
}

/// Recording has the documented arguments.
#[test]
fn recording_has_its_arguments() {
    let help = help_of(None);
    for argument in [
        "--uprobe",
        "--event",
        "--reset",
        "--output",
        "--pid",
        "--duration",
        "--return",
        "--exclude-kernel",
        "--ring-size",
        "--max-memory",
        "--segment",
        "--max-loss",
        "--no-switches",
        "--keep",
        "--slow",
    ] {
        assert!(help.contains(argument), "{argument} in {help}");
    }
}

/// The version goes to stdout.
#[test]
fn version() {
    let done = pebs_trace(["--version"]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(done.stdout.starts_with("pebs-trace "), "{done}");
}

/// Without arguments: a usage message, and exit 2.
#[test]
fn nothing_asked() {
    let done = pebs_trace([""; 0]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("--uprobe"), "{done}");
    assert_eq!(done.stdout, "", "{done}");
}

/// An argument that does not exist: the nearest is suggested.
#[test]
fn unknown_argument() {
    let done = pebs_trace(["--uprob", "x:y"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("--uprobe"), "{done}");
}

/// A misspelt subcommand, a command without `--` before it, several pids at once, and numbers with a unit.
#[test]
fn usual_slips() {
    let done = pebs_trace(["repot", "t"]);
    assert!(done.stderr.contains("hint: did you mean report?"), "{done}");
    let done = pebs_trace(["--uprobe", "x:y", "./app", "-n"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(
        done.stderr
            .contains("hint: a command to trace follows '--': -- ./app"),
        "{done}"
    );
    let done = pebs_trace(["--uprobe", "x:y", "-p", "17", "18"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("-p 18"), "{done}");
    let done = pebs_trace(["--uprobe", "x:y", "--reset", "16k"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("without a unit (16000"), "{done}");
}
