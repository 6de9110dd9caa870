//! The commands of the README and the guide that can be run as they stand: the blocks of `sh` that name a workload
//! (`sh mixed`), in a directory of their own with that workload as `./app`.
//!
//! `pebs-user/tests/guide` gives all others to the parser of the command line.

#[path = "../../../pebs-user/tests/guide/markdown.rs"]
#[expect(dead_code, reason = "shared with the tests of the guide")]
mod markdown;

use std::path::Path;
use std::process::Command;

use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process, say_skip};

/// Exit statuses that count as success: a recording may lose records, a comparison may find changes, and a plan may
/// have no reset value for its goal.
fn good(arguments: &[String]) -> &'static [i32] {
    match arguments[0].as_str() {
        "diff" => &[0, 3],
        "plan" => &[0, 1],
        option if option.starts_with('-') => &[0, 1],
        _ => &[0],
    }
}

/// Runs the commands of a block one after the other, beside other recordings: that they run is tested, not their figures.
fn run(page: &str, script: &str, workload: &Workload, cache: &Path) -> usize {
    let place = tempfile::tempdir().unwrap();
    process::copy_program(&workload.path, &place.path().join("app"));
    let commands = markdown::commands(script);
    for command in &commands {
        assert!(command.runs("pebs-trace"), "{page}: {command:?}");
        let arguments = &command.words[1..];
        // Beside other tests marks may take so long that a recording would be refused.
        let force = arguments[0].starts_with('-').then_some("--force");
        let done = process::run(
            Command::new(machine::pebs_trace())
                .args(force)
                .args(arguments)
                .current_dir(place.path())
                .env("XDG_CACHE_HOME", cache),
        );
        let code = done.code();
        let is_good = code.is_some_and(|code| good(arguments).contains(&code));
        assert!(is_good, "{page}\n{done}");
    }
    commands.len()
}

/// Every block with a workload works as the page describes.
#[test]
fn guide_runs() {
    need!(machine::root());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let mut ran = 0;
    for page in markdown::pages(workspace).unwrap() {
        for block in markdown::blocks(&page.text) {
            let Some(name) = block.info.strip_prefix("sh ") else {
                continue;
            };
            match Workload::try_build(name) {
                Ok(workload) => ran += run(&page.name, &block.text, &workload, cache.path()),
                Err(reason) => say_skip(format_args!("{}: {reason}", page.name)),
            }
        }
    }
    assert!(ran > 40, "{ran} commands only");
}
