//! Two and more events of a run, side by side: page faults and breakpoints, each of which is a sample, beside the time by a
//! clock, against the workload's log.

use std::collections::HashMap;

use pebs_tests::explain::{Group, explain, whole};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Trace, Visit, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};
use serde_json::Value;

const ITEMS: &str = "400";

const FAULTS: &str = "page-faults";

const HITS: &str = "mem:hit:x";

/// Events of a function by item, by the name of the event.
type Logged = HashMap<(&'static str, &'static str), HashMap<u64, u64>>;

fn logged(truth: &Truth) -> Logged {
    let of = |event, function: &'static str| {
        let calls = truth.calls.iter().filter(|call| call.name == function);
        let by_item = calls.map(|call| (call.item, call.leave)).collect();
        ((event, function), by_item)
    };
    [(FAULTS, "lookup"), (FAULTS, "touch"), (HITS, "hit")]
        .map(|(event, function)| of(event, function))
        .into()
}

fn record(more: &[&str]) -> (Recording, Trace, Logged) {
    let workload = Workload::build("misses");
    let hits = format!("mem:{}:hit:x/period=1/", workload.path().display());
    let events = [
        "-e",
        "cpu-clock",
        "-e",
        "page-faults/period=1/",
        "-e",
        &hits,
    ];
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&events)
        .args(&["--reset", "100000"])
        .args(more)
        .workload(&workload, &[ITEMS]);
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    (recording, trace, logged(&truth))
}

/// Mean of a function's events over these visits, by the log.
fn mean(logged: &HashMap<u64, u64>, visits: &[&Visit]) -> f64 {
    let sum: u64 = visits.iter().map(|it| logged[&it.item_id]).sum();
    sum as f64 / visits.len() as f64
}

/// The slow and the typical visits of a section of a report, by its limits.
fn classes(
    visits: &[Visit],
    is_slow: impl Fn(i64) -> bool,
    is_typical: impl Fn(&Visit, i64) -> bool,
) -> [Vec<&Visit>; 2] {
    let net = |visit: &Visit| visit.net_ns.unwrap_or(0);
    let slow = visits.iter().filter(|it| is_slow(net(it))).collect();
    let typical = visits.iter().filter(|it| is_typical(it, net(it))).collect();
    [slow, typical]
}

/// Those of which more than their durations are known.
fn with_details(mut visits: Vec<&Visit>) -> Vec<&Visit> {
    visits.retain(|it| !it.has(flag::CONDENSED));
    visits
}

/// Number of an event in the lists of a report or an explanation.
fn place(value: &Value, event: &str) -> usize {
    let events = value["further_events"].as_array();
    let events = events.map_or(&[][..], Vec::as_slice);
    let at = events.iter().position(|it| {
        let name = it["name"].as_str().unwrap_or_default();
        name.starts_with(event) || event.starts_with("mem:") && name.starts_with("mem:")
    });
    let at = at.unwrap_or_else(|| panic!("no {event} among {events:?}"));
    assert_eq!(events[at]["every_one"], true, "{}", events[at]);
    at
}

/// The row of a function in any of these lists.
fn row<'a>(lists: &[&'a Value], function: &str) -> &'a Value {
    let rows = lists.iter().filter_map(|it| it.as_array()).flatten();
    let mut found = rows.filter(|it| it["function"]["name"] == function);
    found
        .next()
        .unwrap_or_else(|| panic!("no {function} in {lists:?}"))
}

fn same(value: &Value, expected: f64, what: &str) {
    let found = value.as_f64().unwrap_or_else(|| panic!("no {what}"));
    assert!(
        (found - expected).abs() <= 1e-9 * expected.max(1.0),
        "{what}: {found} for {expected}"
    );
}

fn report(recording: &Recording) -> Value {
    let dir = recording.dir().display().to_string();
    let done = pebs_trace(["report", &dir, "--format", "json", "--top", "40"]);
    assert_eq!(done.code(), Some(0), "{done}");
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}\n{done}"))
}

/// The report's numbers of each function are those of the log: of all visits, slow and typical ones.
fn check_report(report: &Value, logged: &Logged, visits: &[Visit]) {
    let probe = &report["probes"][0];
    let from = probe["slow"]["from_ns"].as_i64().unwrap_or(i64::MAX);
    let bound = |key: &str| probe["typical"][key].as_i64().unwrap_or(i64::MAX);
    let (least, most) = (bound("from_ns"), bound("up_to_ns"));
    let kept = report["run"]["keep"].is_null();
    let typical = |visit: &Visit, net: i64| match kept {
        true => net < from && (least..=most).contains(&net),
        false => visit.has(flag::CONDENSED),
    };
    let [slow, typical] = classes(visits, |net| net >= from, typical);
    assert_eq!(probe["slow"]["visits"], slow.len());
    assert_eq!(probe["typical"]["visits"], typical.len());
    let slow = with_details(slow);
    let all: Vec<&Visit> = visits.iter().collect();
    for ((event, function), by_item) in logged {
        let at = place(report, event);
        let row = row(&[&probe["largest"], &probe["spread"]], function);
        let cells = &row["further"][at];
        let sum: u64 = by_item.values().sum();
        same(&cells["events"], sum as f64, "events");
        for (class, visits) in [("all", &all), ("slow", &slow), ("typical", &typical)] {
            let what = format!("{event} of {function} in {class} visits");
            same(&cells[class]["per_visit"], mean(by_item, visits), &what);
        }
        let of_event = logged.iter().filter(|((it, _), _)| it == event);
        let whole: u64 = of_event.flat_map(|(_, of)| of.values()).sum();
        same(&cells["all"]["share"], sum as f64 / whole as f64, "share");
    }
    // Time is beside them.
    let lookup = row(&[&probe["largest"], &probe["spread"]], "lookup");
    assert!(lookup["all"]["per_visit"].as_f64() > Some(0.0), "{lookup}");
    assert_eq!(lookup["unit"], "ns");
}

/// Those of an explanation, of slow and typical items.
fn check_explanation(explained: &Value, logged: &Logged, [slow, typical]: [&[&Visit]; 2]) {
    let group = whole(explained);
    assert_eq!(group.number(&["slow", "items"]) as usize, slow.len());
    assert_eq!(group.number(&["typical", "items"]) as usize, typical.len());
    let slow = &with_details(slow.to_vec())[..];
    let gap = &group.0["gap"];
    for ((event, function), by_item) in logged {
        let at = place(explained, event);
        let figures = &row(&[&gap["causes"], &gap["with_events"]], function)["further"][at];
        let means = [mean(by_item, slow), mean(by_item, typical)];
        let what = format!("{event} of {function}");
        same(&figures["slow"], means[0], &what);
        same(&figures["typical"], means[1], &what);
        same(&figures["excess"], means[0] - means[1], &what);
    }
    let at = place(explained, FAULTS);
    let of_event = logged.iter().filter(|((it, _), _)| *it == FAULTS);
    let all: f64 = of_event.map(|(_, of)| mean(of, slow)).sum();
    same(&group.0["further"][at]["slow"], all, "all faults");
}

fn limits(group: Group<'_>) -> impl Fn(i64) -> (bool, bool) + '_ {
    move |net| group.classes(net)
}

/// Functions with time and events, with time alone and with events alone stand in one table, with the numbers of the log.
#[test]
fn beside_time() {
    need!(machine::root());
    let (recording, trace, logged) = record(&[]);
    let visits = trace.visits();
    check_report(&report(&recording), &logged, &visits);
    // Samples of page faults and breakpoints take far less than a clock's: an item works for 60 us and more.
    let lasts = |it: &&Visit| it.net_ns.is_none_or(|net| net > 40_000);
    let long = visits.iter().filter(lasts).count();
    assert!(long * 20 >= visits.len() * 19, "{long} of {}", visits.len());
    let explained = explain(&recording.dir(), &["--top", "40"]);
    let class = limits(whole(&explained));
    let [slow, typical] = classes(&visits, |net| class(net).0, |_, net| class(net).1);
    check_explanation(&explained, &logged, [&slow, &typical]);
    // One item alone.
    let item = slow
        .iter()
        .max_by_key(|it| logged[&(FAULTS, "lookup")][&it.item_id]);
    let item = item.expect("a slow item").item_id;
    let one = explain(&recording.dir(), &["--item", &item.to_string()]);
    let gap = &one["account"]["gap"];
    let figures = &row(&[&gap["causes"], &gap["with_events"]], "lookup")["further"];
    let faults = &figures[place(&one, FAULTS)];
    same(
        &faults["slow"],
        logged[&(FAULTS, "lookup")][&item] as f64,
        "its faults",
    );
    // The text has the columns.
    let dir = recording.dir().display().to_string();
    for command in ["report", "explain"] {
        let done = pebs_trace([command, &dir]);
        let title = done
            .stdout
            .lines()
            .any(|line| line.contains(FAULTS) && line.contains("typical"));
        assert!(title, "{done}");
    }
}

/// The same where only slow items were kept: typical ones are in the sums over all.
#[test]
fn beside_time_of_kept_items() {
    need!(machine::root());
    let (recording, trace, logged) = record(&["--keep", "slow", "--slow", "5ms"]);
    let visits = trace.visits();
    check_report(&report(&recording), &logged, &visits);
    let explained = explain(&recording.dir(), &["--slow", "5ms", "--top", "40"]);
    let class = limits(whole(&explained));
    let condensed = |visit: &Visit, _| visit.has(flag::CONDENSED);
    let [slow, typical] = classes(&visits, |net| class(net).0, condensed);
    check_explanation(&explained, &logged, [&slow, &typical]);
}
