//! The bound on the slow-down of items: reset values follow the cost, and the figures follow the reset values.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Trace, Visit};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};
use serde_json::Value;

/// A change of the reset value.
struct Change {
    time_ns: i64,
    old: u64,
    new: u64,
}

/// The rows of `trace.json`: each continues the one before, within the bounds, and the last is in force at the end.
fn changes(trace: &Trace) -> Vec<Change> {
    let bound = &trace.json["max_overhead"];
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    let rows = trace.json["resets"].as_array().unwrap();
    let changes: Vec<Change> = rows
        .iter()
        .map(|row| Change {
            time_ns: row["time_ns"].as_i64().unwrap(),
            old: number(row, "old"),
            new: number(row, "new"),
        })
        .collect();
    let (least, most) = (number(bound, "least_reset"), number(bound, "most_reset"));
    // Clocks of CPUs, while they sample, need a larger least one.
    let changed_clocks = |it: &Value| it.as_array().is_some_and(|it| !it.is_empty());
    let least = match changed_clocks(&trace.json["clock_changes"]) {
        true => 16_000,
        false => least,
    };
    let leader = bound["event"].as_u64().unwrap() as usize;
    let first = number(&trace.json["events"][leader], "reset");
    assert!((least..=most).contains(&first), "{bound:#}");
    let mut before = (0, first);
    for (change, row) in changes.iter().zip(rows) {
        assert!(change.time_ns > before.0, "{rows:#?}");
        assert_eq!(change.old, before.1, "{rows:#?}");
        assert!((least..=most).contains(&change.new), "{rows:#?}");
        assert_ne!(change.old, change.new, "{rows:#?}");
        let (grows, overhead) = (change.new > change.old, row["overhead"].as_f64());
        if let Some(overhead) = overhead {
            let above = overhead > bound["most"].as_f64().unwrap();
            // Without a requested bound, samples may cost some on top of marks.
            assert!(
                above == grows || bound["by_default"] == true,
                "{row:#} {bound:#}"
            );
        }
        before = (change.time_ns, change.new);
    }
    assert_eq!(number(bound, "reset"), before.1);
    changes
}

/// The overhead of the last windows, as the run reports it. Chance makes a window uncertain by an eighth, so one may be
/// slightly above the bound.
fn last_overhead(trace: &Trace, recording: &Recording) -> f64 {
    let last = trace.json["max_overhead"]["last"].as_f64();
    last.unwrap_or_else(|| panic!("no window could be judged\n{}", recording.tool))
}

/// Threads of a started command inherit their counters, which have to be reopened: the overhead falls to the bound,
/// every thread is sampled at the rate of the last change, and estimates are not biased by the higher rate at first.
#[test]
fn threads_of_a_command() {
    need!(machine::root());
    let workload = Workload::build("threads");
    for transport in ["bpf", "bulk"] {
        let (recording, truth) = Recorder::new(&workload.spec(super::ID))
            .args(&["--event", "cpu-clock", "--reset", "16000"])
            .args(&["--transport", transport])
            // Distances that vary have their mean over a longer time than a thread has between two changes.
            .args(&["--max-overhead", "5%", "--jitter", "0"])
            .workload(&workload, &["3", "450", "4000"]);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let changes = changes(&trace);
        let overhead = last_overhead(&trace, &recording);
        assert!(overhead < 0.05 * 1.5, "{overhead}\n{}", recording.tool);
        assert!(recording.tool.stdout.contains("limit 5.0 %; "));
        own_rates(&trace, &changes);
        stands_for_the_time(&trace);
    }
}

/// Visits during which no host took the CPU away, so that samples were possible in all of their time: none took much
/// longer than the others, which do the same.
fn usual(trace: &Trace) -> Vec<Visit> {
    let mut visits = trace.visits();
    visits.sort_unstable_by_key(|visit| visit.oncpu_ns);
    let most = visits[visits.len() / 2].oncpu_ns.unwrap() * 2;
    visits.retain(|visit| visit.oncpu_ns.unwrap() <= most);
    visits
}

/// Samples of each thread between two changes, and after the last, against its time on the CPU in between.
fn own_rates(trace: &Trace, changes: &[Change]) {
    let visits = usual(trace);
    let first = trace.json["events"][0]["reset"].as_u64().unwrap();
    let begins = [(0, first)].into_iter();
    let begins = begins.chain(changes.iter().map(|change| (change.time_ns, change.new)));
    let ends = changes.iter().map(|next| next.time_ns);
    let mut judged = 0;
    for ((begin_ns, reset), end) in begins.zip(ends.chain([i64::MAX])) {
        let mut seen: HashMap<u64, (f64, u64)> = HashMap::new();
        let within = |it: &&Visit| it.begin_ns > begin_ns && it.end_ns < Some(end);
        for visit in visits.iter().filter(within) {
            let (oncpu, samples) = seen.entry(visit.tid).or_default();
            *oncpu += visit.oncpu_ns.unwrap() as f64;
            *samples += visit.samples;
        }
        for (tid, (oncpu, samples)) in seen {
            let expected = oncpu / reset as f64;
            if expected < 50.0 {
                continue;
            }
            let rate = samples as f64 / expected;
            assert!(
                (0.6..1.4).contains(&rate),
                "thread {tid}: {samples} of {expected} at {reset}"
            );
            judged += 1;
        }
    }
    assert!(judged > 0, "too little ran");
}

/// `events` is the time that the samples stand for, and `self_ns` the whole time.
fn stands_for_the_time(trace: &Trace) {
    let visits = usual(trace);
    let oncpu: f64 = visits.iter().map(|it| it.oncpu_ns.unwrap() as f64).sum();
    let usual: HashSet<u64> = visits.iter().map(|visit| visit.visit_id).collect();
    let mut rows = trace.visit_functions();
    rows.retain(|row| usual.contains(&row.visit_id));
    let events: f64 = rows.iter().map(|row| row.events as f64).sum();
    assert!(
        (0.8..1.2).contains(&(events / oncpu)),
        "{events} of {oncpu}"
    );
    let own: f64 = rows.iter().filter_map(|row| row.self_ns).sum();
    let sampled: HashMap<u64, i64> = visits
        .iter()
        .filter(|it| it.samples > 0)
        .map(|it| (it.visit_id, it.oncpu_ns.unwrap()))
        .collect();
    let whole = sampled.values().sum::<i64>() as f64;
    assert!((own - whole).abs() < 0.001 * whole, "{own} of {whole}");
    // The value that the original reset value would give.
    let naive = rows
        .iter()
        .map(|row| row.samples as f64 * 16_000.0)
        .sum::<f64>();
    assert!(
        naive < 0.7 * oncpu,
        "{naive} of {oncpu}: nothing was changed"
    );
}

/// An event that counts work, on an existing thread: the events that samples stand for are those that occurred, for any
/// reset value.
#[test]
fn page_faults_are_still_counted() {
    need!(machine::root());
    let workload = Workload::build("refaults");
    let mut target = workload.start(&["15000"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "page-faults", "--reset", "1", "--no-page-faults"])
        // Up to a million faults a second, and the reader may be away for a while.
        .args(&["--max-overhead", "5%", "--ring-size", "32MiB"])
        .attach(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    let recording = live.stop();
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    changes(&trace);
    let overhead = last_overhead(&trace, &recording);
    let bound = &trace.json["max_overhead"];
    // The overhead of marks is a lower bound.
    let marks = bound["last_marks"].as_f64().unwrap_or(0.0);
    assert!(
        overhead < (0.05_f64).max(marks) * 1.5,
        "{overhead} {bound}\n{}",
        recording.tool
    );
    let happened = 15_000.0 * 64.0;
    let counted: f64 = trace
        .visit_functions()
        .iter()
        .map(|it| it.events as f64)
        .sum();
    let ratio = counted / happened;
    assert!((0.9..1.1).contains(&ratio), "{counted} of {happened}");
    let samples = trace.account("samples").written as f64;
    assert!(samples < 0.8 * happened, "{samples} of {happened}");
}

/// If marks alone exceed the bound, the run and the trace report it, and sampling is at its lowest rate. The exit code
/// is that of a complete trace.
#[test]
fn marks_alone() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let (recording, _) = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .args(&["--max-overhead", "1%", "--max-reset", "400000"])
        .workload(&workload, &["50000", "20000"]);
    let trace = recording.trace();
    let bound = &trace.json["max_overhead"];
    assert_eq!(bound["most_reset"], 400_000);
    assert_eq!(bound["marks_alone"], true, "{bound:#}");
    let first = trace.json["events"][0]["reset"].as_u64();
    assert_eq!(
        changes(&trace).last().map_or(first, |it| Some(it.new)),
        Some(400_000)
    );
    let warnings = recording
        .tool
        .stderr
        .matches("warning: marks alone ")
        .count();
    assert_eq!(
        warnings, 2,
        "once in the run and once at the end\n{}",
        recording.tool
    );
}

/// Without a word items are slowed down by 5 %, from the first second on: samples come as rarely as that takes before anything
/// was seen of the target, and the figures in all outputs are the same.
#[test]
fn goal_by_default() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .own_pace()
        .args(&["--event", "cpu-clock"])
        .workload(&workload, &["2", "450", "4000"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    changes(&trace);
    let cost = &trace.json["cost"];
    let slowdown = cost["slowdown"].as_f64().unwrap();
    assert!(slowdown < 0.05 * 1.5, "{slowdown}\n{}", recording.tool);
    assert!(cost["target_cpu"].as_f64().unwrap() > 0.0, "{cost:#}");
    for shown in ["slow-down of items ", "CPU of the target +"] {
        assert!(recording.tool.stdout.contains(shown), "{}", recording.tool);
    }
    assert!(
        recording.tool.stdout.contains("goal 5.0 %"),
        "{}",
        recording.tool
    );
}

/// If items are short and few, the slowest of them would have no samples at that goal: these may cost more, and the
/// report and the trace say how much.
#[test]
fn short_and_rare() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&["1"]);
    target.go();
    let live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .own_pace()
        .args(&["--event", "cpu-clock", "--duration", "3", "--force"])
        .attach(target.process.pid());
    let recording = live.finish();
    let trace = recording.trace();
    target.answers_stop();
    let extra = &trace.json["max_overhead"]["extra"];
    let share = extra["share"].as_f64().expect("more than the goal");
    assert!(share > 0.02 && share <= 1.0, "{extra:#}");
    assert!(extra["takes_ns"].as_f64().unwrap() > 0.0, "{extra:#}");
    // The first look, which may have seen too little to say so at the start, is not the last.
    // It may be said over the end of a line.
    let words: Vec<_> = recording.tool.stdout.split_whitespace().collect();
    let text = words.join(" ");
    assert!(text.contains("samples may add "), "{}", recording.tool);
}

/// Clocks of a thread that sleeps after each short item would set timers at each switch: others sample it then, and
/// several of its own once it works without a break. Neither changes what a sample stands for.
#[test]
fn clocks_of_threads_that_sleep() {
    need!(machine::root());
    let workload = Workload::build("chatty");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .own_pace()
        .args(&["--event", "cpu-clock"])
        .workload(&workload, &["30000", "4000"]);
    let trace = recording.trace();
    let changes = trace.json["clock_changes"].as_array();
    let changes = changes.unwrap_or_else(|| panic!("{}", recording.tool));
    let of: Vec<_> = changes.iter().map(|it| it["of"].as_str()).collect();
    let (first, last) = (of[0], of[of.len() - 1]);
    assert_ne!(first, Some("several of each thread"), "{changes:#?}");
    assert_eq!(last, Some("several of each thread"), "{changes:#?}");
    assert_eq!(trace.visits().len(), truth.items.len());
    let own: u64 = trace.visit_functions().iter().map(|it| it.events).sum();
    let items = truth.items.iter();
    let items = items.map(|it| it.leave.unwrap() - it.enter.unwrap());
    let share = own as f64 / items.sum::<u64>() as f64;
    assert!((0.8..1.2).contains(&share), "{share}");
    let samples = trace.account("samples");
    assert_eq!(
        samples.seen,
        samples.written + samples.reasons.values().sum::<u64>()
    );
}

/// Phases of the load that swings tenfold, their length in ms, and the steps of a light item.
const SWINGS: [&str; 3] = ["12", "300", "30000"];

/// Records a load that swings tenfold at the tool's own pace: every record is booked, and samples slow items down by no more
/// than the bound, or than their share where marks alone cost that much.
fn swinging(args: &[&str], pages: &str) -> (Recording, Trace, Truth) {
    let workload = Workload::build("swings");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .own_pace()
        .args(args)
        .workload(&workload, &[&SWINGS[..], &[pages]].concat());
    let trace = recording.trace();
    check::balances(&trace);
    check::no_mark_lost(&trace);
    assert_eq!(trace.visits().len() as u64, truth.notes["items"]);
    let (bound, cost) = (&trace.json["max_overhead"], &trace.json["cost"]);
    let ns = |key: &str| cost[key].as_f64().unwrap_or_else(|| panic!("{cost:#}"));
    let share = ns("samples_ns") / ns("visits_oncpu_ns");
    assert!(share < 0.05 * 1.2, "{share}\n{bound:#}\n{}", recording.tool);
    (recording, trace, truth)
}

/// Changes of an event's reset value.
fn changes_of(trace: &Trace, event: u64) -> Vec<(u64, u64)> {
    let rows = trace.json["resets"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["event"] == event);
    let values = |row: &Value| (row["old"].as_u64().unwrap(), row["new"].as_u64().unwrap());
    rows.map(values).collect()
}

/// The report's time of the two functions per item has the ratio of the steps that they did, within its intervals. Most of
/// each function's steps are in phases of other reset values, so that samples alone have another ratio.
fn as_the_steps(recording: &Recording, truth: &Truth) {
    let dir = recording.dir();
    let report = pebs_trace(["report", dir.to_str().unwrap(), "--format", "json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let rows = report["probes"][0]["largest"].as_array().unwrap();
    let cell = |name: &str| {
        let row = rows.iter().find(|row| row["function"]["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name} is not in {rows:#?}"));
        let number = |key: &str| row["all"][key].as_f64();
        let width = number("high").zip(number("low"));
        Some((number("per_visit")?, width.map(|(high, low)| high - low)?))
    };
    // Unknown where items have parts without samples.
    let (Some((odd, odd_width)), Some((even, even_width))) = (cell("odd"), cell("even")) else {
        assert!(report["run"]["positions"].is_array(), "{report:#}");
        return;
    };
    let steps = |name: &str| truth.notes[name] as f64;
    let right = steps("odd") / steps("even");
    let ratio = odd / even;
    // Twice the interval of 95 %, and a tenth for the distances: each is in force for a while, which sums over items do not
    // know.
    let error = ratio * ((odd_width / odd).hypot(even_width / even) + 0.1);
    assert!(
        (ratio - right).abs() < error,
        "{ratio} +- {error}, not {right}\n{}",
        recording.tool
    );
}

/// If only details of slow items are kept, or of none, the reset value follows the load as well, and the sums over
/// items count each sample with the reset value of its time.
#[test]
fn swings_in_aggregates() {
    need!(machine::root());
    for keep in ["slow", "none"] {
        let args = ["--event", "cpu-clock", "--keep", keep];
        let (recording, trace, truth) = swinging(&args, "0");
        let changes = changes(&trace);
        assert!(!changes.is_empty(), "{}", recording.tool);
        let errors = &recording.tool.stderr;
        let first = "slow-down of items: goal 5 %, with a sample every";
        assert!(errors.contains(first), "{}", recording.tool);
        as_the_steps(&recording, &truth);
    }
    // An event that counts work: what samples stand for is what happened.
    let args = ["--event", "page-faults", "--keep", "none"];
    let (recording, trace, truth) = swinging(&args, "20");
    let stats = trace.table("function_stats");
    let events: u64 = stats.u64("events").into_iter().flatten().sum();
    let ratio = events as f64 / truth.notes["pages"] as f64;
    assert!((0.9..1.1).contains(&ratio), "{ratio}\n{}", recording.tool);
}

/// A bound that was asked for.
#[test]
fn asked_bound_in_aggregates() {
    need!(machine::root());
    let args = [
        "--event",
        "cpu-clock",
        "--keep",
        "slow",
        "--max-overhead",
        "8%",
    ];
    let (recording, trace, truth) = swinging(&args, "0");
    changes(&trace);
    assert_eq!(
        trace.json["max_overhead"]["most"], 0.08,
        "{}",
        recording.tool
    );
    as_the_steps(&recording, &truth);
}

/// Two events: the bound holds for the samples of both, whose reset values change by the same factor.
#[test]
fn two_events() {
    need!(machine::root());
    for event in ["page-faults", "cpu-clock:u"] {
        let args = ["--event", event, "--event", "cpu-clock"];
        let (recording, trace, truth) = swinging(&args, "20");
        let [first, second] = [0, 1].map(|event| changes_of(&trace, event));
        assert!(!second.is_empty(), "{}", recording.tool);
        let factor = |changes: &[(u64, u64)], event: usize| {
            let begin = trace.json["events"][event]["reset"].as_f64().unwrap();
            changes.last().map_or(1.0, |it| it.1 as f64 / begin)
        };
        let (one, other) = (factor(&first, 0), factor(&second, 1));
        assert!(
            (one / other - 1.0).abs() < 0.15,
            "{one} {other}\n{}",
            recording.tool
        );
        if event == "page-faults" {
            let rows = trace.visit_functions();
            let faults = rows.iter().filter(|row| row.event == 0);
            let events: u64 = faults.map(|row| row.events).sum();
            let ratio = events as f64 / truth.notes["pages"] as f64;
            assert!((0.8..1.2).contains(&ratio), "{ratio}\n{}", recording.tool);
        }
        as_the_steps(&recording, &truth);
    }
}

/// The samples of a breakpoint are outside of the bound, which the first lines say; those of the clock beside it are not.
#[test]
fn clock_and_breakpoint() {
    need!(machine::root());
    let events = ["--event", "mem:odd:x", "--event", "cpu-clock"];
    for args in [
        &events[..],
        &[&events[..], &["--max-overhead", "5%"]].concat(),
    ] {
        let workload = Workload::build("swings");
        let (recording, truth) = Recorder::new(&workload.spec(super::ID))
            .own_pace()
            .args(args)
            .workload(&workload, &SWINGS);
        let trace = recording.trace();
        check::balances(&trace);
        let note =
            "note: samples of mem:odd:x are outside of the bound on the slow-down of items (";
        assert!(recording.tool.stderr.contains(note), "{}", recording.tool);
        let (bound, changes) = (&trace.json["max_overhead"], changes_of(&trace, 0));
        assert_eq!(
            (&bound["event"], changes.len()),
            (&1.into(), 0),
            "{bound:#}"
        );
        let hits = trace
            .visit_functions()
            .into_iter()
            .filter(|it| it.event == 0);
        let hits: u64 = hits.map(|it| it.samples).sum();
        assert_eq!(hits, truth.notes["items"] / 16_000, "{}", recording.tool);
    }
}

/// Samples in bulk: the same bound, and the same figures.
#[test]
fn swings_in_bulk() {
    need!(machine::root());
    for more in [&[][..], &["--keep", "slow", "--max-overhead", "8%"]] {
        let args = [&["--event", "cpu-clock", "--transport", "bulk"], more].concat();
        let (recording, trace, truth) = swinging(&args, "0");
        let changes = changes(&trace);
        assert!(!changes.is_empty(), "{}", recording.tool);
        as_the_steps(&recording, &truth);
    }
}

/// If the cost of no event's samples is known nothing bounds the slow-down, and a note says so before the start.
#[test]
fn no_bound() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let note = "note: the slow-down of items has no bound (";
    let recorded = |args: &[&str]| {
        let events = ["--event", "context-switches"];
        let (recording, _) = Recorder::new(&workload.spec(super::ID))
            .own_pace()
            .args(&[&events[..], args].concat())
            .workload(&workload, &["2", "10", "4000"]);
        recording.tool
    };
    let free = recorded(&[]);
    assert!(free.stderr.contains(note), "{free}");
    let fixed = recorded(&["--reset", "1000000"]);
    assert!(!fixed.stderr.contains(note), "{fixed}");
}

/// A probe whose marks would take most of the CPU time is refused: for a process before anything else is attached, for
/// a command in its first moments. With --force it is recorded.
#[test]
fn refused() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let spec = workload.spec("handle(id=arg1)");
    let recorder = || {
        Recorder::new(&spec)
            .own_pace()
            .args(&["--event", "cpu-clock"])
    };
    let refused = recorder().command(&workload.path, &["4000000", "0"]);
    let errors = &refused.tool.stderr;
    assert_eq!(refused.tool.status.code(), Some(2), "{}", refused.tool);
    assert!(
        errors.contains("its marks (") && errors.contains("--force"),
        "{}",
        refused.tool
    );
    let forced = recorder().args(&["--force", "--duration", "1"]);
    let forced = forced.command(&workload.path, &["4000000", "0"]);
    // Marks may be lost.
    assert_ne!(forced.tool.status.code(), Some(2), "{}", forced.tool);
}
