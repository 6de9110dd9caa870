//! `--call-graph`: the callers of the function in which a sample was taken.

use std::collections::HashMap;

use pebs_tests::explain::{explain, whole};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{SAMPLE_KERNEL, Trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

const FP: &[&str] = &[
    "--event",
    "cpu-clock",
    "--reset",
    "50000",
    "--call-graph",
    "fp",
];

fn record(workload: &Workload, args: &[&str]) -> (Recording, Truth) {
    Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(FP)
        .args(args)
        .workload(workload, &["50"])
}

/// Call stacks of the samples taken in a function in user mode, within items, with their number of samples.
fn stacks_in(trace: &Trace, function: &str) -> HashMap<String, usize> {
    let names = trace.function_names();
    let name = |id: &u64| names.get(id).map_or("?", String::as_str);
    let paths: HashMap<u64, Vec<&str>> = trace
        .stacks()
        .iter()
        .map(|stack| (stack.stack_id, stack.frames.iter().map(name).collect()))
        .collect();
    let mut found = HashMap::new();
    for sample in trace.samples() {
        if sample.visit_id.is_none() || name(&sample.function_id) != function {
            continue;
        }
        let path = sample.stack_id.map(|id| paths[&id].clone());
        let mut path = path.unwrap_or_default();
        // Below main is the C library, with or without frame pointers.
        if let Some(main) = path.iter().position(|name| *name == "main") {
            path.truncate(main + 1);
        }
        *found.entry(path.join(" < ")).or_default() += 1;
    }
    found
}

/// Samples in the innermost function have exactly the chain that called it, and both chains occur; except for the few
/// at an instruction before its frame is set up, whose caller is left out.
#[test]
fn known_chains() {
    need!(machine::root());
    let workload = Workload::build("calls");
    let alone = workload.run(&["50"]);
    let (recording, truth) = record(&workload, &[]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let mut stacks: Vec<(String, usize)> = stacks_in(&trace, "leaf").into_iter().collect();
    stacks.sort();
    let all: usize = stacks.iter().map(|it| it.1).sum();
    stacks.retain(|(_, samples)| samples * 100 > all);
    let paths: Vec<&str> = stacks.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["leaf < b < a < handle < main", "leaf < c < handle < main"],
        "{stacks:?}"
    );
    assert!(stacks[0].1 > stacks[1].1, "{stacks:?}");
    assert_eq!(trace.json["call_graph"], "fp");
    assert_eq!(trace.json["transport"], "bpf");
    assert_eq!(trace.json["ledger"]["stacks_refused"], 0);
    assert!(
        trace
            .samples()
            .iter()
            .all(|sample| sample.stack_id.is_some())
    );
    check::unharmed(&recording, &alone);
}

/// The innermost frame is the function of the sample, also in the kernel, whose frames come before those of user space.
#[test]
fn innermost_is_the_sample() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let (recording, _) = record(&workload, &[]);
    let trace = recording.trace();
    let frames: HashMap<u64, Vec<u64>> = trace
        .stacks()
        .into_iter()
        .map(|stack| (stack.stack_id, stack.frames))
        .collect();
    let in_kernel = trace.kernel_functions();
    let own = trace.own_function();
    let mut kernel = 0;
    for sample in trace.samples() {
        let stack = &frames[&sample.stack_id.unwrap()];
        // Kernel functions that ran during a mark are pebs-trace's own.
        if own == Some(sample.function_id) {
            continue;
        }
        assert_eq!(stack[0], sample.function_id, "{sample:?}");
        let modes: Vec<bool> = stack.iter().map(|id| in_kernel.contains(id)).collect();
        assert!(modes.is_sorted_by(|a, b| a >= b), "{sample:?} {modes:?}");
        assert_eq!(modes[0], sample.flags & SAMPLE_KERNEL != 0, "{sample:?}");
        kernel += u64::from(modes[0]);
    }
    assert!(kernel > 0, "no sample in the kernel\n{}", recording.tool);
}

/// C++ methods and Rust functions.
#[test]
fn other_languages() {
    need!(machine::root());
    let chains = [
        (
            "calls_cpp",
            "leaf(unsigned int)",
            "leaf(unsigned int) < shop::Cart::price() < shop::Cart::total() < handle < main",
        ),
        ("calls_rust", "leaf", "leaf < b < a < handle < "),
    ];
    for (name, leaf, chain) in chains {
        let (recording, _) = record(&Workload::build(name), &[]);
        let stacks = stacks_in(&recording.trace(), leaf);
        let all: usize = stacks.values().sum();
        // But for the few at an instruction where its frame is not there yet.
        let others = stacks.iter().filter(|it| !it.0.starts_with(chain));
        assert!(
            all > 0 && others.map(|it| it.1 * 100).sum::<usize>() <= all,
            "{name}: {stacks:?}\n{}",
            recording.tool
        );
    }
}

/// A program without frame pointers works as before; its stacks still begin with the right function.
#[test]
fn without_frame_pointers() {
    need!(machine::root());
    let workload = Workload::build("calls_no_frames");
    let alone = workload.run(&["50"]);
    let (recording, truth) = record(&workload, &[]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    let stacks = stacks_in(&trace, "leaf");
    assert!(
        stacks.keys().all(|path| path.starts_with("leaf")),
        "{stacks:?}"
    );
}

/// Options that unwind by tables.
const EH: &[&str] = &[
    "--event",
    "cpu-clock",
    "--reset",
    "50000",
    "--call-graph",
    "eh",
];

fn record_eh(workload: &Workload, args: &[&str]) -> (Recording, Truth) {
    Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(EH)
        .workload(workload, args)
}

/// Number of stacks that were unwound, and of those without the thread's first function, by reason.
fn unwound(trace: &Trace) -> (u64, u64) {
    let ended = &trace.json["unwound"];
    let numbers = ended.as_object().into_iter().flat_map(|it| it.values());
    let all: u64 = numbers.filter_map(serde_json::Value::as_u64).sum();
    let whole = ended["whole"].as_u64().unwrap_or(0);
    (all, all - whole)
}

/// By unwind tables a program without frame pointers has the chains that called its function, each up to the C library's
/// first function.
#[test]
fn by_tables() {
    need!(machine::root());
    let workload = Workload::build("calls_no_frames");
    let alone = workload.run(&["50"]);
    let (recording, truth) = record_eh(&workload, &["50"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    assert_eq!(trace.json["call_graph"], "eh");
    let mut stacks: Vec<(String, usize)> = stacks_in(&trace, "leaf").into_iter().collect();
    stacks.sort();
    let paths: Vec<&str> = stacks.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["leaf < b < a < handle < main", "leaf < c < handle < main"],
        "{stacks:?}"
    );
    let (all, truncated) = unwound(&trace);
    assert!(all > 500 && truncated * 50 <= all, "{truncated} of {all}");
    let names = trace.function_names();
    let roots = trace.stacks().into_iter().filter(|it| !it.truncated);
    // The dynamic linker's first function has no name.
    let mut roots = roots.filter_map(|stack| names.get(stack.frames.last().unwrap()).cloned());
    let other = roots.find(|root| root != "_start" && !root.starts_with("ld-"));
    assert_eq!(other, None);
}

/// Callers of `work` in items of the workload `unwinding`, by their number; `*`: any.
const SHAPES: [&str; 10] = [
    "circle::draw() < by_virtual",
    "by_exception*",
    "compare < * < by_callback",
    "by_alloca",
    "by_alignment",
    "",
    "on_signal < * < by_signal",
    "by_depth",
    "by_assembly",
    "* < by_function",
];

/// Virtual calls, exceptions, callbacks from libraries, frames of variable size, realigned ones, tail calls, signal handlers,
/// recursion, assembly, threads; also linked statically.
#[test]
fn hard_stacks() {
    need!(machine::root());
    for name in ["unwinding", "unwinding_static"] {
        let (recording, truth) = record_eh(&Workload::build(name), &["300", "3"]);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let (all, truncated) = unwound(&trace);
        assert!(all > 1000 && truncated * 50 <= all, "{truncated} of {all}");
        let names = trace.function_names();
        let items: HashMap<u64, u64> = trace
            .visits()
            .iter()
            .map(|visit| (visit.visit_id, visit.item_id))
            .collect();
        let stacks: HashMap<u64, Vec<&str>> = trace
            .stacks()
            .iter()
            .map(|it| {
                let names = it
                    .frames
                    .iter()
                    .map(|id| names.get(id).map_or("?", |it| it));
                (it.stack_id, names.collect())
            })
            .collect();
        let (mut met, mut wrong) = ([0; SHAPES.len()], Vec::new());
        for sample in trace.samples() {
            let stack = &stacks[&sample.stack_id.unwrap()];
            let Some(visit) = sample.visit_id.filter(|_| stack[0] == "work") else {
                continue;
            };
            let shape = (items[&visit] % SHAPES.len() as u64) as usize;
            let expected = format!("work < {} < handle < serve", SHAPES[shape]);
            let expected = expected.replace("<  < ", "< ");
            let parts = expected.split('*');
            let path = stack.join(" < ");
            match shape {
                7 if path.matches("by_depth").count() == 21 => met[shape] += 1,
                _ if in_order(&path, parts) => met[shape] += 1,
                _ => wrong.push(path),
            }
        }
        let right: usize = met.iter().sum();
        assert!(met.iter().all(|it| *it > 20), "{name}: {met:?} {wrong:?}");
        assert!(wrong.len() * 100 <= right, "{name}: {met:?} {wrong:?}");
    }
}

/// Whether the parts are in the text one behind the other, the first at its begin.
fn in_order<'a>(text: &str, parts: impl Iterator<Item = &'a str>) -> bool {
    let mut at = 0;
    for (n, part) in parts.enumerate() {
        match text[at..].find(part) {
            Some(place) if n > 0 || place == 0 => at += place + part.len(),
            _ => return false,
        }
    }
    true
}

/// Of a stripped program the stacks are as complete; functions are named by their addresses.
#[test]
fn stripped() {
    need!(machine::root());
    let workload = Workload::build("unwinding_stripped");
    // Its functions have no names: a function of a library is probed.
    let (recording, _) = Recorder::new("libc.so.6:raise")
        .beside()
        .args(EH)
        .workload(&workload, &["300", "2"]);
    let (all, truncated) = unwound(&recording.trace());
    assert!(all > 500 && truncated * 50 <= all, "{truncated} of {all}");
}

/// A function of a stripped program that makes items slow has the nearest named caller on the stacks of its samples: those
/// in between have no names either.
#[test]
fn called_from() {
    need!(machine::root());
    let workload = Workload::build("calls_stripped");
    let spec = workload.spec("handle(id=*(arg1):u64, n=*(arg1+12):u32)");
    let record = |args: &[&str]| {
        let recorder = Recorder::new(&spec).before_others().args(args);
        recorder.workload(&workload, &["600"]).0
    };
    let recording = record(EH);
    let explanation = explain(&recording.dir(), &["--slow", "1.5x"]);
    let leaf = whole(&explanation).first_of_program();
    let name = leaf.name();
    assert!(name.starts_with("calls_stripped+fn@0x"), "{name}");
    let function = &leaf.0["function"];
    assert_eq!(function["called_from"], "handle", "{function:#}");
    let dir = recording.dir().display().to_string();
    let said = format!("{name} called from handle");
    let text = pebs_trace(["explain", &dir, "--slow", "1.5x"]);
    assert!(text.stdout.contains(&said), "{text}");
    let report = pebs_trace(["report", &dir]);
    assert!(report.stdout.contains(&said), "{report}");
    // Without stacks nothing is known of callers.
    let plain = record(&["--event", "cpu-clock", "--reset", "50000"]);
    let explanation = explain(&plain.dir(), &["--slow", "1.5x"]);
    let leaf = whole(&explanation).first_of_program();
    assert_eq!(leaf.name(), name);
    assert!(leaf.0["function"]["called_from"].is_null(), "{:#}", leaf.0);
}

/// A stripped Go program has no unwind table but Go's own, which ends at each goroutine's first function, or where the runtime
/// changes to another stack.
#[test]
fn stripped_go() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let dir = tempfile::tempdir().unwrap();
    let stripped = dir.path().join("stripped");
    let strip = std::process::Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(workload.path())
        .status();
    assert!(strip.unwrap().success());
    let spec = format!("{}:main.main", stripped.display());
    let recording = Recorder::new(&spec)
        .beside()
        // One item has all samples, and its own time is no concern here.
        .args(&["--ring-size", "64MiB"])
        .args(EH)
        .command(&stripped, &[]);
    let trace = recording.trace();
    let names = trace.function_names();
    let whole = trace.stacks().into_iter().filter(|it| !it.truncated);
    let mut roots: HashMap<String, usize> = HashMap::new();
    for stack in whole {
        let root = stack.frames.last().and_then(|id| names.get(id));
        *roots.entry(root.cloned().unwrap_or_default()).or_default() += 1;
    }
    let (all, truncated) = unwound(&trace);
    let goroutines = roots.remove("runtime.goexit").unwrap_or(0);
    assert!(goroutines > 10, "{roots:?}, {truncated} of {all}");
    let threads = ["runtime.mstart", "runtime.rt0_go", "runtime.clone"];
    roots.retain(|name, _| !threads.contains(&name.as_str()));
    assert!(roots.is_empty(), "{roots:?}");
}

/// If there is no memory for another stack, the sample is written without one, and counted.
#[test]
fn no_memory_for_stacks() {
    need!(machine::root());
    let workload = Workload::build("calls");
    let (recording, truth) = record(&workload, &["--stack-memory", "300B"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let samples = trace.samples();
    let without = samples.iter().filter(|sample| sample.stack_id.is_none());
    let refused = trace.json["ledger"]["stacks_refused"].as_u64();
    assert_eq!(Some(without.count() as u64), refused);
    assert!(
        refused > Some(0) && trace.stacks().len() <= 5,
        "{refused:?}"
    );
    let report = pebs_trace(["report".as_ref(), recording.dir().as_os_str()]);
    assert!(
        report.stdout.contains("without their call stack"),
        "{report}"
    );
}

/// With --inlined an inlined function is a separate frame, and marked; samples are where they were.
#[test]
fn inlined() {
    need!(machine::root());
    let workload = Workload::build("calls_inlined");
    let (recording, truth) = record(&workload, &["--inlined"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    // The work of a leaf is inlined, too.
    let stacks = stacks_in(&trace, "truth_work");
    let all: usize = stacks.values().sum();
    let most = |path: &str| stacks.get(path).copied().unwrap_or(0) * 10 > all;
    assert!(
        most("truth_work < leaf < c < handle < main")
            && most("truth_work < leaf < b < a < handle < main"),
        "{stacks:?}"
    );
    let dir = recording.dir().display().to_string();
    let report = pebs_trace(["report", &dir, "--by", "path"]);
    let path = "<- leaf <- c (inlined) <- handle";
    assert!(report.stdout.contains(path), "{report}");
    let (plain, _) = record(&workload, &[]);
    let stacks = stacks_in(&plain.trace(), "leaf");
    assert!(stacks.contains_key("leaf < handle < main"), "{stacks:?}");
}

/// Returns the lines of a recording about stacks that nobody asked for.
fn said(trace: &Trace) -> Vec<String> {
    let notes = trace.json["notes"].as_array().into_iter().flatten();
    let notes = notes.filter_map(|it| it.as_str());
    let said = notes.filter(|it| it.starts_with("stacks: "));
    said.map(str::to_owned).collect()
}

/// With a reset value, or with `none`, no sample has a stack, and nothing is said of it.
#[test]
fn off_unless_free() {
    need!(machine::root());
    let workload = Workload::build("calls");
    let by = |args: &[&str]| {
        let recorder = Recorder::new(&workload.spec(super::ID)).beside();
        let recorder = recorder.own_pace().args(&["--event", "cpu-clock"]);
        recorder.args(args).workload(&workload, &["10"]).0
    };
    for args in [
        &["--reset", "50000"][..],
        &["--call-graph", "none"],
        &["--with", "waits"],
        &["--keep", "none"],
    ] {
        let recording = by(args);
        let trace = recording.trace();
        assert!(trace.json["call_graph"].is_null(), "{args:?}");
        assert!(trace.stacks().is_empty(), "{args:?}");
        let samples = trace.samples();
        assert!(samples.iter().all(|it| it.stack_id.is_none()), "{args:?}");
        assert!(said(&trace).is_empty(), "{args:?}");
    }
}

/// If the budget chooses the rate of samples they have stacks if these cost few of them, and the recording says what
/// was chosen and why.
#[test]
fn by_budget() {
    need!(machine::root());
    let workload = Workload::build("calls_no_frames");
    let alone = workload.run(&["600"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .own_pace()
        .args(&["--event", "cpu-clock"])
        .workload(&workload, &["600"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    let said = said(&trace);
    let [line] = &said[..] else {
        panic!("{said:?}")
    };
    println!("{line}");
    let samples = trace.samples();
    let with = samples.iter().filter(|it| it.stack_id.is_some()).count();
    if !line.starts_with("stacks: by tables, ") {
        assert!(line.starts_with("stacks: none, as "), "{line}");
        assert!(trace.json["call_graph"].is_null() && with == 0, "{line}");
        return;
    }
    assert_eq!(trace.json["call_graph"], "eh");
    assert_eq!(with, samples.len(), "{line}");
    let stacks = stacks_in(&trace, "leaf");
    let most = stacks.iter().max_by_key(|it| it.1).unwrap();
    assert_eq!(most.0, "leaf < b < a < handle < main", "{stacks:?}");
}

/// Folded stacks are complete call paths below the probe, and their weights are the same as without stacks.
#[test]
fn folded() {
    need!(machine::root());
    let workload = Workload::build("calls");
    let (recording, _) = record(&workload, &[]);
    let dir = recording.dir();
    let export = pebs_trace([
        "export".as_ref(),
        dir.as_os_str(),
        "--to".as_ref(),
        "folded".as_ref(),
    ]);
    assert_eq!(export.code(), Some(0), "{export}");
    let lines = || export.stdout.lines();
    let ends_in = |line: &&str, path: &str| line.rsplit_once(' ').unwrap().0.ends_with(path);
    for path in ["main;handle;a;b;leaf", "main;handle;c;leaf"] {
        let found = lines().find(|line| ends_in(line, path));
        assert!(
            found.is_some_and(|it| it.starts_with("calls:handle;")),
            "{export}"
        );
    }
    let weights = lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    let trace = recording.trace();
    let durations = trace
        .visits()
        .into_iter()
        .filter_map(|visit| visit.duration_ns);
    // pebs-trace's own work is in no profile.
    let own = trace.own_function();
    let rows = trace.visit_functions().into_iter();
    let own = rows
        .filter(|it| own == Some(it.function_id))
        .filter_map(|it| it.self_ns);
    let all = durations.sum::<i64>() as f64 - own.sum::<f64>();
    let sum = weights.sum::<f64>();
    // Each line is rounded.
    assert!(
        (sum - all).abs() <= lines().count() as f64,
        "{sum} of {all}"
    );
}

/// The excess of slow items is listed by call path: `leaf` from `c`, which only they call; and the call paths sum to
/// the function.
#[test]
fn explained() {
    need!(machine::root());
    let workload = Workload::build("calls");
    let (recording, _) = Recorder::new(&workload.spec("handle(id=*(arg1):u64, n=*(arg1+12):u32)"))
        .before_others()
        .args(FP)
        .workload(&workload, &["600"]);
    let explanation = explain(&recording.dir(), &["--slow", "1.5x"]);
    let leaf = whole(&explanation).first_of_program();
    assert_eq!(leaf.name(), "leaf");
    let paths = leaf.0["paths"].as_array().unwrap();
    let callers = |path: &serde_json::Value| -> Vec<String> {
        let callers = path["callers"].as_array().unwrap().iter();
        callers
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(callers(&paths[0]), ["c", "handle"], "{:#}", leaf.0);
    let number = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap();
    let [low, own, high] = ["share_low", "share", "share_high"].map(|key| number(&paths[0], key));
    let share = leaf.share();
    assert!(
        low <= own && own <= high && (0.7 * share..1.3 * share).contains(&own),
        "{low} {own} {high} of {share}"
    );
    // A quarter of the items is slow, and the middle half typical: on a noisy machine one or two may be misclassified.
    let [typical, slow] = ["typical_samples", "slow_samples"].map(|key| number(&paths[0], key));
    assert!(typical * 20.0 < slow, "{:#}", leaf.0);
    let others = &leaf.0["other_paths"];
    let parts: f64 = paths.iter().map(|path| number(path, "share")).sum();
    assert!(
        (parts + number(others, "share") - share).abs() < 1e-9,
        "{:#}",
        leaf.0
    );
    let dir = recording.dir().display().to_string();
    let report = pebs_trace(["report", &dir, "--by", "path", "--format", "csv"]);
    assert_eq!(report.code(), Some(0), "{report}");
    for path in ["handle;a;b;leaf", "handle;c;leaf"] {
        assert!(
            report.stdout.contains(&format!(",{path},false,true,,ns,")),
            "{report}"
        );
    }
    let text = pebs_trace(["report", &dir, "--by", "path"]);
    assert!(text.stdout.contains("leaf <- b <- a <- handle"), "{text}");
}
