//! Man pages, shell completions and the guide from the program, tested with the programs that read them.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::path::Path;
use std::process::{Command, Output};

use clap::CommandFactory;
use pebs_user::cli::Cli;

fn pebs_trace(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pebs-trace"));
    command.args(args).output().unwrap()
}

/// Runs the program with these arguments; returns its output.
fn printed(args: &[&str]) -> String {
    let output = pebs_trace(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{args:?}: {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a program reads the file without error or warning. If it is not installed, prints that to stderr.
fn accepts(program: &str, args: &[&str], file: &Path) {
    let mut command = Command::new(program);
    // Without a pager, and wide enough for the longest word.
    command.env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
    match command.args(args).arg(file).output() {
        Err(error) => eprintln!("SKIP {program}: {error}"),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && errors.is_empty(),
                "{program} {}: {errors}",
                file.display()
            );
        }
    }
}

/// Every command has a page, hidden ones have none, and `man` shows each; alone a page is the same.
#[test]
fn man_pages() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man1");
    assert_eq!(printed(&["man", "--dir", man.to_str().unwrap()]), "");
    let command = Cli::command();
    let mut pages = vec![("pebs-trace.1".to_owned(), printed(&["man"]))];
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = subcommand.get_name();
        pages.push((format!("pebs-trace-{name}.1"), printed(&["man", name])));
        for nested in subcommand.get_subcommands() {
            let name = format!("{name}-{}", nested.get_name());
            pages.push((format!("pebs-trace-{name}.1"), printed(&["man", &name])));
        }
    }
    assert_eq!(std::fs::read_dir(&man).unwrap().count(), pages.len());
    for (page, text) in pages {
        let page = man.join(page);
        assert_eq!(std::fs::read_to_string(&page).unwrap(), text);
        accepts("man", &["--warnings", "-l"], &page);
    }
    for unknown in ["gone", "selftest-workload"] {
        let output = pebs_trace(&["man", unknown]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("hint: commands: report, "), "{errors}");
    }
}

/// The shells take the completions, and these know the commands and their options.
#[test]
fn completions() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["completions", shell]);
        for word in ["report", "view", "slowest", "uprobe"] {
            assert!(text.contains(word), "'{word}' for {shell}");
        }
        let path = dir.path().join(shell);
        std::fs::write(&path, text).unwrap();
        accepts(shell, &["-n"], &path);
    }
}

/// Each page of the guide is listed with its title, and printed as it is in the sources.
#[test]
fn guide() {
    let list = printed(&["guide"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("guide");
    let mut pages = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        // A notebook is no page.
        if name == "README" || path.extension().is_none_or(|it| it != "md") {
            continue;
        }
        pages += 1;
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        let is_listed = |line: &str| line.starts_with(name) && line.ends_with(title);
        assert!(list.lines().any(is_listed), "{name}: {list}");
        assert_eq!(printed(&["guide", name]), text);
    }
    assert_eq!(list.lines().count(), pages + 2, "{list}");
    let output = pebs_trace(&["guide", "Jitter"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("no page 'Jitter'"), "{errors}");
    assert!(errors.contains("pages that mention it: "), "{errors}");
}
