//! PEBS as the kernel handles it, with a PMU in software whose records are counted: `cargo xtask kernels --pmu pebs`.
//!
//! An event of this PMU is a ns (or some ns) of the time that its thread runs, so that the number of samples of an
//! item is known. Each test holds the recording lock: the tallies are of the whole machine.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pebs_tests::process::{self, Running, Signal};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::softpmu::{self, SoftPmu};
use pebs_tests::sysctl::SampleRate;
use pebs_tests::trace::{SAMPLE_EXACT_IP, SAMPLE_KERNEL, Sample, Trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{bpf, check, need};

use super::samples_are_right;

/// A prime that leaves an emulated machine time for other things.
const RESET: &str = "100003";
/// See [`RESET`].
const RESET_NS: i64 = 100_003;

/// Time between the last instruction of an item and the reading of the clock after it, ns.
const SWITCH_NS: i64 = 10_000;

/// Records with the reset value of these tests.
fn record(soft: &SoftPmu, args: &[&str], rounds: &str) -> (Recording, Truth) {
    let mut with_reset = vec!["--reset", RESET];
    with_reset.extend_from_slice(args);
    super::record(soft, &with_reset, rounds)
}

/// Each record of the PMU is a sample in the trace or booked; returns the number of samples.
fn all_booked(trace: &Trace, soft: &SoftPmu) -> u64 {
    let samples = trace.account("samples");
    let counts = format!("{samples:?}\n{}", soft.tallies());
    assert_eq!(samples.seen, soft.tally("records"), "{counts}");
    assert_eq!(
        soft.tally("late"),
        0,
        "an NMI did not come at once: {counts}"
    );
    samples.seen
}

/// The default: the best precise event, many records before one interrupt. The first line states this, and it is true.
#[test]
fn default_is_in_bulk() {
    let soft = need!(SoftPmu::pebs());
    let (recording, truth) = record(&soft, &[], "2");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let first = "transport bulk: uops_retired.all every 100003 events: \
        the hardware buffers many samples before one interrupt";
    assert!(recording.tool.stderr.contains(first), "{}", recording.tool);
    assert_eq!(trace.json["transport"], "bulk");
    let event = &trace.json["events"][0];
    assert_eq!(event["precise_granted"], 2, "{event:#}");
    let seen = all_booked(&trace, &soft);
    assert!(10 * soft.tally("interrupts") < seen, "{}", soft.tallies());
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// A calibration of samples in bulk, removed when dropped: without one their cost is unknown.
struct Calibrated {
    file: PathBuf,
    sample_ns: f64,
}

impl Calibrated {
    fn new() -> Self {
        let done = pebs_trace(["calibrate", "--transport", "bulk"]);
        let mut lines = done.stdout.lines();
        let file = lines.find_map(|line| line.strip_prefix("saved in "));
        let file = PathBuf::from(file.unwrap_or_else(|| panic!("nothing was saved: {done}")));
        let text = fs::read(&file).expect("a calibration");
        let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let sample_ns = json["fit"]["alpha_ns"].as_f64().expect("a cost");
        Self { file, sample_ns }
    }
}

impl Drop for Calibrated {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Records a load that swings tenfold, whose start and end are not in the tallies.
fn swinging(soft: &SoftPmu, args: &[&str]) -> (Recording, Truth) {
    let workload = Workload::build("swings");
    let recorder = Recorder::new(&workload.spec("handle(id=*(arg1):u64)"));
    let target = workload.start(&["8", "300", "300000"]);
    super::attached(soft, recorder.own_pace().args(args), target)
}

/// Without `--reset` the slow-down of items is bounded in bulk as well, under a load that swings tenfold: the reset value follows it,
/// each record is booked, and what samples take is within the bound, by their number and by the target's own clock, which
/// goes with the instructions of the emulated machine.
#[test]
fn bound_in_bulk() {
    let soft = need!(SoftPmu::pebs());
    let calibrated = Calibrated::new();
    let step_ns = |truth: &Truth| {
        let note = |name: &str| truth.notes[name] as f64;
        note("cpu_ns") / (note("even") + note("odd"))
    };
    let (_, hardly_sampled) = swinging(&soft, &["--reset", "1000000007"]);
    for args in [&[][..], &["--keep", "slow"], &["--max-overhead", "5%"]] {
        let (recording, truth) = swinging(&soft, args);
        let trace = recording.trace();
        assert_eq!(trace.json["transport"], "bulk", "{}", recording.tool);
        assert_eq!(trace.visits().len() as u64, truth.notes["items"]);
        check::balances(&trace);
        let seen = all_booked(&trace, &soft);
        let resets = trace.json["resets"].as_array().expect("changes");
        assert!(!resets.is_empty(), "{}", recording.tool);
        let oncpu_ns = trace.json["cost"]["visits_oncpu_ns"].as_f64();
        let share = seen as f64 * calibrated.sample_ns / oncpu_ns.expect("time in items");
        let slower = step_ns(&truth) / step_ns(&hardly_sampled) - 1.0;
        println!("{args:?}: {share:.4} by {seen} samples, {slower:.4} by its clock, {resets:?}");
        assert!(share > 0.001 && share < 0.05, "{share}\n{}", recording.tool);
        assert!(slower < 0.05, "{slower}\n{}", recording.tool);
    }
}

/// Functions that retire uops at rates of their own, from 0.1 to 4 a ns, one of them slower in every tenth item: the time
/// of each in an item is within its stated error, and the sum over the items is right, where half of each gap would give the
/// fastest one several times its time, and uops fourteen times.
#[test]
fn time_at_rates_of_their_own() {
    const ITEMS: u64 = 200;
    let soft = need!(SoftPmu::pebs());
    let workload = Workload::build("rates");
    for transport in ["bulk", "bpf"] {
        let recorder = Recorder::new(&workload.spec("handle(id=*(arg1):u64)")).args(&[
            "--reset",
            RESET,
            "--transport",
            transport,
        ]);
        let target = workload.start(&[&ITEMS.to_string()]);
        let (recording, truth) = super::attached(&soft, recorder, target);
        let trace = recording.trace();
        assert_eq!(trace.json["transport"], transport, "{}", recording.tool);
        // A call's CPU time includes interrupts and the reading of its clock, which are not the function's.
        let mut took: HashMap<(u64, &str), [f64; 2]> = HashMap::new();
        for call in &truth.calls {
            let sum = took.entry((call.item, call.name.as_str())).or_default();
            *sum = [
                sum[0] + (call.leave - call.enter) as f64,
                sum[1] + SWITCH_NS as f64,
            ];
        }
        let names = trace.function_names();
        let visits = trace.visits();
        let items = visits.iter().map(|it| (it.visit_id, it.item_id));
        let items: HashMap<u64, u64> = items.collect();
        let (mut held, mut judged) = (0, 0);
        let mut sums: HashMap<&str, [f64; 3]> = HashMap::new();
        for row in trace.visit_functions() {
            let item = items[&row.visit_id];
            let name = names[&row.function_id].as_str();
            let Some(&[ns, slack]) = took.get(&(item, name)).filter(|_| item > 0) else {
                continue;
            };
            let own = row.self_ns.expect("a time");
            let error = row.self_stderr_ns.expect("an error");
            let beyond = (own - ns).max(ns - slack - own);
            judged += 1;
            held += u32::from(beyond <= 1.96 * error);
            let sum = sums.entry(name).or_default();
            *sum = [sum[0] + own, sum[1] + ns, sum[2] + slack];
        }
        println!("{transport}: {held} of {judged}, {sums:?}");
        assert!(judged > 2 * ITEMS as u32, "{judged}");
        assert!(
            f64::from(held) > 0.95 * f64::from(judged),
            "{held} of {judged}"
        );
        for (name, [own, truth, slack]) in &sums {
            let range = 0.98 * truth - slack..1.02 * truth;
            assert!(range.contains(own), "{name}: {own} not in {range:?}");
        }
    }
}

/// A recording that is over before the clocks were compared for the second time.
#[test]
fn short_recordings() {
    let soft = need!(SoftPmu::pebs());
    for transport in ["bulk", "bpf"] {
        let workload = Workload::build("query");
        let (recording, truth) = Recorder::new(&workload.spec(super::QUERY))
            .args(&["--reset", RESET, "--transport", transport])
            .under(soft.lock())
            .workload(&workload, &["1"]);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        samples_are_right(&trace, &truth, RESET_NS, &soft);
    }
}

/// For a program that is to see each sample, there is an interrupt for each record.
#[test]
fn a_program_sees_each() {
    let soft = need!(SoftPmu::pebs());
    let (recording, truth) = record(&soft, &["--transport", "bpf"], "2");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let seen = all_booked(&trace, &soft);
    assert_eq!(soft.tally("interrupts"), seen, "{}", soft.tallies());
    assert_eq!(soft.tally("overflows"), seen, "{}", soft.tallies());
    assert_eq!(soft.tally("output"), 0, "{}", soft.tallies());
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// Of several records at an interrupt an eBPF program sees only the last one, and at a switch and at the end none. The
/// others are in the rings beside it, so none is lost.
#[test]
fn a_program_sees_the_last_record() {
    let soft = need!(SoftPmu::pebs());
    let soft = soft.with("always_many", "Y").with("buffer", "40");
    let counting = bpf::Counting::start();
    let workload = Workload::build("query");
    let mut target = workload.start(&["2"]);
    let live = Recorder::new(&workload.spec(super::QUERY))
        .args(&["--reset", RESET, "--transport", "bpf"])
        .under(soft.lock())
        .attach(target.process.pid());
    soft.clear();
    target.go();
    let (_, truth) = target.finish();
    let runs = bpf::runs("sample0");
    let trace = live.stop().trace();
    drop(counting);
    check::whole_visits(&trace, &truth);
    let seen = all_booked(&trace, &soft);
    assert_eq!(runs, soft.tally("overflows"), "{}", soft.tallies());
    assert!(runs > 0 && runs < seen / 16, "{runs} of {seen}");
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// A buffer that runs full: an interrupt at its threshold, not at each record.
#[test]
fn threshold() {
    let soft = need!(SoftPmu::pebs()).with("buffer", "40");
    let (recording, truth) = record(&soft, &[], "2");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let seen = all_booked(&trace, &soft);
    let drains = soft.tally("at_threshold");
    assert!(drains > 0 && drains <= seen / 32, "{}", soft.tallies());
    assert_eq!(soft.tally("overflows"), drains);
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// Records that PEBS loses when two counters overflow at once are all counted as lost.
#[test]
fn collisions() {
    let soft = need!(SoftPmu::pebs()).with("collide", "10");
    for transport in ["bulk", "bpf"] {
        let args = ["--transport", transport, "--max-loss", "100"];
        let (recording, _) = record(&soft, &args, "1");
        let trace = recording.trace_with_loss();
        all_booked(&trace, &soft);
        let samples = trace.account("samples");
        let collisions = soft.tally("collisions");
        let lost = samples.reasons.get("lost_perf_ring").copied();
        assert!(collisions > 10 && lost == Some(collisions), "{samples:?}");
        assert_eq!(samples.lost(), collisions, "{samples:?}");
    }
}

/// If the kernel refuses a precise level for the event: the next one is used, with a message.
#[test]
fn step_down() {
    let soft = need!(SoftPmu::pebs()).with("granted", "1");
    let args = ["--event", "cycles:ppp"];
    let (recording, truth) = record(&soft, &args, "1");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let event = &trace.json["events"][0];
    assert_eq!(event["precise_requested"], 3, "{event:#}");
    assert_eq!(event["precise_granted"], 1, "{event:#}");
    assert!(event["precise_reason"].is_string(), "{event:#}");
    let exact = |sample: &Sample| sample.flags & SAMPLE_EXACT_IP != 0;
    assert!(!trace.samples().iter().any(exact), "level 1 is not exact");
}

/// No precise event at all: the clock is used.
#[test]
fn nothing_is_granted() {
    let soft = need!(SoftPmu::pebs()).with("granted", "0");
    let (recording, truth) = record(&soft, &[], "1");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let event = &trace.json["events"][0];
    assert_eq!(event["name"], "cpu-clock", "{event:#}");
    assert_eq!(trace.json["transport"], "bpf");
    assert_eq!(soft.tally("records"), 0);
}

/// The highest level.
#[test]
fn highest_level() {
    let soft = need!(SoftPmu::pebs());
    let (recording, truth) = record(&soft, &["--event", "cycles:ppp"], "1");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let event = &trace.json["events"][0];
    assert_eq!(event["precise_granted"], 3, "{event:#}");
    assert_eq!(trace.json["transport"], "bulk");
    all_booked(&trace, &soft);
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// Threads and processes that are started later inherit the counters, and their buffers are emptied too.
#[test]
fn inherited() {
    let soft = need!(SoftPmu::pebs());
    for (name, arguments) in [
        ("threads", ["3", "40", "2000"]),
        ("fork", ["3", "40", "2000"]),
    ] {
        let before = soft.tally("records");
        let workload = Workload::build(name);
        let (recording, truth) = Recorder::new(&workload.spec("handle(id=*(arg1):u64)"))
            .args(&["--reset", RESET])
            .under(soft.lock())
            .workload(&workload, &arguments);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let seen = trace.account("samples").seen;
        assert_eq!(seen, soft.tally("records") - before, "{}", soft.tallies());
        assert!(seen > 0);
    }
}

/// A process that already runs, and whole CPUs: reading the counters flushes the buffers of running threads.
#[test]
fn attached_and_everyone() {
    let soft = need!(SoftPmu::pebs());
    let workload = Workload::build("query");
    let spec = workload.spec(super::QUERY);
    for everyone in [false, true] {
        let mut target = workload.start(&["4"]);
        let recorder = Recorder::new(&spec)
            .args(&["--reset", RESET])
            .under(soft.lock());
        let live = if everyone {
            recorder.start()
        } else {
            recorder.attach(target.process.pid())
        };
        soft.clear();
        target.go();
        let (_, truth) = target.finish();
        let recording = live.stop();
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        samples_are_right(&trace, &truth, RESET_NS, &soft);
    }
    // The last records of whole CPUs.
    assert!(soft.tally("at_read") > 0, "{}", soft.tallies());
}

/// Loads have the source of their data and their latency.
#[test]
fn loads() {
    let soft = need!(SoftPmu::pebs());
    let args = ["--event", "cpu/mem-loads/pp", "--reset", "20011"];
    let (recording, _) = super::record(&soft, &args, "2");
    let trace = recording.trace();
    let seen = all_booked(&trace, &soft);
    assert!(seen > 0);
    let memory = trace.table("memory");
    let levels = memory.text("level");
    assert!(!levels.is_empty(), "{}", recording.tool);
    let hit = |level: &Option<String>| level.as_deref() == Some("L1 hit");
    assert!(levels.iter().all(hit), "{levels:?}");
    assert!(memory.u64("addr").iter().all(Option::is_some));
    let latencies = memory.u64("latency_cycles");
    assert!(latencies.iter().all(|it| *it == Some(7)), "{latencies:?}");
}

/// More events than counters: they are multiplexed, with a message.
#[test]
fn turns() {
    let soft = need!(SoftPmu::pebs());
    let events = [
        "cycles",
        "instructions",
        "branches",
        "cache-misses",
        "branch-misses",
    ];
    let events = events.map(|event| format!("{event}:pp"));
    let mut args = vec!["--multiplex"];
    args.extend(events.iter().flat_map(|event| ["--event", event.as_str()]));
    let (recording, truth) = record(&soft, &args, "4");
    let trace = recording.trace_with_loss();
    check::no_mark_lost(&trace);
    assert_eq!(trace.visits().len(), truth.items.len());
    all_booked(&trace, &soft);
    let events = trace.json["events"].as_array().expect("events").clone();
    let turns = events.iter().filter(|event| {
        let ns = |key: &str| event[key].as_u64().unwrap_or(0);
        ns("running_ns") < ns("enabled_ns")
    });
    assert!(turns.count() > 0, "{events:#?}");
}

/// A rate above the kernel's limit: if each record interrupts, the counter is stopped until the next tick, and that is
/// booked. In bulk there is nothing to throttle.
#[test]
fn throttled() {
    let soft = need!(SoftPmu::pebs());
    let rate = need!(SampleRate::lower_under(soft.lock(), 1000));
    for (transport, is_throttled) in [("bpf", true), ("bulk", false)] {
        let (recording, _) = record(&soft, &["--transport", transport], "2");
        let trace = recording.trace_with_loss();
        let ranges = trace.losses();
        let throttled = ranges.iter().filter(|loss| loss.reason == "throttled");
        assert_eq!(throttled.count() > 0, is_throttled, "{}", recording.tool);
    }
    drop(rate);
}

/// A call stack of each sample: of a precise event the kernel takes it beforehand.
#[test]
fn call_stacks() {
    let soft = need!(SoftPmu::pebs());
    let (recording, truth) = record(&soft, &["--call-graph", "fp"], "1");
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert_eq!(trace.json["transport"], "bpf");
    all_booked(&trace, &soft);
    let with = trace
        .samples()
        .iter()
        .filter(|it| it.stack_id.is_some())
        .count();
    assert!(with > 0, "{}", recording.tool);
}

/// The item is read from a register of the record, not of the interrupt.
#[test]
fn item_in_a_register() {
    let soft = need!(SoftPmu::pebs());
    let workload = Workload::build("fibers");
    for (args, transport) in [(&[][..], "bulk"), (&["--transport", "bpf"], "bpf")] {
        let recorder = Recorder::plain()
            .args(&["--item-reg", "r13", "--reset", RESET])
            .args(args);
        let target = workload.start(&["4", "100", "500"]);
        let (recording, truth) = super::attached(&soft, recorder, target);
        let trace = recording.trace();
        assert_eq!(trace.json["transport"], transport, "{}", recording.tool);
        let seen = all_booked(&trace, &soft);
        if transport == "bulk" {
            assert!(10 * soft.tally("interrupts") < seen, "{}", soft.tallies());
        }
        no_sample_in_a_wrong_fiber(&trace, &truth);
    }
}

/// Each sample between a fiber's log of its begin and end is of that fiber; one in kernel mode may be of none where
/// the fiber changes with it.
fn no_sample_in_a_wrong_fiber(trace: &Trace, truth: &Truth) {
    let zero = trace.monotonic_ns();
    let visits = trace.visits().into_iter();
    let items: HashMap<u64, u64> = visits.map(|it| (it.visit_id, it.item_id)).collect();
    let mut within = 0;
    for sample in trace.samples() {
        let slice = truth.items.iter().find(|item| {
            let inside = item.enter.zip(item.leave).is_some_and(|(enter, leave)| {
                // The C library's work between setting an id and reading the clock takes time in an emulator.
                let (enter, leave) = (enter as i64 - zero, leave as i64 - zero);
                sample.time_ns > enter && sample.time_ns < leave - SWITCH_NS
            });
            inside && u64::from(item.tid) == sample.tid
        });
        if let Some(slice) = slice {
            let found = sample.visit_id.map(|visit| items[&visit]);
            if found.is_none() && sample.flags & SAMPLE_KERNEL != 0 {
                continue;
            }
            assert_eq!(found, Some(slice.id), "{sample:?} {slice:?}");
            within += 1;
        }
    }
    assert!(within > 100, "{within} samples in fibers");
}

/// A tool that is killed leaves no event behind: the module can be unloaded.
#[test]
fn killed_tools() {
    let soft = need!(SoftPmu::pebs());
    let workload = Workload::build("query");
    for transport in ["bulk", "bpf"] {
        let mut target = workload.start(&["1000"]);
        let live = Recorder::new(&workload.spec(super::QUERY))
            .args(&["--reset", RESET, "--transport", transport])
            .under(soft.lock())
            .attach(target.process.pid());
        soft.clear();
        target.go();
        process::wait_until("nothing is sampled", || soft.tally("records") > 200);
        let _ = live.kill();
        softpmu::reload();
        target.process.signal(Signal::KILL);
    }
}

/// Nor does any other program that is killed while it samples. Repeated often enough that a leaked counter or buffer
/// shows.
#[test]
fn killed_samplers() {
    const TIMES: u32 = 100;
    let _soft = need!(SoftPmu::pebs());
    let workload = Workload::build("samplers");
    for _ in 0..TIMES {
        let mut sampler = Running::start(&mut Command::new(&workload.path));
        sampler.wait_for_output(|text| text.contains("sampling"));
        sampler.signal(Signal::KILL);
        let _ = sampler.finish();
        softpmu::reload();
    }
}
