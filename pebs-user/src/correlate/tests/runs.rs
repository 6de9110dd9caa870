//! Visits that are runs of equal ids.

use proptest::prelude::*;

use super::*;
use crate::probe::item::{Context, Typed, resolve};
use crate::probe::set::Probe;

fn ids() -> ProbeSet {
    let item = resolve(Typed::Reg("r13"), &Context::default()).unwrap();
    let probe = Probe::without_sites(item.spec.clone(), VisitRule::SameId);
    ProbeSet {
        probes: vec![probe],
        item: Some(item),
        ..ProbeSet::default()
    }
}

#[track_caller]
fn check(input: &str, expect: &str) {
    same(&run_on(&ids(), input), expect);
}

/// The boundary lies half way between two samples; samples without an item are strays; the first run
/// begins with its first sample, the last one has no end.
#[test]
fn half_way() {
    check(
        "10 7 sample id=1
         20 7 sample id=1
         30 7 sample id=2
         40 7 sample
         50 7 sample
         60 7 sample id=2",
        "p0 item 1 tid 7 10..25 samples 10 20 active 10..25 [sampled_bounds]
         p0 item 2 tid 7 25..35 samples 30 active 25..35 [sampled_bounds]
         stray 40
         stray 50
         p0 item 2 tid 7 55..? samples 60 active 55..60 [open_at_end] [sampled_bounds]",
    );
}

/// A thread that sleeps and comes back with the same id is in the same visit: the sleep belongs to it.
#[test]
fn the_same_id_goes_on() {
    check(
        "10 7 sample id=1
         12 7 out sleep
         13 8 sample id=9
         90 7 in
         94 7 sample id=1
         104 7 sample
         105 8 exit",
        "p0 item 1 tid 7 10..99 samples 10 94 active 10..12 90..99 sleeping 12..90 1 switches [sampled_bounds]
         stray 104
         p0 item 9 tid 8 13..105 samples 13 active 13..105 [thread_ended] [sampled_bounds]",
    );
}

/// A sample in kernel mode has no id: it is of the item that the samples before and after it agree on, whatever the
/// thread did in between, else of none. It begins no run.
#[test]
fn without_an_id() {
    check(
        "5 7 sample kernel id=1
         10 7 sample id=1
         12 7 sample kernel id=9
         14 7 out sleep
         50 7 in
         52 7 sample kernel id=9
         54 7 sample id=1
         56 7 sample kernel id=1
         64 7 sample id=2
         66 7 sample kernel id=2
         70 7 exit",
        "stray 5
         stray 56
         p0 item 1 tid 7 10..59 samples 10 12 52 54 active 10..14 50..59 sleeping 14..50 1 switches [sampled_bounds]
         stray 66
         p0 item 2 tid 7 59..70 samples 64 active 59..70 [thread_ended] [sampled_bounds]",
    );
}

/// A sleep between two items is in neither; nor is time on the CPU between two sleeps without a sample.
#[test]
fn sleep_between_items() {
    check(
        "10 7 sample id=1
         12 7 out sleep
         50 7 in
         53 7 out sleep
         90 7 in
         92 7 out run
         93 7 in
         94 7 sample id=2
         104 7 sample",
        "p0 item 1 tid 7 10..12 samples 10 active 10..12 [sampled_bounds]
         p0 item 2 tid 7 90..99 samples 94 active 90..92 93..99 runnable 92..93 1 switches [preempted] [sampled_bounds]
         stray 104",
    );
}

/// The same if the switch-in event after the sleep is missing.
#[test]
fn sleep_between_items_without_its_end() {
    check(
        "5 7 in
         6 7 out sleep
         10 7 sample id=1
         12 7 out sleep
         94 7 sample id=2
         104 7 sample",
        "p0 item 1 tid 7 10..12 samples 10 active 10..12 [sampled_bounds]
         p0 item 2 tid 7 94..99 samples 94 active 94..99 [sampled_bounds]
         stray 104",
    );
}

/// Half way is measured on the CPU: time preempted goes to the item on whose side it falls.
#[test]
fn preempted_between_items() {
    check(
        "10 7 sample id=1
         12 7 out run
         13 7 fault
         50 7 out run
         60 7 in
         68 7 sample id=2
         69 7 exit",
        "p0 item 1 tid 7 10..35 samples 10 active 10..12 13..35 runnable 12..13 1 switches 1 faults [preempted] [sampled_bounds]
         p0 item 2 tid 7 35..69 samples 68 active 35..50 60..69 runnable 50..60 1 switches [thread_ended] [preempted] [sampled_bounds]
         missing switch-ins 1",
    );
}

/// Wake and displace records wait together with their switch.
#[test]
fn woken_and_displaced() {
    check(
        "10 7 sample id=1
         12 7 out sleep
         80 7 woken
         90 7 in
         94 7 sample id=1
         96 7 out run
         97 7 displaced
         99 7 in
         104 7 sample id=1
         110 7 out run
         114 7 displaced
         130 7 in
         144 7 sample id=2
         145 7 exit",
        "p0 item 1 tid 7 10..134 samples 10 94 104 active 10..12 90..96 99..110 130..134 sleeping 12..90 woken 80 runnable 96..99 displaced runnable 110..130 displaced 3 switches [preempted] [sampled_bounds]
         p0 item 2 tid 7 134..145 samples 144 active 134..145 [thread_ended] [sampled_bounds]",
    );
}

/// If a thread ends, its visit ends where it last went to sleep.
#[test]
fn ends_after_a_sleep() {
    check(
        "10 7 sample id=1
         12 7 out sleep
         50 7 in
         55 7 exit
         60 8 sample id=2
         61 8 exec",
        "p0 item 1 tid 7 10..12 samples 10 active 10..12 [sampled_bounds]
         p0 item 2 tid 8 60..61 samples 60 active 60..61 [thread_ended] [sampled_bounds]",
    );
}

/// Without samples the number of waiting records is bounded, and the visit ends at the first sleep.
#[test]
fn no_sample_for_long() {
    let mut input = "1 7 sample id=1\n".to_owned();
    for n in 1..2000 {
        let (out, back) = (n * 10, n * 10 + 5);
        input += &format!("{out} 7 out sleep\n{back} 7 in\n");
    }
    input += "20000 7 sample id=1\n20002 7 exit\n";
    let visits = run_on(&ids(), &input);
    assert!(
        visits.starts_with("p0 item 1 tid 7 1..10 samples 1 active 1..10 "),
        "{visits}"
    );
    assert_eq!(visits.lines().count(), 2, "{visits}");
}

/// Possible next record of a thread.
fn step() -> impl Strategy<Value = (&'static str, i64)> {
    let what = prop::sample::select(vec![
        "sample",
        "sample id=1",
        "sample id=1",
        "sample id=2",
        "out run",
        "out sleep",
        "in",
        "woken",
        "displaced",
        "fault",
        "exit",
    ]);
    (what, 1..20i64)
}

/// Times on and off the CPU in a visit's line.
fn stretches(line: &str) -> Vec<(i64, i64)> {
    let words = line.split_whitespace().skip(6);
    let bounds = words.filter_map(|word| word.split_once(".."));
    let stretches = bounds.map(|(begin, end)| (begin.parse().unwrap(), end.parse().unwrap()));
    stretches.collect()
}

/// Visits as numbers: item, begin, end, samples.
fn visits(output: &str) -> Vec<(u64, i64, i64, Vec<i64>)> {
    let visits = output.lines().filter(|line| line.starts_with('p'));
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (begin, end) = words[5].split_once("..").unwrap();
        let samples = words[7..].iter().map_while(|word| word.parse().ok());
        let end = end.parse().unwrap_or(i64::MAX);
        (
            words[2].parse().unwrap(),
            begin.parse().unwrap(),
            end,
            samples.collect(),
        )
    };
    visits.map(read).collect()
}

proptest! {
    /// In any order of records: visits don't overlap, each has all samples within it, and these have
    /// its id. A thread is on or off the CPU once at a time, within the visit.
    #[test]
    fn any_order(steps in prop::collection::vec(step(), 1..60)) {
        let (mut input, mut time) = (String::new(), 0);
        let mut samples = Vec::new();
        for (what, pause) in steps {
            time += pause;
            input += &format!("{time} 7 {what}\n");
            if let Some(rest) = what.strip_prefix("sample") {
                samples.push((time, rest.trim().strip_prefix("id=").map_or(0, |id| id.parse().unwrap())));
            }
        }
        let output = run_on(&ids(), &input);
        let visits = visits(&output);
        for pair in visits.windows(2) {
            prop_assert!(pair[0].2 <= pair[1].1, "{input}{output}");
        }
        for (item, begin, end, own) in &visits {
            let within: Vec<i64> = samples
                .iter()
                .filter(|(at, id)| at >= begin && at < end && id == item)
                .map(|(at, _)| *at)
                .collect();
            prop_assert_eq!(own, &within, "{}{}", input, output);
        }
        let lines = output.lines().filter(|line| line.starts_with('p'));
        for ((_, begin, end, _), line) in visits.iter().zip(lines) {
            let mut stretches = stretches(line);
            stretches.sort_unstable();
            for pair in stretches.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{input}{output}");
            }
            for stretch in stretches {
                prop_assert!(*begin <= stretch.0 && stretch.1 <= *end, "{input}{output}");
            }
        }
        let in_visits: usize = visits.iter().map(|visit| visit.3.len()).sum();
        let with_id = samples.iter().filter(|(_, id)| *id != 0).count();
        prop_assert_eq!(in_visits, with_id, "{}{}", input, output);
    }
}
