//! `explain` and `diff` on programs with known truth: the first cause is the true one, and the true share of the
//! difference between slow and typical items is within its interval.

#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use pebs_tests::explain::{Cause, Group, explain, whole};
use pebs_tests::process::Signal;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Trace, Wait};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

const ARGUMENTS: &str = "handle(id=*(arg1):u64, kind=*(arg1+8):u32, n=*(arg1+12):u32)";

/// Largest error of a share by marks, samples at the edges and the truth's own clock reads.
const SLACK: f64 = 0.02;

/// Recordings at most until one is undisturbed.
const ATTEMPTS: usize = 5;

/// Records a workload with priority for the CPUs: where preemption makes items slow, a test of other causes is
/// meaningless.
fn record(workload: &str, function: &str, reset: &str, args: &[&str]) -> (Recording, Trace, Truth) {
    let workload = Workload::build(workload);
    let (recording, truth) = Recorder::new(&workload.spec(function))
        .before_others()
        .args(&[
            "--event",
            "cpu-clock",
            "--reset",
            reset,
            "--max-loss",
            "100",
        ])
        .workload(&workload, args);
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    (recording, trace, truth)
}

/// Records `mixed`, with few slow items, repeating the recording if the host made other items slow, which no event
/// shows.
fn record_mixed(args: &[&str]) -> (Recording, Trace, Truth) {
    let attempt = || record("mixed", ARGUMENTS, "50000", args);
    let mut attempts = (1..ATTEMPTS).map(|_| attempt());
    let undisturbed = attempts.find(|(_, trace, _)| is_undisturbed(trace));
    undisturbed.unwrap_or_else(attempt)
}

/// Whether no item was much longer on the CPU than the 99th percentile: items that the program makes slow are similar,
/// and more than 1 %.
fn is_undisturbed(trace: &Trace) -> bool {
    let mut oncpu: Vec<i64> = trace.visits().iter().filter_map(|it| it.oncpu_ns).collect();
    oncpu.sort_unstable();
    oncpu[oncpu.len() - 1] <= 2 * oncpu[oncpu.len() * 99 / 100]
}

/// The true share of a function's time in the gap: its calls in slow items less those in typical ones, per item, by the
/// log. Only their time on the CPU counts, or all of it with `waiting`; pebs-trace's own time does not.
fn true_share(group: Group<'_>, trace: &Trace, truth: &Truth, call: &str, waiting: bool) -> f64 {
    let zero = trace.monotonic_ns();
    let waits = trace.waits();
    let mut sampled: Vec<i64> = trace.samples().iter().map(|it| it.time_ns).collect();
    sampled.sort_unstable();
    let each = trace.json["own_time"]["sample"]["ns"].as_f64();
    let each = each.unwrap_or_else(|| panic!("{:#}", trace.json["own_time"]));
    let mut took: HashMap<u64, i64> = HashMap::new();
    for it in truth.calls.iter().filter(|it| it.name == call) {
        let (enter, leave) = (it.enter as i64 - zero, it.leave as i64 - zero);
        let inside = |wait: &&Wait| enter <= wait.begin_ns && wait.end_ns <= leave;
        let off: i64 = waits.iter().filter(inside).map(Wait::length_ns).sum();
        let before = |time: i64| sampled.partition_point(|it| *it < time);
        let own = (before(leave) - before(enter)) as f64 * each;
        let ns = match waiting {
            true => leave - enter,
            false => leave - enter - off,
        } - own as i64;
        *took.entry(it.item).or_default() += ns;
    }
    let (mut slow, mut typical) = ((0.0, 0.0), (0.0, 0.0));
    for visit in trace.visits() {
        let (is_slow, is_typical) = group.classes(visit.net_ns.unwrap_or(0));
        let ns = took.get(&visit.item_id).copied().unwrap_or(0) as f64;
        for (wanted, sum) in [(is_slow, &mut slow), (is_typical, &mut typical)] {
            if wanted {
                *sum = (sum.0 + ns, sum.1 + 1.0);
            }
        }
    }
    (slow.0 / slow.1 - typical.0 / typical.1) / group.number(&["gap", "gap_ns"])
}

/// The shares of causes, the others and the unexplained sum to 1.
fn sums_to_one(group: Group<'_>) {
    let causes: f64 = group.causes().iter().map(|it| it.share()).sum();
    let rest =
        group.number(&["gap", "others", "share"]) + group.number(&["gap", "unexplained", "share"]);
    assert!((causes + rest - 1.0).abs() < 1e-6, "{:#}", group.0);
}

/// Slow for two reasons, on the CPU and off it: both are found, in their order.
#[test]
fn two_reasons() {
    need!(machine::root());
    let (recording, trace, truth) = record_mixed(&["3000"]);
    let explanation = explain(&recording.dir(), &["--slow", "5x"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let works = true_share(group, &trace, &truth, "rehash", false);
    let sleeps = true_share(group, &trace, &truth, "flush", true);
    let causes = group.causes();
    let place = |kind: &str, part: &str| {
        let is_it = |it: &Cause<'_>| it.kind() == kind && it.name().contains(part);
        let found = causes.iter().position(is_it);
        found.unwrap_or_else(|| panic!("no {part}: {:#}", group.0["gap"]))
    };
    let (rehash, sleep) = (place("function", "rehash"), place("wait", "nanosleep"));
    // If a host takes the CPU away, or timers are slow, sleeps are longer than requested.
    causes[rehash].holds(works, 2.0 * SLACK);
    causes[sleep].holds(sleeps, 2.0 * SLACK);
    let apart = (works - sleeps).abs() > 2.0 * SLACK;
    let in_order = (works > sleeps) == (rehash < sleep);
    assert!(in_order || !apart, "{:#}", group.0["gap"]);
    let because = group.because();
    assert_eq!(because[0]["argument"], "kind", "{because:#?}");
    let text = pebs_trace(["explain".as_ref(), recording.dir().as_os_str()]);
    let head = text.stdout.lines().take(6).collect::<Vec<_>>().join("\n");
    assert!(head.contains("kind=1") && head.contains("rehash"), "{text}");
}

/// Items that go through two functions on two threads, with addresses that are reused: the time in neither matches the
/// log, and the cause of slow items is that the second thread was not ready.
#[test]
fn stages() {
    need!(machine::root());
    let workload = Workload::build("stages");
    let (first, second) = ("admit(id=arg1)", "serve(id=arg1)");
    let (recording, truth) = Recorder::new(&workload.spec(first))
        .args(&["--uprobe", &workload.spec(second), "--event", "cpu-clock"])
        .args(&["--reset", "50000", "--max-loss", "100"])
        .workload(&workload, &["1000"]);
    check::no_mark_lost(&recording.trace());
    let dir = recording.dir().display().to_string();
    let report = pebs_trace(["report", &dir, "--format", "json", "--all"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let stages = &report["stages"];
    assert_eq!(stages["items"], 1000, "{stages:#}");
    let waiting = &stages["stages"][1];
    let times = waiting["waits"].as_f64().unwrap();
    let queued = waiting["waiting"]["mean_ns"].as_f64().unwrap() * times;
    let [least, most] = ["queued_least", "queued_most"].map(|it| truth.notes[it] as f64);
    assert!(
        least <= queued && queued <= most,
        "{queued} ns in no stage, truly {least} to {most}: {stages:#}"
    );
    let explanation = explain(&recording.dir(), &["--slow", "5x", "--all"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let cause = group.first_of_program();
    let carries = cause.share() > 0.9 * group.of_program();
    let found = (cause.kind(), cause.name(), carries);
    assert_eq!(found, ("handover", "serve", true), "{:#}", cause.0);
    let text = pebs_trace(["report", &dir, "--all"]);
    assert!(
        text.stdout.contains("1,000 items through 2 stages"),
        "{text}"
    );
}

/// The sample application of the paper: queries that are not in the cache are computed.
#[test]
fn query_computes() {
    need!(machine::root());
    let function = "process_query(id=*(arg1):u64, n=*(arg1+8):u32)";
    let (recording, trace, truth) = record("query", function, "50000", &["100"]);
    let explanation = explain(&recording.dir(), &["--slow", "10x"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let first = group.first_of_program();
    assert_eq!(first.name(), "f3", "{:#}", group.0["gap"]);
    first.holds(true_share(group, &trace, &truth, "f3", false), SLACK);
    let part = first_own(&group.0["variance"]["parts"]);
    assert_eq!(part["function"]["name"], "f3", "{part:#}");
    one_query(&recording, &truth);
}

/// The first part that is not preemption, which other threads cause.
fn first_own(parts: &Value) -> &Value {
    let mut all = parts.as_array().unwrap().iter();
    all.find(|part| part["kind"] != "preempted")
        .unwrap_or_else(|| panic!("{parts:#}"))
}

/// One item that computed: its time line has the function, and it stands where the truth says.
fn one_query(recording: &Recording, truth: &Truth) {
    let computed = truth.calls.iter().filter(|it| it.name == "f3");
    let longest = computed.max_by_key(|it| it.leave - it.enter).unwrap().item;
    let item = explain(&recording.dir(), &["--item", &longest.to_string()]);
    assert_eq!(item["item_id"], longest);
    assert!(
        item["account"]["rank"].as_u64().unwrap() <= 200,
        "{:#}",
        item["account"]
    );
    let first = first_own(&item["account"]["gap"]["causes"]);
    assert_eq!(first["function"]["name"], "f3", "{first:#}");
    let moments = item["moments"].as_array().unwrap();
    let kinds: Vec<&str> = moments
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"begin"), Some(&"end"))
    );
    let times: Vec<i64> = moments
        .iter()
        .map(|it| it["at_ns"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted() && times[0] == 0, "{times:?}");
}

/// Items that sleep longer than others: time off the CPU is a cause like any other.
#[test]
fn sleepers_sleep() {
    need!(machine::root());
    let (recording, trace, truth) = record("sleeper", ARGUMENTS, "50000", &["400"]);
    let explanation = explain(&recording.dir(), &["--slow", "p80"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let first = group.first_of_program();
    assert_eq!(first.kind(), "wait", "{:#}", group.0["gap"]);
    assert!(first.name().contains("nanosleep"), "{:#}", first.0);
    first.holds(true_share(group, &trace, &truth, "nap", true), 3.0 * SLACK);
    let found = &explanation["probes"][0]["grouped"];
    assert_eq!(found["argument"], "n", "{found:#}");
}

/// More threads than CPUs, and items of equal length on the CPU: the machine is blamed, not the program.
#[test]
fn preempted() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let (recording, _) = Recorder::new(&workload.spec(ARGUMENTS))
        .args(&["--event", "cpu-clock", "--reset", "100000"])
        .workload(&workload, &["8", "60", "3000"]);
    let explanation = explain(&recording.dir(), &["--slow", "p90"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let first = group.first();
    assert_eq!(first.kind(), "preempted", "{:#}", group.0["gap"]);
    // All items have the same CPU time, so that is all there is.
    first.holds(1.0, 5.0 * SLACK);
}

/// A process that is stopped in the middle of some items: that is the cause, and no function's.
#[test]
fn stopped() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let mut target = workload.start(&["1", "500", "2000"]);
    let live = Recorder::new(&workload.spec(ARGUMENTS))
        .args(&["--event", "cpu-clock", "--reset", "100000"])
        .attach(target.process.pid());
    target.go();
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(40));
        target.process.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(60));
        target.process.signal(Signal::CONT);
    }
    let _ = target.finish();
    let explanation = explain(&live.stop().dir(), &["--slow", "10x"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let first = group.first_of_program();
    assert_eq!(
        (first.kind(), first.name()),
        ("stopped", ""),
        "{:#}",
        group.0["gap"]
    );
    assert!(
        first.share() > 0.9 * group.of_program(),
        "{:#}",
        group.0["gap"]
    );
}

/// Items that touch new pages: the cause is the code that does so, including the kernel's, and the counter has their
/// number.
#[test]
fn page_faults() {
    need!(machine::root());
    let (recording, trace, truth) = record_mixed(&["3000", "1"]);
    let explanation = explain(&recording.dir(), &["--slow", "2x"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let kernel = group.number(&["gap", "kernel", "share"]);
    let causes = group.causes();
    let touching = causes.iter().find(|it| it.name() == "touch_pages");
    let found = kernel + touching.map_or(0.0, |it| it.share());
    let counts = group.0["counts"].as_array().unwrap();
    let faults = counts.iter().find(|it| it["count"] == "page_faults");
    let faults = faults.unwrap();
    let (slow, typical) = (
        faults["slow"].as_f64().unwrap(),
        faults["typical"].as_f64().unwrap(),
    );
    let each = trace.json["own_time"]["page_fault"]["ns"].as_f64();
    let counting = (slow - typical) * each.unwrap() / group.number(&["gap", "gap_ns"]);
    let share = true_share(group, &trace, &truth, "touch_pages", false) - counting;
    assert!(
        share > 0.5 && (found - share).abs() < 5.0 * SLACK,
        "{found}, truth {share}\n{:#}",
        group.0
    );
    let first = group.first_of_program();
    let is_kernel = first.0["function"]["kernel"] == true;
    assert!(is_kernel || first.name() == "touch_pages", "{:#}", first.0);
    // Some of the slow ones may have another cause.
    assert!(slow > 250.0 && typical < 1.0, "{faults:#}");
    assert!(
        faults["variance_part"].as_f64().unwrap() > 0.0,
        "{faults:#}"
    );
    let best = &group.because()[0];
    assert_eq!(best["argument"], "kind", "{best:#}");
    // As a sentence: what the kernel does in them is one cause.
    assert_eq!(first.0["function"]["kernel_entry"], "page fault");
    let dir = recording.dir();
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), "--slow=2x".as_ref()]);
    let sentence = explained
        .stdout
        .lines()
        .find(|it| it.starts_with("slow because: page faults "));
    let sentence = sentence.unwrap_or_else(|| panic!("{explained}"));
    let more = format!(" % ({:.0} more each): ", slow - typical);
    assert!(sentence.contains(&more), "{sentence}");
    assert!(!sentence.contains("functions of the kernel"), "{sentence}");
}

/// The firewall of the paper: three kinds of packets with different durations, and the difference is the
/// classification.
#[test]
fn kinds_of_packets() {
    need!(machine::root());
    let workload = need!(Workload::try_build("acl"));
    let spec = workload.spec("classify_packet(id=*(arg1):u64, type=*(arg1+8):u32)");
    let (recording, _) = Recorder::new(&spec)
        .before_others()
        .args(&["--event", "cpu-clock", "--reset", "20000"])
        .workload(&workload, &["9000"]);
    let explanation = explain(&recording.dir(), &["--slow", "p80"]);
    let group = whole(&explanation);
    sums_to_one(group);
    let first = group.first_of_program();
    assert!(
        first.name().contains("rte_acl_classify"),
        "{:#}",
        group.0["gap"]
    );
    assert!(first.share() > 0.5 * group.of_program(), "{:#}", group.0);
    let by_type = explain(&recording.dir(), &["--group-by", "type"]);
    let groups = by_type["probes"][0]["groups"].as_array().unwrap();
    let mut medians: Vec<(String, i64)> = groups
        .iter()
        .map(|it| {
            let value = it["labels"][0]["value"].as_str().unwrap().to_owned();
            (value, it["duration"]["p50_ns"].as_i64().unwrap())
        })
        .collect();
    medians.sort();
    let [a, b, c] = &medians[..] else {
        panic!("{medians:?}")
    };
    assert!(a.1 > b.1 && b.1 > c.1, "{medians:?}");
}

/// Two builds: the one that works longer fails, the same one does not.
#[test]
fn builds_compared() {
    need!(machine::root());
    // Items last until their thread has had so much CPU time, pebs-trace's own included: a few samples each, so that
    // what a sample costs in one run and in another hardly changes what is left.
    let runs = ["400", "400", "800"].map(|us| {
        let (recording, _, _) = record("threads", ARGUMENTS, "500000", &["1", "2000", us]);
        recording
    });
    let diff = |before: &Recording, after: &Recording| {
        let (before, after) = (before.dir(), after.dir());
        let limit = ["--fail-above".as_ref(), "30%".as_ref()];
        pebs_trace(
            ["diff".as_ref(), before.as_os_str(), after.as_os_str()]
                .into_iter()
                .chain(limit),
        )
    };
    let same = diff(&runs[0], &runs[1]);
    assert_eq!(same.code(), Some(0), "{same}");
    assert!(
        same.stdout.contains("nothing grew by more than 30 %"),
        "{same}"
    );
    let slower = diff(&runs[0], &runs[2]);
    assert_eq!(slower.code(), Some(3), "{slower}");
    // If a host takes the CPUs away, the time on them is too uncertain: a few items have a lot of it.
    let verdict = slower
        .stdout
        .lines()
        .find(|it| it.trim_start().starts_with("limit"));
    assert!(verdict.is_some_and(|it| it.contains("p50")), "{slower}");
    let faster = diff(&runs[2], &runs[0]);
    assert_eq!(faster.code(), Some(0), "{faster}");
}
