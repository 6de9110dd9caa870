//! Events of a CPU counted for each item (`--count`), with a PMU in software: an instruction takes the emulator 2 ns, and each
//! system call mispredicts a branch, so that both are known.

use std::collections::HashMap;

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::softpmu::SoftPmu;
use pebs_tests::trace::{Count, Trace, Visit};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, need};

/// Largest number of instructions that marks add to an item, in the emulator.
const MARKS: u64 = 40_000;

/// Time between reading one counter and the next one of the same mark, ns.
const APART: u64 = 10_000;

/// The clock takes samples, and no counter.
const CLOCK: [&str; 4] = ["--event", "cpu-clock", "--reset", "200000"];

/// Counts of each visit, by the event's name.
struct Counts {
    visits: Vec<Visit>,
    rows: HashMap<(u64, String), Count>,
    truth: HashMap<(&'static str, u64), u64>,
}

impl Counts {
    fn new(trace: &Trace, truth: &Truth) -> Self {
        let names = names(trace);
        let rows = trace.counts().into_iter();
        let logged = ["instructions", "calls"].into_iter().flat_map(|name| {
            let calls = truth.calls.iter().filter(move |call| call.name == name);
            calls.map(move |call| ((name, call.item), call.leave))
        });
        Self {
            visits: trace.visits(),
            rows: rows
                .map(|row| ((row.visit_id, names[row.event as usize].clone()), row))
                .collect(),
            truth: logged.collect(),
        }
    }

    fn row(&self, visit: &Visit, event: &str) -> &Count {
        &self.rows[&(visit.visit_id, event.to_owned())]
    }

    /// A count that must be exact.
    fn exact(&self, visit: &Visit, event: &str) -> u64 {
        let row = self.row(visit, event);
        assert_eq!(row.state, "exact", "{event} {row:?} {visit:?}");
        assert_eq!(row.enabled_ns, row.running_ns, "{event} {row:?}");
        row.count.expect("what is exact is known")
    }

    /// Instructions and system calls of an item.
    fn truth(&self, visit: &Visit) -> (u64, u64) {
        let of = |name| self.truth[&(name, visit.item_id)];
        (of("instructions"), of("calls"))
    }
}

fn names(trace: &Trace) -> Vec<String> {
    let counted = trace.json["counted"].as_array().expect("counted");
    let name = |event: &serde_json::Value| event["name"].as_str().expect("a name").to_owned();
    counted.iter().map(name).collect()
}

fn record(soft: &SoftPmu, args: &[&str], run: &[&str]) -> (Recording, Counts, Trace) {
    let workload = Workload::build("loops");
    let (recording, truth) = Recorder::new(&workload.spec("handle(id=*(arg1):u64)"))
        .args(args)
        .under(soft.lock())
        .workload(&workload, run);
    // The sampling event may have had to wait for its turn.
    let trace = recording.trace_with_loss();
    check::no_mark_lost(&trace);
    check::same_items(&trace, &trace.visits(), &truth.ids());
    let counts = Counts::new(&trace, &truth);
    (recording, counts, trace)
}

fn with_clock<'a>(events: &'a [&'a str]) -> Vec<&'a str> {
    let counts = events.iter().flat_map(|event| ["--count", event]);
    CLOCK.into_iter().chain(counts).collect()
}

fn is_within(count: u64, least: u64, more: u64) -> bool {
    (least..=least + more).contains(&count)
}

/// As many events as counters, two of them in a group: each item has its own instructions and system calls, whatever
/// other threads and processes do on that CPU meanwhile.
fn counts_are_exact(soft: &SoftPmu, threads: &str) {
    let events = ["{cycles,instructions}", "branch-misses,instructions:u"];
    let (_kept, counts, trace) = record(soft, &with_clock(&events), &["30", threads]);
    let groups: Vec<u64> = { trace.json["counted"].as_array().expect("counted").iter() }
        .filter_map(|it| it["group"].as_u64())
        .collect();
    assert_eq!(groups, [0, 0, 1, 2]);
    let mut interrupted = 0;
    for visit in &counts.visits {
        let (instructions, calls) = counts.truth(visit);
        let of = |event| counts.exact(visit, event);
        assert_eq!(of("branch-misses"), calls, "{visit:?}");
        let more = MARKS + 20_000 * visit.switches.unwrap_or(0);
        let both = ["instructions", "instructions:u"].map(of);
        let is_least = both.iter().all(|count| *count >= instructions);
        assert!(is_least, "{both:?} {instructions} {visit:?}");
        let is_right = both
            .iter()
            .all(|count| is_within(*count, instructions, more));
        interrupted += usize::from(!is_right);
        assert!(
            of("cycles").abs_diff(2 * of("instructions")) < APART,
            "{visit:?}"
        );
        // Nothing is counted while a sample is taken, though the thread is on the CPU then.
        let oncpu = visit.oncpu_ns.expect("switches are recorded") as u64;
        assert!(of("cycles") <= oncpu + APART, "{} {visit:?}", of("cycles"));
    }
    // Whatever is done in an interrupt counts as the code that it came in, in either mode: see `softpmu/counter.c`.
    assert!(10 * interrupted <= counts.visits.len(), "{interrupted}");
}

#[test]
fn exact() {
    let soft = need!(SoftPmu::pebs());
    counts_are_exact(&soft, "1");
    // Threads that are started later.
    counts_are_exact(&soft, "3");
}

/// On two kinds of cores, between which every other item moves: an event with a counter on each kind has one count a
/// visit. While one emulated CPU is served the other waits, and its clock goes on: times are meaningless there.
#[test]
fn on_both_kinds() {
    let soft = need!(SoftPmu::hybrid());
    let events = ["instructions,branch-misses", "branch-misses:u"];
    let (_kept, counts, trace) = record(&soft, &with_clock(&events), &["30", "2"]);
    assert_eq!(
        names(&trace),
        ["instructions", "branch-misses", "branch-misses:u"]
    );
    let moved = counts
        .visits
        .iter()
        .filter(|it| Some(it.cpu_begin) != it.cpu_end);
    assert_eq!(moved.count(), counts.visits.len() / 2);
    for visit in &counts.visits {
        let (instructions, calls) = counts.truth(visit);
        assert_eq!(counts.exact(visit, "branch-misses"), calls, "{visit:?}");
        assert_eq!(counts.exact(visit, "branch-misses:u"), 0, "{visit:?}");
        let count = counts.exact(visit, "instructions");
        assert!(count >= instructions, "{count} {instructions} {visit:?}");
    }
}

/// For an event of one kind of cores the part on the other kind is unknown: the visit is counted in part, or not at
/// all.
#[test]
fn on_one_kind() {
    let soft = need!(SoftPmu::hybrid());
    let events = ["cpu_atom/event=0xc5/"];
    let (_kept, counts, trace) = record(&soft, &with_clock(&events), &["30"]);
    let [name] = &names(&trace)[..] else {
        panic!("{:#}", trace.json["counted"])
    };
    let mut states: HashMap<&str, u32> = HashMap::new();
    for visit in &counts.visits {
        let row = counts.row(visit, name);
        *states.entry(&row.state).or_default() += 1;
        match &*row.state {
            "exact" => assert_eq!(row.count, Some(counts.truth(visit).1), "{row:?} {visit:?}"),
            "no turn" => assert_eq!(row.count, None),
            state => assert_eq!(state, "scaled", "{row:?} {visit:?}"),
        }
        let moves = Some(visit.cpu_begin) != visit.cpu_end;
        assert_eq!(moves, row.state == "scaled", "{row:?} {visit:?}");
    }
    assert_eq!(states.len(), 3, "{states:?}");
}

/// Modes: counts in user mode and in the kernel add up; system calls are the kernel's.
#[test]
fn modes() {
    let soft = need!(SoftPmu::pebs());
    let events = [
        "instructions:u,instructions:k,instructions",
        "branch-misses:u",
    ];
    let (_kept, counts, _) = record(&soft, &with_clock(&events), &["30"]);
    for visit in &counts.visits {
        let (instructions, calls) = counts.truth(visit);
        let of = |event| counts.exact(visit, event);
        let (user, kernel, both) = (
            of("instructions:u"),
            of("instructions:k"),
            of("instructions"),
        );
        assert!(
            (user + kernel).abs_diff(both) < APART,
            "{user} {kernel} {both}"
        );
        let is_right = is_within(
            user,
            instructions,
            MARKS + 20_000 * visit.switches.unwrap_or(0),
        );
        assert!(is_right, "{user} {instructions} {visit:?}");
        assert!(kernel > 20 * calls && kernel < MARKS, "{kernel} {visit:?}");
        assert_eq!(of("branch-misses:u"), 0, "{visit:?}");
    }
}

/// The automatic set: the CPU's events, and the kernel's. The precise event that takes samples needs a counter too, and
/// keeps it: the four counted ones share the other three.
#[test]
fn auto() {
    let soft = need!(SoftPmu::pebs());
    let (recording, counts, trace) = record(&soft, &["--count", "auto"], &["40"]);
    let expected = [
        "cycles",
        "instructions",
        "branch-misses",
        "cache-misses",
        "page-faults",
        "major-faults",
        "context-switches",
        "cpu-migrations",
    ];
    assert_eq!(names(&trace), expected);
    let event = &trace.json["events"][0];
    assert!(!trace.samples().is_empty(), "{}", recording.tool);
    assert_eq!(event["enabled_ns"], event["running_ns"], "{event:#}");
    let is_shared = |row: &Count| row.state == "no turn" || row.state == "scaled";
    assert!(counts.rows.values().any(is_shared), "{}", recording.tool);
    for visit in &counts.visits {
        let row = counts.row(visit, "branch-misses");
        if row.state == "exact" {
            assert_eq!(row.count, Some(counts.truth(visit).1), "{visit:?}");
        }
        assert_eq!(counts.exact(visit, "cpu-migrations"), 0);
    }
}

/// Eight events on four counters: an item without a turn has no count, one with a part of a turn has an estimate, and over all
/// items estimates are near.
#[test]
fn turns() {
    let soft = need!(SoftPmu::pebs());
    let all = [
        "branches",
        "cache-misses",
        "cycles",
        "instructions",
        "cache-references",
        "ref-cycles",
        "cpu/event=0xc2/",
        "branch-misses",
    ];
    let list = all.join(",");
    let (recording, counts, _) = record(&soft, &with_clock(&[&list]), &["200"]);
    assert!(
        recording
            .tool
            .stderr
            .contains("events do not fit the counters of cpu: "),
        "{}",
        recording.tool
    );
    let mut states: HashMap<String, u32> = HashMap::new();
    let (mut estimated, mut expected) = (0, 0);
    for visit in &counts.visits {
        let (instructions, calls) = counts.truth(visit);
        for event in all {
            let row = counts.row(visit, event);
            *states.entry(row.state.clone()).or_default() += 1;
            let (enabled, running) = (row.enabled_ns, row.running_ns);
            match &*row.state {
                "exact" => assert_eq!(enabled, running, "{row:?}"),
                "no turn" => assert_eq!((row.count, running), (None, Some(0)), "{row:?}"),
                state => {
                    assert_eq!(state, "scaled", "{row:?}");
                    assert!(running > Some(0) && running < enabled, "{row:?}");
                }
            }
            let Some(count) = row.count else { continue };
            match event {
                "branch-misses" if row.state == "exact" => assert_eq!(count, calls, "{visit:?}"),
                "instructions" => {
                    estimated += count;
                    expected += instructions;
                }
                _ => {}
            }
        }
    }
    for state in ["exact", "scaled", "no turn"] {
        assert!(states.contains_key(state), "{states:?}");
    }
    let ratio = estimated as f64 / expected as f64;
    assert!((0.9..1.3).contains(&ratio), "{estimated} {expected}");
}

/// A group is scheduled as a whole: all its events are counted for the same time.
#[test]
fn groups_in_turn() {
    let soft = need!(SoftPmu::pebs());
    let groups = [
        "{cycles,instructions,branch-misses}",
        "{branches,cache-misses,ref-cycles}",
    ];
    let (_kept, counts, trace) = record(&soft, &with_clock(&groups), &["100"]);
    let names = names(&trace);
    let mut states: HashMap<String, u32> = HashMap::new();
    let mut torn = 0;
    for visit in &counts.visits {
        for group in names.chunks(3) {
            let rows = group.iter().map(|event| counts.row(visit, event));
            let rows: Vec<&Count> = rows.collect();
            // Counters of a group start and stop one after the other.
            let is_apart = |row: &&Count| {
                let apart = row.running_ns.unwrap_or(0) - rows[0].running_ns.unwrap_or(0);
                apart.unsigned_abs() >= APART
            };
            torn += usize::from(rows[1..].iter().any(is_apart));
            *states.entry(rows[0].state.clone()).or_default() += 1;
        }
    }
    // The events are read one after the other: a turn may begin or end between two of them.
    assert!(torn * 20 <= counts.visits.len(), "{torn} groups were torn");
    assert!(
        states.contains_key("exact") && states.contains_key("no turn"),
        "{states:?}"
    );
}

/// A group that has more events than there are counters is refused: it would never have a turn.
#[test]
fn group_too_large() {
    let soft = need!(SoftPmu::pebs());
    let workload = Workload::build("loops");
    let spec = workload.spec("handle(id=*(arg1):u64)");
    let group = "{cycles,instructions,branches,cache-misses,branch-misses}";
    let path = workload.path.to_str().expect("a path of ours");
    let args = [
        "--uprobe",
        &spec,
        "--count",
        group,
        "-o",
        "/tmp/refused",
        "--",
        path,
        "1",
    ];
    let done = pebs_trace(args);
    drop(soft);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(
        done.stderr.contains("the CPU can't count them together"),
        "{done}"
    );
    assert!(done.stderr.contains("out of the braces"), "{done}");
}

/// The same on AMD's cores, beside samples of IBS, which has a counter of its own.
#[test]
fn beside_ibs() {
    let soft = need!(SoftPmu::ibs());
    let (recording, counts, trace) = record(&soft, &["--count", "auto"], &["30"]);
    let event = &trace.json["events"][0]["name"];
    assert_eq!(event, "ibs_op/cnt_ctl=1/", "{}", recording.tool);
    assert!(names(&trace).contains(&"branch-misses".to_owned()));
    for visit in &counts.visits {
        let (instructions, calls) = counts.truth(visit);
        assert_eq!(counts.exact(visit, "branch-misses"), calls, "{visit:?}");
        assert!(
            counts.exact(visit, "instructions") >= instructions,
            "{visit:?}"
        );
    }
}
