//! Presets, and patterns for functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::workload::{Workload, address_of};
use pebs_tests::{check, machine, need, process};

const TASKS: u64 = 40;

/// Polls of each task: of task k there are k + 1.
fn polls(recording: &Recording) -> Vec<u64> {
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    let mut polls: BTreeMap<u64, u64> = BTreeMap::new();
    for visit in trace.visits() {
        *polls.entry(visit.item_id).or_default() += 1;
    }
    let mut polls: Vec<u64> = polls.into_values().collect();
    polls.sort_unstable();
    polls
}

/// Every poll of every task is a visit, whichever function polls it.
#[test]
fn tokio_tasks() {
    need!(machine::root());
    let tasks = Path::new(env!("CARGO_BIN_EXE_tasks"));
    let recording = Recorder::plain()
        .beside()
        .args(&["--preset", "tokio", "--reset", "100000"])
        .command(tasks, &[&TASKS.to_string()]);
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    let expected: Vec<u64> = (1..=TASKS).collect();
    assert_eq!(polls(&recording), expected, "{}", recording.tool);
    let several = recording.tool.stderr.contains("2 functions, one probe");
    assert!(several, "{}", recording.tool);
}

/// Goroutines: all that a function does that one goroutine runs is in visits of that one, by its number.
#[test]
fn goroutines() {
    need!(machine::root());
    let workload = need!(Workload::try_build("goroutines"));
    let recording = Recorder::plain()
        .beside()
        .args(&[
            "--preset",
            "go",
            "--event",
            "cpu-clock",
            "--reset",
            "100000",
        ])
        .command(&workload.path, &["400"]);
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    let visits = trace.visits().into_iter();
    let items: HashMap<u64, u64> = visits.map(|it| (it.visit_id, it.item_id)).collect();
    let names = trace.function_names();
    let mut by_function: BTreeMap<&str, BTreeSet<Option<u64>>> = BTreeMap::new();
    for sample in trace.samples() {
        let name = names.get(&sample.function_id).map_or("", String::as_str);
        if ["main.first", "main.second", "main.third", "main.fourth"].contains(&name) {
            let item = sample.visit_id.map(|visit| items[&visit]);
            by_function.entry(name).or_default().insert(item);
        }
    }
    let each: Vec<u64> = by_function
        .values()
        .map(|items| match items.iter().collect::<Vec<_>>()[..] {
            [Some(item)] => *item,
            _ => panic!("a function in several goroutines, or in none: {by_function:x?}"),
        })
        .collect();
    let different: BTreeSet<u64> = each.iter().copied().collect();
    assert_eq!((each.len(), different.len()), (4, 4), "{by_function:x?}");
    // They take turns, two to a thread.
    let visits_of = |item: &u64| items.values().filter(|it| *it == item).count();
    assert!(
        each.iter().all(|item| visits_of(item) > 1),
        "{by_function:x?}"
    );
}

/// A goroutine that ended and one that begins at the same address are two items, even in a program without
/// symbols.
#[test]
fn goroutines_one_after_the_other() {
    need!(machine::root());
    const SHORT: usize = 200;
    let workload = need!(Workload::try_build("goroutines"));
    let stripped = tempfile::tempdir().expect("a folder");
    let stripped = stripped.path().join("stripped");
    let strip = need!(machine::program("strip"));
    let mut command = Command::new(strip);
    let done = process::run(command.arg("-o").arg(&stripped).arg(&workload.path));
    assert_eq!(done.code(), Some(0), "{done}");
    for program in [&workload.path, &stripped] {
        let recording = Recorder::plain()
            .beside()
            .args(&["--preset", "go", "--reset", "1000000"])
            .command(program, &["1", &SHORT.to_string()]);
        let trace = recording.trace();
        let items: BTreeSet<u64> = trace.visits().iter().map(|it| it.item_id).collect();
        assert!(items.len() >= SHORT, "{} items", items.len());
        assert!(items.iter().all(|item| *item < 10_000), "{items:?}");
    }
}

/// A preset of one's own, for a program that is named.
#[test]
fn own_preset() {
    need!(machine::root());
    let tasks = Path::new(env!("CARGO_BIN_EXE_tasks"));
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own.toml");
    let text = "about = \"polls\"\n[[probe]]\nspec = \"{bin}:*::raw::poll*(task=arg1)\"\n";
    fs::write(&own, text).expect("room");
    let named = format!("{}={}", own.display(), tasks.display());
    let recording = Recorder::plain()
        .beside()
        .args(&["--preset", &named, "--reset", "100000"])
        .command(tasks, &["3"]);
    assert_eq!(polls(&recording).len(), 1 + 2 + 3, "{}", recording.tool);
}

/// A folder with presets for programs of the name `plain`: a place by build id, an argument by debug information, by build
/// id, and one that can't be read.
fn presets_for_plain(build: &str, place: u64) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let presets = folder.path().join("pebs-trace/presets");
    fs::create_dir_all(&presets)?;
    let text = format!(
        "about = \"items\"\nprograms = [\"plain*\"]\n\
         [[probe]]\nspec = \"{{bin}}:handle({{args}})\"\n\
         args.id = [\"it->id\"]\nargs.none = [\"it->nowhere\", \"{{nowhere}}\"]\n\
         [[probe]]\notherwise = true\nspec = \"{{bin}}:{{handle}}({{args}})\"\nargs.id = [\"{{id}}\"]\n\
         [build.{build}]\nhandle = \"{place:#x}\"\nid = \"*(arg1+0):u64\"\n"
    );
    fs::write(presets.join("own.toml"), text)?;
    Ok(folder)
}

/// Without a SPEC the preset that fits the program is taken: by names and debug information, or, in a stripped build, by
/// the table for exactly this build. The first line says what it is; what can't be read is left out with a reason.
#[test]
fn the_one_that_fits() {
    need!(machine::root());
    let strip = need!(machine::program("strip"));
    let readelf = need!(machine::program("readelf"));
    let workload = Workload::build("plain");
    let notes = process::run(Command::new(readelf).arg("-n").arg(&workload.path));
    let id = notes
        .stdout
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let folder = presets_for_plain(
        id.expect("a build id"),
        address_of(&workload.path, "handle"),
    )
    .expect("room");
    let stripped = folder.path().join("plain-stripped");
    let done = process::run(
        Command::new(strip)
            .arg("-o")
            .arg(&stripped)
            .arg(&workload.path),
    );
    assert_eq!(done.code(), Some(0), "{done}");
    let config = format!("XDG_CONFIG_HOME={}", folder.path().display());
    for (program, place, left_out) in [
        (
            &workload.path,
            "handle(id=it->id)",
            "note: preset own: none is left out: ",
        ),
        (&stripped, "(id=*(arg1+0):u64)", "transport bpf"),
    ] {
        let recording = Recorder::plain()
            .beside()
            .started_by(&["env", &config])
            .args(&["--reset", "1000000"])
            .command(program, &["50"]);
        let told = &recording.tool.stderr;
        let first = told.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("preset own: -u ") && first.contains(place),
            "{told}"
        );
        assert!(told.contains(left_out), "{told}");
        let trace = recording.trace();
        check::no_mark_lost(&trace);
        let ids: BTreeSet<u64> = trace.visits().iter().map(|it| it.item_id).collect();
        assert_eq!(ids, (1_000_001..=1_000_050).collect(), "{told}");
    }
}

/// A process, too, is recorded by what fits it.
#[test]
fn of_a_process() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let folder = presets_for_plain("00", 0).expect("room");
    let config = format!("XDG_CONFIG_HOME={}", folder.path().display());
    let mut waiting = workload.start(&["50"]);
    let live = Recorder::plain()
        .started_by(&["env", &config])
        .args(&["--reset", "1000000"])
        .attach(waiting.process.pid());
    waiting.go();
    let _ = waiting.finish();
    let recording = live.finish();
    assert_eq!(recording.trace().visits().len(), 50, "{}", recording.tool);
}
