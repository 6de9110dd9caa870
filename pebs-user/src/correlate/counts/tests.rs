//! Lines of counts are `count N [cpu=N]` and come before the mark or switch at their time; `no turn` and `part` are
//! counts of an event that is multiplexed.

use super::super::tests::{OPTIONS, Printer, probes, push};
use super::*;
use crate::correlate::{ClosedVisit, CorrelateOptions, Correlator, Lost, Sink};
use crate::ledger::Reason;
use crate::stream::decode::{Body, Payloads, Record};
use crate::stream::samples::Samples;
use crate::units::{Cpu, Pid, Tid, TraceNs};

/// Counts of each visit, as it closes.
#[derive(Default)]
struct Counts(Vec<String>);

impl Sink for Counts {
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        let Count {
            events,
            enabled_ns,
            running_ns,
        } = visit.events.each[0];
        let incomplete = if visit.events.incomplete {
            " lacks"
        } else {
            ""
        };
        let of = format!(
            "{} {}: {events} in {running_ns}/{enabled_ns}",
            visit.probe.0, visit.item_id
        );
        let ticks = match visit.own.extras.ticks {
            0 => String::new(),
            ticks => format!(", ticks {ticks}"),
        };
        self.0.push(of + incomplete + &ticks);
    }

    fn strays(&mut self, _: Samples<'_>, _: Pid, _: Tid) {}

    fn lost(&mut self, _: Cpu, _: Lost, _: Reason) {}
}

/// Runs lines of records, each `TIME TID WHAT`.
fn run(input: &str) -> Vec<String> {
    let options = CorrelateOptions {
        counters: 1,
        ..OPTIONS
    };
    let mut correlator = Correlator::new(&probes(), options);
    let mut counts = Counts::default();
    let mut end = TraceNs(0);
    for line in input.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (time, tid) = (words[0].parse().unwrap(), Tid(words[1].parse().unwrap()));
        end = TraceNs(time);
        let (cpu, events) = (Cpu(0), |at: usize| words[at].parse::<u64>().unwrap());
        let (words_of, times): (&[u64], bool) = match words[2] {
            "count" | "tick" => (&[events(3)], false),
            "part" => (&[events(3), events(4), events(5)], true),
            "missing" => (&[0, 0, 0], true),
            _ => {
                push(&mut correlator, end, tid, &words[2..], &mut counts);
                continue;
            }
        };
        let mut payloads = Payloads::default();
        let bytes: Vec<u8> = words_of.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let body = Body::Counts {
            ns: 10,
            words: payloads.push(0, &bytes),
            times,
            tick: words[2] == "tick",
        };
        let record = Record {
            time: end,
            pid: Pid(1),
            tid,
            cpu,
            body,
        };
        correlator.push(&record, &payloads, &mut counts);
    }
    correlator.finish(end, &mut counts);
    counts.0
}

#[track_caller]
fn check(input: &str, expect: &[&str]) {
    assert_eq!(run(input), expect);
}

/// Counts go to the visit that is current when they arrive: of nested calls the inner one. Counts before the first mark
/// and after the last one go to no visit.
#[test]
fn nested() {
    check(
        "10 7 begin 0 sp=100
         19 7 count 3
         20 7 begin 0 sp=90
         29 7 count 4
         30 7 ret 0 sp=90
         34 7 count 1
         35 7 out sleep
         50 7 in
         59 7 count 5
         60 7 ret 0 sp=100
         69 7 count 9
         70 7 begin 0 sp=100
         79 7 count 2
         80 7 ret 0 sp=100",
        &["0 2: 4 in 10/10", "0 1: 9 in 30/30", "0 3: 2 in 10/10"],
    );
}

/// Missing counts flag the visit that was current, and no other.
#[test]
fn missing_record() {
    check(
        "10 7 begin 0 sp=100
         20 7 ret 0 sp=100
         29 7 count 1
         30 7 begin 0 sp=100
         39 7 count 2
         40 7 ret 0 sp=100
         49 7 count 1
         50 7 begin 0 sp=100
         55 7 out sleep
         60 7 in
         69 7 count 2
         70 7 ret 0 sp=100",
        &[
            "0 1: 0 in 0/0 lacks",
            "0 2: 2 in 10/10",
            "0 3: 2 in 10/10 lacks",
        ],
    );
}

/// An item that another thread ends: its counts are complete if its thread is off the CPU, else both it and the next
/// visit are incomplete.
#[test]
fn ended_elsewhere() {
    check(
        "10 7 begin 2 id=5
         19 7 count 3
         20 7 out sleep
         30 8 end 2 id=5
         40 7 in
         49 7 count 1
         50 7 begin 2 id=6
         60 8 end 2 id=6
         69 7 count 8
         70 7 begin 2 id=7
         79 7 count 2
         80 7 end 2 id=7",
        &["2 5: 3 in 10/10", "2 6: 0 in 0/0 lacks", "2 7: 2 in 10/10"],
    );
}

/// A call found unwound by a sample, and the one that goes on, lack the counts since the last mark.
#[test]
fn unwound() {
    check(
        "10 7 begin 0 sp=100
         19 7 count 1
         20 7 begin 0 sp=90
         25 7 sample sp=110
         29 7 count 4
         30 7 ret 0 sp=100",
        &["0 2: 0 in 0/0 lacks", "0 1: 1 in 10/10 lacks"],
    );
}

/// Turns of a multiplexed event add up; a CPU without a counter adds no turn.
#[test]
fn turns() {
    check(
        "10 7 begin 0 sp=100
         19 7 part 6 10 4
         20 7 out run
         30 7 in
         39 7 missing
         40 7 out run
         50 7 in
         59 7 count 1
         60 7 ret 0 sp=100",
        &["0 1: 7 in 14/30"],
    );
}

/// A tick splits a period and is own time. Counts between a tick and a mark without counts are missing; so are those of
/// time on the CPU that only a tick saw.
#[test]
fn ticks() {
    check(
        "10 7 begin 0 sp=100
         19 7 tick 3
         29 7 count 1
         30 7 ret 0 sp=100
         39 7 count 1
         40 7 begin 0 sp=100
         49 7 tick 3
         60 7 ret 0 sp=100
         69 7 count 1
         70 7 begin 0 sp=100
         74 7 count 1
         75 7 out sleep
         89 7 count 2
         90 7 ret 0 sp=100",
        &[
            "0 1: 4 in 20/20, ticks 1",
            "0 2: 3 in 10/10 lacks, ticks 1",
            "0 3: 3 in 20/20 lacks",
        ],
    );
}

/// The switch-in is missing, and something shows the thread on the CPU before a tick at which its counters are first
/// read: what it did before the tick is missing. The next visit is complete.
#[test]
fn missing_switch_in() {
    for seen in ["sample sp=90", "fault"] {
        check(
            &format!(
                "10 7 begin 0 sp=100
                 14 7 count 2
                 15 7 out run
                 20 7 {seen}
                 39 7 count 0
                 40 7 ret 0 sp=100
                 49 7 count 1
                 50 7 begin 0 sp=100
                 59 7 count 2
                 60 7 ret 0 sp=100"
            ),
            &["0 1: 2 in 20/20 lacks", "0 2: 2 in 10/10"],
        );
    }
}

/// A switch-in that comes behind a sample is not missing.
#[test]
fn late_switch_in() {
    check(
        "10 7 begin 0 sp=100
         14 7 count 2
         15 7 out run
         20 7 sample sp=90
         21 7 in
         39 7 count 3
         40 7 ret 0 sp=100",
        &["0 1: 5 in 20/20"],
    );
}

/// The switch-out is missing: the counters are read anew at the switch-in, and what they counted before is lost.
#[test]
fn missing_switch_out() {
    check(
        "10 7 begin 0 sp=100
         20 7 in
         39 7 count 3
         40 7 ret 0 sp=100
         49 7 count 1
         50 7 begin 0 sp=100
         59 7 count 2
         60 7 ret 0 sp=100",
        &["0 1: 3 in 10/10 lacks", "0 2: 2 in 10/10"],
    );
}

/// Without counters nothing is expected, and nothing is missing.
#[test]
fn not_counted() {
    let mut correlator = Correlator::new(&probes(), OPTIONS);
    let mut printer = Printer(String::new());
    for line in ["begin 0 sp=100", "out sleep", "in", "ret 0 sp=100"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        push(&mut correlator, TraceNs(10), Tid(7), &words, &mut printer);
    }
    assert!(correlator.pool[0].events == EventCounts::default());
}
