//! Events counted for each item (`--count`), against the workload's log.

use std::collections::HashMap;

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Count, Trace, Visit, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Events with known counts, in the order of the columns of [`Counts::of`].
const EVENTS: &str = "mem:hit:x,page-faults,cpu-migrations,context-switches,task-clock";

/// Counts by visit, in the order of the events.
struct Counts(HashMap<u64, Vec<Count>>);

impl Counts {
    fn of(trace: &Trace) -> Self {
        let mut by_visit: HashMap<u64, Vec<Count>> = HashMap::new();
        for row in trace.counts() {
            by_visit.entry(row.visit_id).or_default().push(row);
        }
        for rows in by_visit.values_mut() {
            rows.sort_by_key(|row| row.event);
        }
        Self(by_visit)
    }

    /// Exact counts of a visit; `None` if unknown. A kernel that runs no eBPF program over some of its own tasks does
    /// not report when a thread took the CPU from such a task: what it did then is unknown.
    fn exact(&self, visit: &Visit) -> Option<Vec<u64>> {
        let rows = &self.0[&visit.visit_id];
        let known = |row: &Count| {
            assert_eq!(row.item_id, visit.item_id);
            assert_eq!(row.enabled_ns, row.running_ns, "{row:?}");
            assert_eq!(row.count.is_some(), row.state == "exact", "{row:?}");
            row.count
        };
        rows.iter().map(known).collect()
    }

    /// Whether most of these visits have known counts.
    fn are_known(&self, visits: &[Visit]) -> bool {
        let known = visits.iter().filter(|visit| self.exact(visit).is_some());
        let known = known.count();
        println!("{known} of {} visits are known", visits.len());
        5 * known > 4 * visits.len()
    }
}

/// Lines of the log under a name, by item.
fn logged<'a>(truth: &'a Truth, name: &'a str) -> HashMap<u64, (u64, u64)> {
    let calls = truth.calls.iter().filter(|call| call.name == name);
    calls
        .map(|call| (call.item, (call.enter, call.leave)))
        .collect()
}

fn record(specs: &[&str], args: &[&str], run: &[&str]) -> (Recording, Trace, Truth) {
    let workload = Workload::build("counted");
    let specs: Vec<String> = specs.iter().map(|spec| workload.spec(spec)).collect();
    let more = specs[1..]
        .iter()
        .flat_map(|spec| ["--uprobe", spec.as_str()]);
    let more: Vec<&str> = more.chain(args.iter().copied()).collect();
    let (recording, truth) = Recorder::new(&specs[0])
        .args(&more)
        .workload(&workload, run);
    let trace = recording.trace();
    (recording, trace, truth)
}

/// Counts of breakpoints, faults and migrations equal those of the item, whatever other threads do meanwhile and
/// whoever else hits the breakpoint; events in nested visits count for one of them only.
#[test]
fn nested_and_migrated() {
    need!(machine::root());
    let specs = ["handle(id=*(arg1):u64)", "inner(id=*(arg1):u64)"];
    let (_, trace, truth) = record(&specs, &["--count", EVENTS], &["200"]);
    check::no_mark_lost(&trace);
    let counts = Counts::of(&trace);
    let [hits, pages, moves] = ["hits", "pages", "moves"].map(|name| logged(&truth, name));
    let (cpu, switches) = (logged(&truth, "cpu"), logged(&truth, "switches"));
    let visits = trace.visits();
    assert_eq!(visits.len(), 250);
    assert!(counts.are_known(&visits));
    for visit in &visits {
        let (item, Some(of)) = (visit.item_id, counts.exact(visit)) else {
            continue;
        };
        let expected = [hits[&item].1, pages[&item].1, moves[&item].1];
        assert_eq!(of[..3], expected, "{visit:?}");
        assert_eq!(Some(of[1]), visit.page_faults, "{visit:?}");
        assert_eq!(Some(of[3]), visit.switches, "{visit:?}");
        let oncpu_ns = visit.oncpu_ns.expect("switches are recorded");
        assert_eq!(of[4], oncpu_ns as u64, "{of:?} {visit:?}");
        // An outer visit does not have the events of the nested ones.
        if item % 4 != 3 {
            let (within, around) = switches[&item];
            assert!(
                (within..=around).contains(&of[3]),
                "{of:?} {within}..{around} {visit:?}"
            );
        }
    }
    // Compared in sum: the host takes the CPU away from some, which thread clocks do not see.
    let alone = |visit: &&Visit| visit.item_id < 1_000_000 && visit.item_id % 4 != 3;
    let sums = visits.iter().filter(alone).filter_map(|visit| {
        let (within, around) = cpu[&visit.item_id];
        Some([within, counts.exact(visit)?[4], around])
    });
    let sum = sums.fold([0; 3], |sum, one| [0, 1, 2].map(|n| sum[n] + one[n]));
    assert!(
        sum[0] * 9 / 10 <= sum[1] && sum[1] <= sum[2] * 11 / 10,
        "{sum:?}"
    );
    let names: Vec<&str> = trace.json["counted"]
        .as_array()
        .expect("counted")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names.join(","), EVENTS);
}

/// Requests of an event loop have their own events, not those of the loop or of others in between.
#[test]
fn overlapping() {
    need!(machine::root());
    let workload = Workload::build("counted");
    let resume = workload.spec("go_on(id=*(arg1):u64)");
    let args = ["--resume", &resume, "--count", EVENTS];
    let specs = ["begin_item(id=arg1)..end_item(id=arg1)"];
    let (_, trace, truth) = record(&specs, &args, &["60", "1"]);
    check::whole_visits(&trace, &truth);
    let counts = Counts::of(&trace);
    let [hits, pages, moves] = ["hits", "pages", "moves"].map(|name| logged(&truth, name));
    let visits = trace.visits();
    assert!(counts.are_known(&visits));
    // The first takes the faults of code that runs for the first time.
    for visit in visits.iter().filter(|it| it.item_id > 0) {
        let (item, Some(of)) = (visit.item_id, counts.exact(visit)) else {
            continue;
        };
        let expected = [hits[&item].1, pages[&item].1, moves[&item].1];
        assert_eq!(of[..3], expected, "{visit:?}");
    }
}

/// Items of a trace are rows to `mine`; a trace without counts is an error.
#[test]
fn mined() {
    need!(machine::root());
    let (_kept, trace, _) = record(&["handle(id=*(arg1):u64)"], &["--count", EVENTS], &["200"]);
    let dir = trace.dir.to_str().expect("a path of ours");
    let done = pebs_trace(["mine", dir, "--format", "json"]);
    assert_eq!(done.code(), Some(0), "{done}");
    let json: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(json["outcome"], "net_ns", "{done}");
    assert_eq!(json["rows"], 200, "{done}");
    let (_kept, trace, _) = record(&["handle(id=*(arg1):u64)"], &[], &["20"]);
    let dir = trace.dir.to_str().expect("a path of ours");
    let done = pebs_trace(["mine", dir]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("no events were counted in"), "{done}");
    assert!(done.stderr.contains("--count auto"), "{done}");
}

/// The query of the guide returns the counts of each visit.
#[test]
fn query_of_the_guide() {
    need!(machine::root());
    let python = need!(machine::python(&["duckdb"]));
    let guide = include_str!("../../../pebs-user/guide/counts.md");
    let query = guide.split("```sql views\n").nth(1).expect("a query");
    let query = query.split("```").next().expect("its end");
    let specs = ["handle(id=*(arg1):u64)"];
    let (recording, trace, _) = record(&specs, &["--count", "page-faults"], &["50"]);
    let counts = Counts::of(&trace).0;
    let visits = trace.visits();
    let of_item = |visit: &Visit| (visit.item_id, counts[&visit.visit_id][0].count);
    let expected: HashMap<u64, Option<u64>> = visits.iter().map(of_item).collect();
    let answer = recording.query(&python, query);
    let row = |row: &serde_json::Value| (row[0].as_u64().expect("an item"), row[2].as_u64());
    let rows: HashMap<u64, Option<u64>> =
        answer.as_array().expect("rows").iter().map(row).collect();
    assert_eq!(rows, expected);
}

/// A visit that serves several items has one count of all it did.
#[test]
fn batched() {
    need!(machine::root());
    let specs = ["serve(ids=arg2[arg3]:u64)"];
    let (_, trace, truth) = record(&specs, &["--count", EVENTS], &["100", "4"]);
    check::whole_visits(&trace, &truth);
    let counts = Counts::of(&trace);
    let [hits, pages, moves] = ["hits", "pages", "moves"].map(|name| logged(&truth, name));
    let visits = trace.visits();
    assert!(visits.iter().all(|it| it.has(flag::SHARED)));
    assert!(counts.are_known(&visits));
    for visit in visits.iter().filter(|it| it.item_id > 1) {
        let (batch, Some(of)) = (visit.item_id, counts.exact(visit)) else {
            continue;
        };
        let expected = [hits[&batch].1, pages[&batch].1, moves[&batch].1];
        assert_eq!(of[..3], expected, "{visit:?}");
    }
}

/// Without a mark for which of several requests the thread continued, its events are no request's: unknown, not 0.
#[test]
fn overlapping_without_resume() {
    need!(machine::root());
    let specs = ["begin_item(id=arg1)..end_item(id=arg1)"];
    let (_, trace, truth) = record(&specs, &["--count", EVENTS], &["60", "1"]);
    check::whole_visits(&trace, &truth);
    let rows = trace.counts();
    assert_eq!(rows.len(), 60 * 5);
    for row in rows {
        assert_eq!((row.count, &*row.state), (None, "unknown"), "{row:?}");
    }
}

/// For an item that another thread ends, the counts of its own thread are known if that was off the CPU meanwhile, else
/// unknown; never wrong.
#[test]
fn ended_elsewhere() {
    need!(machine::root());
    let specs = ["begin_item(id=arg1)..end_item(id=arg1)"];
    let events = ["--count", "mem:hit:x,page-faults"];
    let (_, trace, truth) = record(&specs, &events, &["100", "2"]);
    check::whole_visits(&trace, &truth);
    let (hits, pages) = (logged(&truth, "hits"), logged(&truth, "pages"));
    let mut known = 0;
    // The first takes the faults of code that runs for the first time.
    for row in trace.counts().iter().filter(|row| row.item_id > 0) {
        let truth = [&hits, &pages][row.event as usize][&row.item_id].1;
        match &*row.state {
            "exact" => {
                assert_eq!(row.count, Some(truth), "{row:?}");
                known += 1;
            }
            state => assert_eq!((state, row.count), ("unknown", None)),
        }
    }
    let elsewhere = trace
        .visits()
        .iter()
        .filter(|it| it.has(flag::ENDED_ELSEWHERE))
        .count();
    assert_eq!(elsewhere, 100);
    assert!(
        known > 0,
        "the thread that began waits for the other, mostly"
    );
}

/// A call that never returns ends when the thread is seen outside of it: the events up to there are not all its own,
/// and the next visit may have some of them. Neither count is called exact unless it is.
#[test]
fn unwound() {
    need!(machine::root());
    let specs = ["handle(id=*(arg1):u64)", "inner(id=*(arg1):u64)"];
    let events = ["--count", "mem:hit:x"];
    let (_, trace, truth) = record(&specs, &events, &["100", "3"]);
    let hits = logged(&truth, "hits");
    let visits: HashMap<u64, Visit> = trace
        .visits()
        .into_iter()
        .map(|it| (it.visit_id, it))
        .collect();
    let mut whole = 0;
    for row in trace.counts() {
        let visit = &visits[&row.visit_id];
        if !visit.has(flag::UNWOUND) && row.state == "exact" {
            assert_eq!(row.count, Some(hits[&row.item_id].1), "{row:?} {visit:?}");
            whole += 1;
        }
    }
    assert!(whole >= 75, "{whole}");
}

/// Modes, groups and repeated options: in user mode, in the kernel and both.
#[test]
fn modes_and_groups() {
    need!(machine::root());
    let events = [
        "--count",
        "{page-faults:u,page-faults:k}",
        "--count",
        "faults,mem:hit:x:k",
    ];
    let (_, trace, truth) = record(&["handle(id=*(arg1):u64)"], &events, &["100"]);
    check::whole_visits(&trace, &truth);
    let counts = Counts::of(&trace);
    let pages = logged(&truth, "pages");
    let visits = trace.visits();
    assert!(counts.are_known(&visits));
    for visit in visits.iter().filter(|it| it.item_id % 4 != 3) {
        let Some(of) = counts.exact(visit) else {
            continue;
        };
        let touched = pages[&visit.item_id].1;
        assert_eq!(of[0], touched, "{visit:?}");
        assert_eq!(of[0] + of[1], of[2], "{visit:?}");
        assert_eq!(of[3], 0, "nothing of user space is executed in the kernel");
    }
    let groups: Vec<u64> = trace.json["counted"]
        .as_array()
        .expect("counted")
        .iter()
        .filter_map(|it| it["group"].as_u64())
        .collect();
    assert_eq!(groups, [0, 0, 1, 2]);
}

/// After lost marks the counts are unknown.
#[test]
fn lost_marks() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let spec = workload.spec(super::ID);
    let (recording, _) = Recorder::new(&spec)
        .args(&["--count", "page-faults,context-switches"])
        .with_loss(&workload, &["20000"]);
    let trace = recording.trace_with_loss();
    let visits: HashMap<u64, Visit> = trace
        .visits()
        .into_iter()
        .map(|it| (it.visit_id, it))
        .collect();
    let (mut exact, mut unknown) = (0, 0);
    for row in trace.counts() {
        match &*row.state {
            "exact" => exact += 1,
            state => {
                unknown += 1;
                assert_eq!((state, row.count), ("unknown", None), "{row:?}");
            }
        }
        if visits[&row.visit_id].has(flag::LOSS) {
            assert_eq!(row.state, "unknown", "{row:?}");
        }
    }
    assert!(unknown > 0, "{exact} of {} are exact", visits.len());
}

/// A recording without `--count` has no counts.
#[test]
fn not_asked_for() {
    need!(machine::root());
    let (_, trace, _) = record(&["handle(id=*(arg1):u64)"], &[], &["20"]);
    assert!(trace.counts().is_empty());
    assert!(trace.json["counted"].is_null());
}
