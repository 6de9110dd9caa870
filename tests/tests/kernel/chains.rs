//! Whom waits waited for, down to the last link.

use std::collections::BTreeMap;

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, skip};
use serde_json::Value;

/// Items of a run; every tenth waits.
const ITEMS: &str = "300";

/// Items whose chain may be off: the machine has other work, too.
const OFF: usize = 2;

/// Last links of the chains below these links, by what they did: ns.
type Ends = BTreeMap<(Vec<String>, String), f64>;

/// Expected end of the chain of each item that waits.
struct Expected {
    mode: &'static str,
    /// The links, outermost first.
    links: &'static [&'static str],
    /// Activity of the last of them: begins of words. Threads that take a CPU are any that run beside.
    did: &'static [&'static str],
    /// The same in the log.
    call: &'static str,
    /// Words of the answer.
    says: &'static str,
}

/// The elements of a list; none where there is none.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Adds the last links of a wait of this length.
fn add_ends(waited_for: &Value, ns: f64, links: &[String], ends: &mut Ends) {
    for link in list(&waited_for["links"]) {
        let name = link["name"].as_str().unwrap_or("?").to_owned();
        let links: Vec<String> = links.iter().cloned().chain([name]).collect();
        let on_cpu = number(&link["on_cpu"]);
        *ends.entry((links.clone(), "ran".to_owned())).or_default() += on_cpu * ns;
        let off_cpu = list(&link["doing"]);
        for doing in off_cpu.filter(|it| it["kind"] != "ran") {
            let part = number(&doing["part"]);
            let next = &doing["waited_for"];
            if next["links"].as_array().is_some_and(|it| !it.is_empty()) {
                add_ends(next, ns, &links, ends);
                continue;
            }
            let did = match doing["kind"].as_str().unwrap_or("?") {
                "preempted" => format!("by {}", doing["by"].as_str().unwrap_or("?")),
                kind => kind.to_owned(),
            };
            *ends.entry((links.clone(), did)).or_default() += part * ns;
        }
    }
}

/// Time of calls of this name within an item, ns.
fn within(truth: &Truth, item: u64, name: &str) -> f64 {
    let of = truth.item(item);
    let (from, to) = (of.enter.unwrap_or(0), of.leave.unwrap_or(0));
    let calls = truth.calls.iter().filter(|it| it.name == name);
    let overlap = calls.map(|it| it.leave.min(to).saturating_sub(it.enter.max(from)));
    overlap.sum::<u64>() as f64
}

fn chains_are_right(expected: &Expected) -> Recording {
    let workload = Workload::build("chains");
    let args = [expected.mode, ITEMS];
    let alone = workload.run(&args);
    let (recording, truth) =
        Recorder::new(&workload.spec("handle(id=*(arg1+0), name=str(*(arg1+16)))"))
            .before_others()
            // As often as the budget would, or interrupts take a part of every wait.
            .args(&["--with", "waits", "--reset", "250000"])
            .workload(&workload, &args);
    check::unharmed(&recording, &alone);
    let dir = recording.dir();
    let links: Vec<String> = expected.links.iter().map(|it| (*it).to_owned()).collect();
    let (mut off, mut errors) = (Vec::new(), Vec::new());
    let waiting = truth
        .ids()
        .into_iter()
        .filter(|id| *id <= 300 && id % 10 == 0);
    for item in waiting {
        let id = item.to_string();
        let said = pebs_trace([
            "explain".as_ref(),
            dir.as_os_str(),
            "--item".as_ref(),
            id.as_ref(),
            "--format".as_ref(),
            "json".as_ref(),
        ]);
        let said: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        let mut ends = Ends::new();
        for moment in list(&said["moments"]) {
            if moment["waited_for"].is_object() {
                let ns = number(&moment["ns"]);
                add_ends(&moment["waited_for"], ns, &[], &mut ends);
            }
        }
        let mut found = 0.0;
        for ((of, did), ns) in &ends {
            if *of == links && expected.did.iter().any(|it| did.starts_with(it)) {
                found += ns;
            }
        }
        let wanted = within(&truth, item, expected.call);
        errors.push((found - wanted).abs() / wanted);
        // Its begin and end are those of the call, not of the time off the CPU within it.
        if (found - wanted).abs() > (0.05 * wanted).max(200e3) {
            off.push((item, found, wanted, ends));
        }
    }
    errors.sort_by(f64::total_cmp);
    let percent = |place: usize| errors[place] * 100.0;
    println!(
        "{}: {} waits, off by {:.2} % in the middle, {:.2} % at most",
        expected.mode,
        errors.len(),
        percent(errors.len() / 2),
        percent(errors.len() - 1)
    );
    assert!(off.len() <= OFF, "{}: {off:#?}", expected.mode);
    let said = pebs_trace([
        "explain".as_ref(),
        dir.as_os_str(),
        "--slow=1ms".as_ref(),
        "--group-by=name".as_ref(),
    ]);
    let joined = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(expected.says), "{said}");
    recording
}

/// An item waits for the lock of another one, which waits for the lock of a thread that sleeps.
#[test]
fn nested_locks() {
    need!(machine::root());
    let recording = chains_are_right(&Expected {
        mode: "nested",
        links: &["handle", "flusher"],
        did: &["waited"],
        call: "flusher",
        says: "waited for thread flusher, which slept in",
    });
    // Arrows in Perfetto, from the items that hold the lock.
    let dir = recording.dir();
    let file = dir.with_extension("perfetto");
    let said = pebs_trace([
        "export".as_ref(),
        dir.as_os_str(),
        "--to".as_ref(),
        "perfetto".as_ref(),
        "-o".as_ref(),
        file.as_os_str(),
    ]);
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}: {said}"));
    let arrows = bytes.windows(12).filter(|it| it == b"wakes thread").count();
    assert!(arrows >= 29, "{arrows} of 30");
}

/// An item waits in a queue for items that take the same lock one after the other.
#[test]
fn convoy() {
    need!(machine::root());
    let _ = chains_are_right(&Expected {
        mode: "convoy",
        links: &["handle"],
        did: &["ran", "by "],
        call: "update",
        says: "waited for items with name=update",
    });
}

/// The holder of a lock loses its CPU to a thread that comes first there.
#[test]
fn priority_inversion() {
    need!(machine::root());
    let _ = chains_are_right(&Expected {
        mode: "inversion",
        links: &["handle"],
        did: &["by hog"],
        call: "hog",
        says: "while those waited for a CPU, taken by hog",
    });
}

/// A thread that serves no item works for one.
#[test]
fn thread_pool() {
    need!(machine::root());
    let _ = chains_are_right(&Expected {
        mode: "pool",
        links: &["pool"],
        did: &["ran", "by "],
        call: "pool",
        says: "waited for thread pool",
    });
}

/// A lock is held from one item to the next, and its thread sleeps in between.
#[test]
fn held_between_items() {
    need!(machine::root());
    let _ = chains_are_right(&Expected {
        mode: "between",
        links: &["other0"],
        did: &["waited"],
        call: "between",
        says: "waited for thread other0",
    });
}

/// An item waits for the answer of another thread through a pipe.
#[test]
fn answer_by_pipe() {
    need!(machine::root());
    let _ = chains_are_right(&Expected {
        mode: "pipe",
        links: &["server"],
        did: &["waited"],
        call: "server",
        says: "waited for thread server",
    });
}

/// Records chains with default options and these; the trace's content of `waits` is checked by the caller.
fn by_default(mode: &str, items: &str, args: &[&str]) -> Recording {
    let workload = Workload::build("chains");
    let spec = workload.spec("handle(id=*(arg1+0), name=str(*(arg1+16)))");
    let recorder = Recorder::new(&spec).own_pace().before_others();
    let (recording, _) = recorder
        .args(&["--event", "cpu-clock"])
        .args(args)
        .workload(&workload, &[mode, items]);
    recording
}

/// Without a word it is recorded who ends waits once items were seen to wait; the holder of a lock is named, and nothing is
/// claimed about waits before. `--with none` prevents it.
#[test]
fn holders_by_default() {
    need!(machine::root());
    let recording = by_default("nested", "3000", &[]);
    let trace = recording.trace();
    let waits = &trace.json["waits"];
    let said = waits["why"].as_str().unwrap_or_default();
    let from = waits["from_ns"].as_i64();
    let from = from.unwrap_or_else(|| panic!("{waits:#}\n{}", recording.tool));
    assert!(from >= 1_000_000_000, "{waits:#}");
    assert!(recording.tool.stderr.contains(said), "{}", recording.tool);
    for wait in trace.waits() {
        let is_known = wait.woken_by.is_some() || wait.runnable_ns.is_some();
        assert!(!is_known || wait.end_ns >= from, "{wait:?}");
    }
    let others = trace.table("other_waits");
    let ends: Vec<_> = others.i64("end_ns").into_iter().flatten().collect();
    assert!(!ends.is_empty(), "{}", recording.tool);
    assert!(ends.iter().all(|end| *end >= from), "{ends:?}");
    let dir = recording.dir();
    let told = |command: &str, args: &[&str]| {
        let words = [command.as_ref(), dir.as_os_str()].into_iter();
        let said = pebs_trace(words.chain(args.iter().map(AsRef::as_ref)));
        said.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let explained = told("explain", &["--slow=1ms", "--group-by=name"]);
    for text in [
        "waited for thread flusher, which slept in",
        "who ended waits is known from",
    ] {
        assert!(explained.contains(text), "{explained}");
    }
    let info = told("info", &[]);
    assert!(info.contains("who ends them is recorded from"), "{info}");

    let recording = by_default("nested", "1500", &["--with", "none"]);
    let trace = recording.trace();
    assert!(trace.json["waits"].is_null(), "{}", recording.tool);
    assert!(trace.waits().iter().all(|it| it.woken_by.is_none()));
    assert!(trace.table("other_waits").is_empty());
}

/// Items that hardly wait have no such records.
#[test]
fn none_where_nothing_waits() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .own_pace()
        .before_others()
        .args(&["--event", "cpu-clock"])
        .workload(&workload, &["1", "1000", "3000"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let waits = &trace.json["waits"];
    if waits["from_ns"].is_i64() {
        skip!("items lost their CPU too often: {}", waits["why"]);
    }
    assert_eq!(trace.json["cost"]["encounters"], 0, "{waits:#}");
    assert!(trace.json["duration_ns"].as_i64() > Some(1_000_000_000));
    let why = waits["why"].as_str().unwrap_or_default();
    assert!(why.contains("not recorded, as"), "{waits:#}");
}
