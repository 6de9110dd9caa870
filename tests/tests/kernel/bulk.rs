//! The bulk transport: the kernel writes the samples into perf's rings, the programs make only the marks, and user
//! space joins the two by time. The results equal those of the other transport.

use std::collections::{BTreeMap, HashMap};

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Trace, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

const OUTSIDE: u64 = u64::MAX;

const TRANSPORTS: [&str; 2] = ["bpf", "bulk"];

/// Records a workload from its start, by one transport.
fn record(
    workload: &Workload,
    transport: &str,
    args: &[&str],
    arguments: &[&str],
) -> (Recording, Truth) {
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&["--transport", transport])
        .args(args)
        .workload(workload, arguments);
    let first = format!("transport {transport}: ");
    assert!(recording.tool.stderr.contains(&first), "{}", recording.tool);
    let trace = recording.trace();
    assert_eq!(trace.json["transport"], transport);
    // A thread's counters on each CPU are enabled together, and count one after another: their times are summed.
    let took_turns = recording.tool.stderr.contains("it took turns");
    assert!(!took_turns, "{}", recording.tool);
    check::whole_visits(&trace, &truth);
    (recording, truth)
}

/// Number of samples of each item in each function; samples in no item count for the largest id.
fn samples_by_item(trace: &Trace) -> BTreeMap<(u64, String), u64> {
    let names = trace.function_names();
    let visits = trace.visits().into_iter();
    let items: HashMap<u64, u64> = visits
        .map(|visit| (visit.visit_id, visit.item_id))
        .collect();
    let mut counts = BTreeMap::new();
    for sample in trace.samples() {
        let item = sample.visit_id.map_or(OUTSIDE, |visit| items[&visit]);
        let name = names.get(&sample.function_id).cloned().unwrap_or_default();
        *counts.entry((item, name)).or_default() += 1;
    }
    counts
}

/// A breakpoint is hit equally often in each item, and each hit is known: both transports give the same counts.
#[test]
fn breakpoints_agree() {
    need!(machine::root());
    let workload = Workload::build("breakpoint");
    for reset in ["1", "7"] {
        let event = ["--event", "mem:hit:x", "--reset", reset];
        let [bpf, bulk] = TRANSPORTS.map(|transport| {
            let (recording, _) = record(&workload, transport, &event, &["10", "100"]);
            samples_by_item(&recording.trace())
        });
        assert!(!bpf.is_empty());
        if reset == "1" {
            assert_eq!(bpf, bulk);
            continue;
        }
        // The phase of counting within the hits differs between runs.
        let close = |((a, m), (b, n)): ((_, &u64), (_, &u64))| a == b && m.abs_diff(*n) <= 1;
        let agree = bpf.len() == bulk.len() && bpf.iter().zip(&bulk).all(close);
        assert!(agree, "every {reset} hits: {bpf:?} {bulk:?}");
    }
}

/// Page faults: equally many of each item, in the function that touches the pages, with either transport.
#[test]
fn page_faults_agree() {
    need!(machine::root());
    let workload = Workload::build("faults");
    let event = ["--event", "page-faults", "--reset", "1"];
    let [bpf, bulk] = TRANSPORTS.map(|transport| {
        let (recording, _) = record(&workload, transport, &event, &["64"]);
        let mut counts = samples_by_item(&recording.trace());
        // The faults of item 0, and of the time before and after all items, depend on the machine.
        counts.retain(|(item, name), _| ![0, OUTSIDE].contains(item) && name == "touch_pages");
        counts
    });
    let sum: u64 = bpf.values().sum();
    assert!(sum > 64, "{bpf:?}");
    assert_eq!(bpf, bulk);
}

/// Page faults have addresses: each fault of the function that touches pages in turn is one page further, with
/// either transport; the report shows them.
#[test]
fn page_faults_have_addresses() {
    need!(machine::root());
    let workload = Workload::build("faults");
    let event = ["--event", "page-faults", "--reset", "1"];
    for transport in TRANSPORTS {
        let (recording, _) = record(&workload, transport, &event, &["64"]);
        let trace = recording.trace();
        let names = trace.function_names();
        let touches = |id: u64| names.get(&id).is_some_and(|name| name == "touch_pages");
        let memory = trace.table("memory");
        let (times, functions) = (memory.i64("time_ns"), memory.u64("function_id"));
        let (visits, addrs, events) = (
            memory.u64("visit_id"),
            memory.u64("addr"),
            memory.u64("events"),
        );
        assert!(memory.text("level").iter().all(Option::is_none));
        let rows = (0..memory.len()).filter(|&n| visits[n].is_some());
        let mut rows: Vec<(i64, u64)> = rows
            .filter(|&n| touches(functions[n].expect("function_id")))
            .map(|n| (times[n].expect("time_ns"), addrs[n].expect("addr") & !0xfff))
            .collect();
        rows.sort_unstable();
        let samples = trace.samples();
        let inside = |sample: &&pebs_tests::trace::Sample| {
            sample.visit_id.is_some() && touches(sample.function_id)
        };
        assert_eq!(rows.len(), samples.iter().filter(inside).count());
        assert!(events.iter().all(|it| *it == Some(1)));
        // The first item may take a fault of the code itself.
        let steps: Vec<u64> = rows.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        let odd = steps.iter().filter(|step| **step != 4096).count();
        assert!(rows.len() > 64 && odd <= 1, "{transport}: {steps:?}");
        let dir = trace.dir.to_str().expect("a path");
        let report = pebs_trace(["report", "--by", "memory", dir]);
        assert!(report.stdout.contains("touch_pages"), "{report}");
    }
}

/// A clock: the same items, and about equally many samples in each; several threads, and the perf clock.
#[test]
fn clock_samples_belong_to_their_items() {
    need!(machine::root());
    let workload = Workload::build("threads");
    for clock in ["monotonic", "perf"] {
        let args = [
            "--event",
            "cpu-clock",
            "--reset",
            "50000",
            "--sample-clock",
            clock,
        ];
        let (recording, truth) = record(&workload, "bulk", &args, &["2", "50", "2000"]);
        let trace = recording.trace();
        let bound = trace.json["clock_error"]["p99_ns"].as_f64().unwrap_or(0.0) as i64 + 1000;
        let visits = trace.visits();
        let by_id: HashMap<u64, _> = visits.iter().map(|v| (v.visit_id, v)).collect();
        assert_eq!(visits.len(), truth.items.len());
        let mut inside: HashMap<u64, i64> = HashMap::new();
        for sample in trace.samples() {
            let Some(visit) = sample.visit_id.map(|id| by_id[&id]) else {
                continue;
            };
            *inside.entry(visit.visit_id).or_default() += 1;
            let during = visit.begin_ns - bound..visit.end_ns.unwrap() + bound;
            assert!(during.contains(&sample.time_ns), "{sample:?} {visit:?}");
            assert_eq!(sample.tid, visit.tid);
        }
        // At least half of the samples expected for the time on the CPU, in half of the items: a busy machine
        // delays interrupts, and a host takes the CPU away.
        let enough = visits.iter().filter(|visit| {
            let samples = inside.get(&visit.visit_id).copied().unwrap_or(0);
            samples >= visit.oncpu_ns.unwrap() / 50_000 / 2
        });
        assert!(2 * enough.count() > visits.len(), "{}", recording.tool);
    }
}

/// Without a process selected, the rings hold the samples of all processes: those of others are left out.
#[test]
fn others_are_left_out() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut target = workload.start(&["200"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&[
            "--transport",
            "bulk",
            "--event",
            "cpu-clock",
            "--reset",
            "50000",
        ])
        .start();
    let pid = u64::from(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    let recording = live.stop();
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let ours = |tid: u64| {
        trace
            .visits()
            .iter()
            .any(|visit| visit.tid == tid && visit.pid == pid)
    };
    assert!(
        trace.samples().iter().all(|sample| ours(sample.tid)),
        "{}",
        recording.tool
    );
    assert!(!trace.samples().is_empty());
}

/// A ring that is too small: the kernel reports the number of lost samples, and the time range. The ledger
/// balances, and the visits in the range are flagged.
#[test]
fn full_ring() {
    need!(machine::root());
    let workload = Workload::build("breakpoint");
    let mut target = workload.start(&["100", "100"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&[
            "--transport",
            "bulk",
            "--event",
            "mem:hit:x",
            "--reset",
            "1",
        ])
        .args(&["--ring-size", "64KiB", "--max-loss", "100"])
        .attach(target.process.pid());
    live.tool.signal(pebs_tests::process::Signal::STOP);
    target.go();
    // It does not wait: 10,000 samples of 32 bytes, with room for 64 KiB.
    let (_, truth) = target.finish();
    live.tool.signal(pebs_tests::process::Signal::CONT);
    let recording = live.stop();
    let trace = recording.trace();
    check::ledger(&trace);
    let lost: u64 = trace
        .losses()
        .iter()
        .filter(|loss| loss.reason == "lost_perf_ring")
        .filter_map(|loss| loss.records)
        .sum();
    let written = trace.samples().len() as u64;
    assert_eq!(truth.notes["calls"], 10_000);
    assert!(lost > 0, "nothing was lost\n{}", recording.tool);
    assert_eq!(lost + written, 10_000, "{}", recording.tool);
    let flagged = trace
        .visits()
        .iter()
        .filter(|v| v.flags & flag::LOSS != 0)
        .count();
    assert!(flagged > 0);
}
