//! Samples: in the right item and function, and of the expected number.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{SAMPLE_KERNEL, Trace};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Function names of each visit with their samples.
fn functions_by_item(trace: &Trace) -> HashMap<u64, HashMap<String, (u64, f64)>> {
    let names = trace.function_names();
    let mut items: HashMap<u64, HashMap<String, (u64, f64)>> = HashMap::new();
    for row in trace.visit_functions() {
        let name = names.get(&row.function_id).cloned().unwrap_or_default();
        let entry = items
            .entry(row.item_id)
            .or_default()
            .entry(name)
            .or_default();
        entry.0 += row.samples;
        entry.1 += row.self_ns.unwrap_or(0.0);
    }
    items
}

/// Samples on the perf clock, as from hardware, are joined to marks on the monotonic clock by pairs of both taken
/// during the run: none is lost, and the error of the conversion is known.
#[test]
fn perf_clock() {
    need!(machine::root());
    // Before, the sample program does not see a sample's own time.
    need!(machine::kernel(6, 3));
    let workload = Workload::build("threads");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .args(&["--sample-clock", "perf"])
        .workload(&workload, &["2", "50", "2000"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let error = &trace.json["clock_error"];
    assert!(error["pairs"].as_u64() > Some(1), "{error}");
    let bound = error["p99_ns"].as_f64().unwrap() as i64 + 1000;
    let visits: HashMap<u64, _> = trace
        .visits()
        .into_iter()
        .map(|v| (v.visit_id, v))
        .collect();
    let samples = trace.samples();
    assert!(!samples.is_empty(), "no sample\n{}", recording.tool);
    for sample in samples {
        let Some(visit) = sample.visit_id.map(|id| &visits[&id]) else {
            continue;
        };
        let slack = visit.begin_ns - bound..visit.end_ns.unwrap() + bound;
        assert!(slack.contains(&sample.time_ns), "{sample:?} {visit:?}");
    }
}

/// A recording that is over before the second tick of the clocks' comparison has its first ones: no sample is late.
#[test]
fn perf_clock_of_short_recordings() {
    need!(machine::root());
    need!(machine::kernel(6, 3));
    let workload = Workload::build("plain");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "20000"])
        .args(&["--sample-clock", "perf"])
        .workload(&workload, &["5"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let error = &trace.json["clock_error"];
    assert!(error["pairs"].as_u64() > Some(1), "{error}");
}

/// Figure 8 of Akiyama 2018: the 1st and 5th of ten queries stand out, because of f3.
#[test]
fn query_figure_8() {
    need!(machine::root());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64, n=*(arg1+8):u32)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--event", "cpu-clock", "--reset", "20000"])
        .workload(&workload, &["5"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let n = trace.number_argument("n");
    let items = functions_by_item(&trace);
    let mut visits = trace.visits();
    visits.sort_by_key(|visit| visit.item_id);
    for round in visits.chunks(10) {
        for (visit, expected) in round.iter().zip([3, 3, 1, 3, 5, 1, 5, 3, 5, 1]) {
            assert_eq!(n[&visit.visit_id], Some(expected), "{visit:?}");
        }
    }
    // The median over all rounds: a single round in which a host takes the CPU away does not characterise the
    // query.
    let usual = |at: usize| median(visits.chunks(10).map(|round| round[at].oncpu_ns).collect());
    let mut by_time: Vec<usize> = (0..10).collect();
    by_time.sort_by_key(|at| std::cmp::Reverse(usual(*at)));
    by_time[..2].sort_unstable();
    assert_eq!(by_time[..2], [0, 4], "{visits:#?}");
    let mut carried = Vec::new();
    for visit in &visits {
        let functions = items.get(&visit.item_id).cloned().unwrap_or_default();
        let f3_ran = truth
            .calls
            .iter()
            .any(|c| c.item == visit.item_id && c.name == "f3");
        let f3 = functions.get("f3").copied().unwrap_or_default();
        assert_eq!(f3.0 > 0, f3_ran, "f3 in {visit:?}: {functions:?}");
        if f3_ran {
            let own: f64 = functions.values().map(|(_, own)| own).sum();
            carried.push((f3.1 / own * 100.0) as u64);
        }
    }
    assert!(
        median(carried.clone()) > 50,
        "f3 does not carry them: {carried:?} %"
    );
    let estimate_is_the_time_on_the_cpu = visits.iter().filter(|v| v.samples > 0).all(|visit| {
        let own: f64 = items[&visit.item_id].values().map(|(_, own)| own).sum();
        (own - visit.oncpu_ns.unwrap() as f64).abs() < 10.0
    });
    assert!(
        estimate_is_the_time_on_the_cpu,
        "self_ns adds up to oncpu_ns"
    );
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// A sample lies within its visit, on its thread.
#[test]
fn samples_lie_within_their_visit() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .workload(&workload, &["4", "50", "500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let visits: HashMap<u64, _> = trace
        .visits()
        .into_iter()
        .map(|v| (v.visit_id, v))
        .collect();
    let names = trace.function_names();
    let (mut inside, mut in_handle) = (0, 0);
    for sample in trace.samples() {
        let Some(visit) = sample.visit_id.map(|id| &visits[&id]) else {
            continue;
        };
        assert_eq!(sample.tid, visit.tid, "{sample:?} {visit:?}");
        let end = visit.end_ns.unwrap();
        assert!(
            (visit.begin_ns..end).contains(&sample.time_ns),
            "{sample:?} {visit:?}"
        );
        inside += 1;
        in_handle += u64::from(
            names
                .get(&sample.function_id)
                .is_some_and(|n| n == "handle"),
        );
    }
    assert!(
        inside > 0,
        "no sample in 100 ms of work\n{}",
        recording.tool
    );
    assert!(
        in_handle > 0,
        "the function that does the work is not among them"
    );
}

/// The paper's firewall: type A costs more than B, and B more than C, in rte_acl_classify.
#[test]
fn acl() {
    need!(machine::root());
    let workload = need!(Workload::try_build("acl"));
    let spec = workload.spec("classify_packet(id=*(arg1):u64, type=*(arg1+8):u32)");
    let (recording, truth) = Recorder::new(&spec)
        // So rare that few items have a sample: the overhead of samples does not decide which kind is the longest
        // in the log.
        .args(&["--event", "cpu-clock", "--reset", "100000"])
        .workload(&workload, &["30000"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let (names, types) = (trace.function_names(), trace.number_argument("type"));
    // Items are shorter than the gap between samples: pooled by type.
    let (mut in_classify, mut in_all) = ([0; 3], [0; 3]);
    for row in trace.visit_functions() {
        let kind = types[&row.visit_id].unwrap() as usize;
        in_all[kind] += row.samples;
        let name = names.get(&row.function_id).map_or("", String::as_str);
        if name.contains("rte_acl_classify") {
            in_classify[kind] += row.samples;
        }
    }
    let [a, b, c] = in_classify;
    assert!(a > b && b > c && c > 0, "A {a}, B {b}, C {c} of {in_all:?}");
    let truly = [0, 1, 2].map(|kind| {
        let items = truth.items.iter().filter(|item| (item.id - 1) % 3 == kind);
        median(items.map(|i| i.leave.unwrap() - i.enter.unwrap()).collect())
    });
    assert!(
        truly[0] > truly[1] && truly[1] > truly[2],
        "by its own log: {truly:?}"
    );
}

/// A hardware breakpoint with period N on a function called M times: floor(M / N) samples, each
/// naming that function and lying in an item.
fn breakpoint(reset: u64) {
    let workload = Workload::build("breakpoint");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--event", "mem:hit:x", "--reset", &reset.to_string()])
        .workload(&workload, &["10", "100"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert_eq!(truth.notes["calls"], 1000);
    let (samples, names) = (trace.samples(), trace.function_names());
    assert_eq!(samples.len() as u64, 1000 / reset, "{}", recording.tool);
    for (i, sample) in samples.iter().enumerate() {
        let name = names.get(&sample.function_id).map(String::as_str);
        assert_eq!(name, Some("hit"), "{sample:?}");
        assert_eq!(sample.ip, samples[0].ip, "always the same instruction");
        assert!(
            sample.visit_id.is_some(),
            "the {i}. is in no item: {sample:?}"
        );
    }
    if reset == 1 {
        assert!(trace.visits().iter().all(|visit| visit.samples == 100));
    }
}

#[test]
fn breakpoint_every_call() {
    need!(machine::root());
    breakpoint(1);
}

#[test]
fn breakpoint_every_seventh() {
    need!(machine::root());
    breakpoint(7);
}

#[test]
fn breakpoint_every_hundredth() {
    need!(machine::root());
    breakpoint(100);
}

/// Each page fault belongs to the item that touched the page, in the function that did.
#[test]
fn page_faults() {
    need!(machine::root());
    let workload = Workload::build("faults");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--event", "page-faults", "--reset", "1"])
        .workload(&workload, &["100"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let pages: HashMap<u64, u64> = truth.calls.iter().map(|c| (c.item, c.leave)).collect();
    let items = functions_by_item(&trace);
    for visit in trace.visits().iter().filter(|visit| visit.item_id > 0) {
        assert_eq!(visit.samples, pages[&visit.item_id], "{visit:?}");
        let in_touch = items[&visit.item_id]["touch_pages"].0;
        assert_eq!(in_touch, visit.samples, "{:?}", items[&visit.item_id]);
    }
    let kind = &trace.json["events"][0];
    assert_eq!(
        (&kind["unit"], &kind["reset"]),
        (&"events".into(), &1.into())
    );
}

/// Two events at once are kept apart.
#[test]
fn two_events() {
    need!(machine::root());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&[
            "--event",
            "cpu-clock",
            "--event",
            "task-clock",
            "--reset",
            "50000",
        ])
        .workload(&workload, &["5"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert_eq!(trace.json["events"].as_array().unwrap().len(), 2);
    for event in [0, 1] {
        let rows = trace.visit_functions();
        let samples: u64 = rows
            .iter()
            .filter(|r| r.event == event)
            .map(|r| r.samples)
            .sum();
        assert!(
            samples > 0,
            "event {event} has no sample\n{}",
            recording.tool
        );
    }
}

/// `--exclude-kernel` leaves no sample in the kernel.
#[test]
fn exclude_kernel() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&[
            "--event",
            "cpu-clock",
            "--reset",
            "50000",
            "--exclude-kernel",
        ])
        .workload(&workload, &["2", "50", "500"]);
    let trace = recording.trace();
    let samples = trace.samples();
    assert!(!samples.is_empty());
    assert!(samples.iter().all(|sample| sample.ip >> 63 == 0));
}

/// Samples in the kernel have their system call, with call stacks or without, and `explain` names it.
#[test]
fn system_calls() {
    need!(machine::root());
    ["none", "fp", "eh"].into_iter().for_each(system_calls_with);
}

fn system_calls_with(stacks: &str) {
    let workload = Workload::build("system_calls");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--event", "cpu-clock", "--reset", "100000"])
        .args(&["--call-graph", stacks])
        .workload(&workload, &["200"]);
    let trace = recording.trace();
    let innermost: HashMap<u64, u64> = trace
        .stacks()
        .iter()
        .map(|it| (it.stack_id, it.frames[0]))
        .collect();
    assert_eq!(innermost.is_empty(), stacks == "none");
    let (calls, own) = (trace.system_calls(), trace.own_function());
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|it| (it.visit_id, it.item_id))
        .collect();
    let (mut right, mut wrong, mut none) = (0, 0, 0);
    for sample in trace.samples() {
        let Some(item) = sample.visit_id.and_then(|it| items.get(&it)) else {
            continue;
        };
        if sample.ip >> 63 == 0 || Some(sample.function_id) == own {
            continue;
        }
        let of_stack = sample.stack_id.and_then(|it| innermost.get(&it));
        let is_alike = of_stack.is_none_or(|it| *it == sample.function_id);
        assert!(is_alike, "{stacks}: {sample:?}");
        let call = calls.get(&sample.function_id).map(String::as_str);
        match (call, item % 2) {
            (Some("read"), 0) | (Some("getrandom"), 1) => right += 1,
            (Some(_), _) => wrong += 1,
            // On the way in or out, or at the entry of the handler.
            (None, _) => none += 1,
        }
    }
    assert!(right > 100 && wrong == 0, "{right} {wrong} {none}");
    assert!(none * 10 < right, "{right} {wrong} {none}");
    let dir = recording.dir();
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), "--slow=p60".as_ref()]);
    assert!(
        explained.stdout.contains("system call getrandom")
            || explained.stdout.contains(" [kernel, getrandom]"),
        "{explained}"
    );
}

/// Samples in the kernel tell how it was entered: items that touch new pages are there by page faults, a loop that does
/// nothing else by interrupts.
#[test]
fn entries_to_the_kernel() {
    need!(machine::root());
    let kernel = |workload: &str, args: &[&str]| {
        let workload = Workload::build(workload);
        let (recording, _) = Recorder::new(&workload.spec(super::ID))
            .args(&["--event", "cpu-clock", "--reset", "50000", "--force"])
            .workload(&workload, args);
        let trace = recording.trace();
        let (entries, own) = (trace.kernel_entries(), trace.own_function());
        let mut samples: HashMap<Option<String>, u64> = HashMap::new();
        for sample in trace.samples() {
            let is_kernel = sample.flags & SAMPLE_KERNEL != 0;
            if is_kernel && sample.visit_id.is_some() && Some(sample.function_id) != own {
                let entry = entries.get(&sample.function_id).cloned();
                *samples.entry(entry).or_default() += 1;
            }
        }
        samples
    };
    let of = |samples: &HashMap<Option<String>, u64>, entry: &str| {
        samples.get(&Some(entry.to_owned())).copied().unwrap_or(0)
    };
    let faults = kernel("mixed", &["3000", "1"]);
    let all: u64 = faults.values().sum();
    assert!(of(&faults, "page fault") > 200, "{faults:?}");
    assert!(of(&faults, "page fault") * 10 > all * 9, "{faults:?}");
    let loops = kernel("short_slow", &["30000"]);
    let all: u64 = loops.values().sum();
    assert_eq!(
        of(&loops, "page fault") + of(&loops, "system call"),
        0,
        "{loops:?}"
    );
    assert!(of(&loops, "interrupt") * 10 >= all * 9, "{loops:?}");
}

/// A probe of another tool, enabled until it is dropped.
struct OtherProbe {
    perf: PathBuf,
    name: String,
    enable: PathBuf,
}

impl OtherProbe {
    fn new(perf: &Path, workload: &Workload, function: &str) -> io::Result<Self> {
        let (group, event) = ("pebs_tests_other", format!("p{}", std::process::id()));
        let name = format!("{group}:{event}");
        // Mounts tracefs, too.
        let added = Command::new(perf)
            .args(["probe", "-q", "-x"])
            .arg(workload.path())
            .args(["--add", &format!("{name}={function}")])
            .output()?;
        assert!(added.status.success(), "{added:?}");
        let events = Path::new("/sys/kernel/tracing/events");
        let enable = events.join(group).join(event).join("enable");
        fs::write(&enable, "1")?;
        Ok(Self {
            perf: perf.to_owned(),
            name,
            enable,
        })
    }
}

impl Drop for OtherProbe {
    fn drop(&mut self) {
        let _ = fs::write(&self.enable, "0");
        let delete = ["probe", "-q", "-d", &self.name];
        let _ = Command::new(&self.perf).args(delete).status();
    }
}

/// The kernel's work at a breakpoint of another tool, in a function that is called beside our marks, is neither
/// pebs-trace's own work nor hidden; without such a breakpoint there is nothing of the kind.
#[test]
fn breakpoints_of_another_tool() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let workload = Workload::build("short_slow_probed");
    for further in [&[][..], &["--call-graph", "fp"]] {
        let record = || {
            let (recording, _) = Recorder::new(&workload.spec("handle(id=*(arg1):u64)"))
                // Far more than a sample costs, on any host: else one follows the other at the same place.
                .args(&["--event", "cpu-clock", "--reset", "250000", "--force"])
                .args(&["--max-loss", "100"])
                .args(further)
                .workload(&workload, &["100000"]);
            let trace = recording.trace();
            let (entries, names) = (trace.kernel_entries(), trace.function_names());
            let own = trace.own_function().expect("marks have samples");
            let mut samples = trace.samples();
            samples.retain(|it| it.visit_id.is_some() && it.flags & SAMPLE_KERNEL != 0);
            let is_probing = |id: &u64| {
                let name = names.get(id).map_or("", String::as_str);
                let by_name = ["uprobe", "swbp", "singlestep"]
                    .iter()
                    .any(|it| name.contains(it));
                by_name || entries.get(id).is_some_and(|it| it == "breakpoint")
            };
            let count =
                |is: &dyn Fn(&u64) -> bool| samples.iter().filter(|it| is(&it.function_id)).count();
            (count(&is_probing), count(&|id| *id == own))
        };
        let (others, own) = record();
        assert!(others == 0 && own > 100, "{others} {own}");
        let other = OtherProbe::new(&perf, &workload, "short_part").unwrap();
        let (others, with_other) = record();
        drop(other);
        assert!(
            others > 100,
            "{others}, {with_other} of its own, alone {own}"
        );
        // Marks are dearer beside single steps, which leave the caches to others.
        assert!(
            with_other < 4 * own,
            "{others}, {with_other} of its own, alone {own}"
        );
    }
}

/// Share of the samples of `regular`'s items in each of its functions, with a standard error from 64 groups of
/// stretches of time.
fn shares(trace: &Trace) -> HashMap<String, (f64, f64)> {
    const GROUPS: usize = 64;
    const STRETCH_NS: i64 = 50_000_000;
    let names = trace.function_names();
    let begins: HashMap<u64, i64> = trace
        .visits()
        .iter()
        .map(|visit| (visit.visit_id, visit.begin_ns))
        .collect();
    let mut groups = vec![HashMap::<String, f64>::new(); GROUPS];
    for row in trace.visit_functions() {
        let name = names.get(&row.function_id).cloned().unwrap_or_default();
        if ["nine", "seven", "four"].contains(&name.as_str()) {
            let group = (begins[&row.visit_id] / STRETCH_NS) as usize % GROUPS;
            *groups[group].entry(name).or_default() += row.samples as f64;
        }
    }
    let whole = |group: &HashMap<String, f64>| group.values().sum::<f64>();
    let all: f64 = groups.iter().map(whole).sum();
    let share = |name: &str| {
        let of = |group: &HashMap<String, f64>| group.get(name).copied().unwrap_or(0.0);
        let share = groups.iter().map(of).sum::<f64>() / all;
        let off = |group: &HashMap<String, f64>| (of(group) - share * whole(group)).powi(2);
        let error = groups.iter().map(off).sum::<f64>().sqrt() / all;
        (name.to_owned(), (share, error))
    };
    ["nine", "seven", "four"].map(share).into()
}

/// Items of equal length, of few lengths and in step with a timer: each function has the share of the samples that it
/// has of the time, as distances between samples vary. Not for distances of a few times what a sample takes: how far
/// these are off is in tests/measurements.md.
#[test]
fn regular_items() {
    need!(machine::root());
    let workload = Workload::build("regular");
    for (args, reset) in [
        (["45000", "450", "1", "0"], Some("150007")),
        (["20000", "300", "5", "0"], Some("100003")),
        (["24000", "300", "1", "100"], Some("100000")),
        (["45000", "450", "1", "0"], None),
    ] {
        let reset = reset.map(|reset| ["--reset", reset]);
        let (recording, truth) = Recorder::new(&workload.spec(super::ID))
            .own_pace()
            .args(&["--event", "cpu-clock", "--force"])
            .args(reset.as_ref().map_or(&[], |it| it.as_slice()))
            .workload(&workload, &args);
        let trace = recording.trace();
        let jitter = &trace.json["jitter"];
        assert_eq!(jitter["percent"].as_f64(), Some(90.0), "{jitter}");
        assert!(jitter["changes"].as_u64() > Some(10), "{jitter}");
        let steps = |name: &str| truth.notes[name] as f64;
        let all: f64 = ["nine", "seven", "four"].map(steps).iter().sum();
        for (name, (share, error)) in shares(&trace) {
            let right = steps(&name) / all;
            let bound = 0.1 * right + 5.0 * error;
            assert!(
                (share - right).abs() < bound,
                "{args:?} {reset:?}: {name} {share:.4} +- {error:.4}, not {right:.4}\n{}",
                recording.tool
            );
        }
    }
}

/// Equal distances, if they are asked for: all are the reset value, and nothing is drawn.
#[test]
fn equal_distances() {
    need!(machine::root());
    let workload = Workload::build("regular");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "200000"])
        .args(&["--jitter", "0", "--force"])
        .workload(&workload, &["200", "20000"]);
    let trace = recording.trace();
    assert!(trace.json["jitter"].is_null(), "{}", trace.json["jitter"]);
    let mut times: Vec<i64> = trace.samples().iter().map(|it| it.time_ns).collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]) as u64);
    // Half of them or more are not delayed by anything.
    let usual = median(gaps.collect());
    assert!((195_000..205_000).contains(&usual), "{usual}");
}

/// The kernel's work at marks is pebs-trace's own, whatever function runs: the entry, the exit, looking for the
/// probe. So a program without system calls has hardly any other kernel work in it: interrupts. With call stacks, no
/// frame is of a function that was entered there.
#[test]
fn kernel_at_marks_is_own() {
    need!(machine::root());
    let workload = Workload::build("short_slow");
    for further in [&[][..], &["--call-graph", "fp"]] {
        let (recording, _) = Recorder::new(&workload.spec("handle(id=*(arg1):u64)"))
            .args(&["--event", "cpu-clock", "--reset", "50000", "--force"])
            .args(&["--max-loss", "100"])
            .args(further)
            .workload(&workload, &["30000"]);
        let trace = recording.trace();
        let own = trace.own_function().expect("marks have samples");
        let names = trace.function_names();
        let samples = trace.samples();
        let in_kernel = samples.iter().filter(|it| it.flags & SAMPLE_KERNEL != 0);
        // Samples outside of items include the start and the end of the program.
        let in_items = in_kernel.filter(|it| it.visit_id.is_some());
        let (at_marks, rest): (Vec<_>, Vec<_>) = in_items.partition(|it| it.function_id == own);
        let others: Vec<_> = rest.iter().map(|it| names.get(&it.function_id)).collect();
        assert!(at_marks.len() > 100, "{} samples", at_marks.len());
        assert!(others.len() * 20 < at_marks.len(), "{others:?}");
        let name = |id: &u64| names.get(id).map_or("", String::as_str);
        for stack in trace.stacks() {
            let at_mark = |id: &&u64| ["asm_exc_int3", "asm_exc_debug"].contains(&name(id));
            let frames = &stack.frames;
            let named: Vec<_> = frames.iter().map(name).collect();
            assert_eq!(frames.iter().find(at_mark), None, "{named:?}");
        }
        let used: HashSet<u64> = rest.iter().map(|it| it.function_id).collect();
        let used: HashSet<&str> = used.iter().map(name).collect();
        for entered_at_marks in ["mtree_load", "exc_int3", "noist_exc_debug"] {
            assert!(!used.contains(entered_at_marks), "{used:?}");
        }
    }
}
