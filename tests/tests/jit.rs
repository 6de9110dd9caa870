//! Code generated at run time, by the stock Java virtual machine and by Node: items between or in their native
//! functions, and the names of compiled functions.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use pebs_tests::process::{self, Running};
use pebs_tests::recording::Recorder;
use pebs_tests::trace::Trace;
use pebs_tests::{machine, need};

/// Items before the recording, for everything to be compiled; items in it.
const ITEMS: (u32, usize) = (4_000, 800);

/// One item in this many takes longer.
const HEAVY: usize = 40;

/// Between two samples, ns.
const RESET: &str = "50000";

/// The library with the native functions of `java.io`, if there is a virtual machine whose code can be named.
fn library(java: &Path) -> Result<PathBuf, String> {
    let home = java.parent().and_then(Path::parent);
    let library = home.map(|home| home.join("lib/libjava.so"));
    let found = library.filter(|path| path.is_file());
    found.ok_or_else(|| format!("{} has no libjava.so", java.display()))
}

/// Runs to its end in good order.
fn run(command: &mut Command) {
    let ended = process::run(command);
    assert!(ended.status.success(), "{ended}");
}

/// Every item that took longer is found, and the function responsible has its name.
#[test]
fn compiled_code() {
    need!(machine::root());
    let (java, jcmd) = (
        need!(machine::program("java")),
        need!(machine::program("jcmd")),
    );
    let (javac, library) = (need!(machine::program("javac")), need!(library(&java)));
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/Items.java");
    run(Command::new(javac).arg("-d").arg(dir.path()).arg(source));
    let (warm_up, items) = (ITEMS.0.to_string(), ITEMS.1.to_string());
    let mut target = Running::start(
        Command::new(java)
            .arg("-cp")
            .arg(dir.path())
            .args(["Items", &warm_up, &items]),
    );
    target.wait_for_output(|text| text.contains("ready"));
    let pid = target.pid().to_string();
    run(Command::new(jcmd).args([&pid, "Compiler.perfmap"]));
    let spec = format!(
        "{}:Java_java_io_FileInputStream_readBytes..Java_java_io_FileOutputStream_writeBytes",
        library.display()
    );
    let live = Recorder::new(&spec)
        .args(&["--event", "cpu-clock", "--reset", RESET])
        .attach(target.pid());
    target.send("\n");
    let ended = target.finish();
    assert!(ended.status.success(), "{ended}");
    let recording = live.finish();
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    check(&recording.trace());
    let report = &recording.tool.stdout;
    let carried = report
        .lines()
        .find(|line| line.starts_with("slow because: "));
    let is_named = carried.is_some_and(|line| line.contains(" in long Items.heavy(long) "));
    assert!(is_named, "{report}");
    assert!(
        !recording.tool.stderr.contains("no name"),
        "{}",
        recording.tool
    );
}

/// Functions compiled by Node while it was recorded, named by its dump: no name was known when the recording began.
#[test]
fn dumped_code() {
    need!(machine::root());
    let node = need!(machine::program("node")).canonicalize().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/items.js");
    let spec = format!("{}:uv__run_timers", node.display());
    // The dump is written where Node starts.
    let start = r#"cd "$1" && exec "$2" --perf-prof "$3""#;
    let words = [dir.path(), &node, &script].map(|path| path.to_str().unwrap());
    let words = ["-c", start, "sh", words[0], words[1], words[2]];
    let recording = Recorder::new(&spec)
        .args(&["--event", "cpu-clock", "--reset", "200000"])
        .command(Path::new("/bin/sh"), &words);
    let trace = recording.trace();
    let names = trace.function_names();
    let is_named = names.values().any(|name| name.contains("sumOfSquares"));
    assert!(is_named, "{names:?}");
    let report = &recording.tool.stdout;
    let slow = report
        .lines()
        .find(|line| line.starts_with("slow because: "));
    assert!(
        slow.is_some_and(|line| line.contains("sumOfSquares")),
        "{report}"
    );
}

/// Items are in order, and the longer ones are explained by their function's name.
fn check(trace: &Trace) {
    let mut visits = trace.visits();
    visits.sort_unstable_by_key(|visit| visit.begin_ns);
    // Writes of the machine itself are ends without a begin, and its reads may be begins.
    let items: Vec<_> = visits.iter().filter(|it| it.end_ns.is_some()).collect();
    let missing = ITEMS.1.abs_diff(items.len());
    assert!(missing <= 2, "{} items", items.len());
    let names = trace.function_names();
    let mut heavy = Vec::new();
    for function in trace.visit_functions() {
        if names[&function.function_id].contains("Items.heavy") && function.samples > 1 {
            heavy.push(function.visit_id);
        }
    }
    heavy.sort_unstable();
    heavy.dedup();
    let of = |n: usize| items.iter().position(|it| it.visit_id == heavy[n]);
    assert_eq!(heavy.len(), ITEMS.1 / HEAVY, "{heavy:?}");
    let places: Vec<usize> = (0..heavy.len()).map(|n| of(n).unwrap()).collect();
    let apart = places.windows(2).all(|pair| pair[1] - pair[0] == HEAVY);
    assert!(apart, "{places:?}");
}
