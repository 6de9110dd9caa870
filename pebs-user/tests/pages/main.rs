//! Man pages and shell completions, tested with the programs that read them.

use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use pebs_user::cli::Cli;

#[path = "../../examples/pages.rs"]
#[expect(dead_code, reason = "its main function is the example's")]
mod pages;

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

/// Every command has a page, hidden ones have none, and `man` shows each.
#[test]
fn man_pages() {
    let dir = tempfile::tempdir().unwrap();
    pages::write(dir.path()).unwrap();
    let man = dir.path().join(pages::MAN);
    let command = Cli::command();
    let mut pages = vec!["pebs-trace.1".to_owned()];
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages.push(format!("pebs-trace-{}.1", subcommand.get_name()));
    }
    let found = std::fs::read_dir(&man).unwrap();
    let mut found: Vec<_> = found
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    found.sort();
    assert_eq!(found, pages);
    for page in pages {
        accepts("man", &["--warnings", "-l"], &man.join(page));
    }
}

/// The shells take the completions, and these know the commands and their options.
#[test]
fn completions() {
    let dir = tempfile::tempdir().unwrap();
    pages::write(dir.path()).unwrap();
    let files = [
        ("bash", "-n", "pebs-trace.bash"),
        ("zsh", "-n", "_pebs-trace"),
        ("fish", "-n", "pebs-trace.fish"),
    ];
    assert_eq!(files.len(), pages::SHELLS.len());
    for (shell, check, file) in files {
        let path = dir.path().join(pages::COMPLETIONS).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["report", "view", "slowest", "uprobe"] {
            assert!(text.contains(word), "'{word}' in {file}");
        }
        accepts(shell, &[check], &path);
    }
}
