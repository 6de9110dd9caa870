//! The fast path against the state machine.

use std::iter;

use proptest::prelude::*;

use super::*;
use crate::stream::decode::Inbox as _;
use crate::stream::order::Order;
use crate::stream::sample::RawSample;

/// Runs a thread's records through its lane, with a frontier every `step` records.
fn run_through_lane(input: &str, step: usize) -> String {
    let mut correlator = Correlator::new(&probes(), OPTIONS);
    let (mut printer, mut order) = (Printer(String::new()), Order::new(&[]));
    let mut time = TraceNs(0);
    for (number, line) in input.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        time = TraceNs(words[0].parse().unwrap());
        if lose(&mut correlator, time, &words[1..]) {
            continue;
        }
        let words = &words[2..];
        let (pid, tid) = (Pid(1), Tid(7));
        let cpu = Cpu(option(words, "cpu").unwrap_or(0) as u16);
        if words[0] == "sample" {
            let sample = RawSample {
                time,
                ip: Ip(1),
                sp: option(words, "sp").unwrap_or(0),
                kind: SampleKind::new(cpu, EventId(0), (false, false)),
            };
            order.sample(pid, tid, sample);
        } else {
            order.record(Record {
                time,
                pid,
                tid,
                cpu,
                body: body(words),
            });
        }
        if number % step == 0 {
            let mut ready = order.advance(time, |late| panic!("{late:?}"));
            correlator.advance(&mut ready, time, &mut printer);
        }
    }
    let last = TraceNs(i64::MAX);
    let mut ready = order.advance(last, |late| panic!("{late:?}"));
    correlator.advance(&mut ready, last, &mut printer);
    drop(ready);
    finish(correlator, time, printer)
}

/// Mostly calls with samples in them, with other records in between.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let call = (0..3_usize, 0..2_u16).prop_map(|(samples, cpu)| {
        let mut lines = vec![format!("begin 0 sp=100 cpu={cpu}")];
        lines.extend(vec![format!("sample sp=90 cpu={cpu}"); samples]);
        lines.push(format!("ret 0 sp=100 cpu={cpu}"));
        lines
    });
    let other = prop::sample::select(vec![
        "begin 0 sp=100",
        "begin 0 sp=90",
        "begin 1",
        "ret 0 sp=100",
        "ret 0 sp=90",
        "ret 0 sp=100 cpu=1",
        "end 1",
        "sample sp=80",
        "sample sp=95 cpu=1",
        "sample sp=130",
        "out sleep",
        "out run",
        "in",
        "in cpu=1",
        "fault",
        "exit",
    ]);
    let other = other.prop_map(|line| vec![line.to_owned()]);
    let parts = prop::collection::vec(prop_oneof![3 => call, 2 => other], 1..30);
    parts.prop_map(|parts| parts.concat())
}

proptest! {
    /// The fast path and the state machine give the same output.
    #[test]
    fn as_the_state_machine(lines in lines(), step in 1_usize..9, from in 0_i64..200, cpu in 0_u16..3) {
        let line = |(number, line): (usize, &String)| format!("{} 7 {line}\n", 10 * number + 10);
        let loss = format!("{} loss {from} cpu={cpu}\n", from + 50);
        let input: String = iter::once(loss).chain(lines.iter().enumerate().map(line)).collect();
        prop_assert_eq!(run_through_lane(&input, step), run(&input));
    }
}

/// Among samples that come together, a change of CPU and back without switch records is seen.
#[test]
fn there_and_back() {
    for begin in ["begin 0 sp=100", "sample sp=80"] {
        let input = format!(
            "10 7 begin 0 sp=100\n20 7 {begin}\n30 7 sample sp=80\n40 7 sample sp=80 cpu=1\n50 7 sample sp=80\n\
             60 7 ret 0 sp=100\n"
        );
        let found = run_through_lane(&input, 9);
        assert_eq!(found, run(&input));
        assert!(found.contains("2 migrations"), "{found}");
    }
}

/// A call of length 0 has no time on the CPU.
#[test]
fn empty() {
    let input = "10 7 begin 0 sp=100\n20 7 ret 0 sp=100\n20 7 begin 0 sp=100\n20 7 ret 0 sp=100\n";
    assert_eq!(run_through_lane(input, 9), run(input));
}
