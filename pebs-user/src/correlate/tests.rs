//! Tests as text: a list of records in, visits and stray samples out.
//!
//! Input lines are `TIME TID WHAT [cpu=N]`, where WHAT is one of `begin P [id=N] [sp=N]`, `end P [id=N]`, `ret P sp=N`,
//! `next P` (in the goroutine `g=N`, whose stack ends at 4096), `sample [sp=N]` (`id=N` where ids are read at samples), `out sleep|run`, `woken`, `displaced`, `in`,
//! `fault`, `took irq|softirq|minor|major NS`, `exec`, `exit [last]`. Other input lines: `TIME loss FROM [tid=N] [cpu=N]` for
//! a loss up to TIME, `TIME throttled FROM`, `TIME stop`.
//!
//! Output lines: one per visit as it closes, then `stray TIME`.

use std::fmt::Write;

use super::marks::MAX_OPEN;
use super::*;
use crate::estimate::cold::{Cold, Coldness};
use crate::probe::set::Probe;
use crate::stream::decode::{ArgBytes, STATE_IN_MARK};
use crate::stream::sample::{SampleKind, SamplesBy};
use crate::stream::stacks::StackKey;
use crate::units::{EventId, Ip};
use pebs_common::record::{Interference, Role, go_frame};

pub(super) struct Printer(pub(super) String);

impl Sink for Printer {
    fn visit(&mut self, v: &ClosedVisit<'_>) {
        let end = v.end.map_or("?".to_owned(), |(end, _)| end.0.to_string());
        write!(self.0, "p{} item {} tid {}", v.probe.0, v.item_id, v.tid.0).unwrap();
        write!(self.0, " {}..{end} samples", v.begin.0.0).unwrap();
        let times = v.samples.times;
        times
            .iter()
            .for_each(|time| write!(self.0, " {}", time.0).unwrap());
        write!(self.0, " active").unwrap();
        v.active
            .iter()
            .for_each(|(a, b)| write!(self.0, " {}..{}", a.0, b.0).unwrap());
        for wait in v.waits {
            write!(self.0, " {} {}..{}", wait.state, wait.begin.0, wait.end.0).unwrap();
            if let Some((at, _)) = wait.woken {
                write!(self.0, " woken {}", at.0).unwrap();
            }
            if wait.displaced.is_some() {
                write!(self.0, " displaced").unwrap();
            }
        }
        for (count, noun) in [
            (v.switches(), "switches"),
            (v.migrations(), "migrations"),
            (v.page_faults(), "faults"),
        ] {
            if let Some(count) = count.filter(|&n| n > 0) {
                write!(self.0, " {count} {noun}").unwrap();
            }
        }
        if v.mark_waits.0 > 0 {
            let (waits, ns) = v.mark_waits;
            write!(self.0, " {waits} in marks {ns} own {}", v.own.marks_ns).unwrap();
        }
        if v.shared_ns > 0 {
            write!(self.0, " shared {}", v.shared_ns).unwrap();
        }
        if v.counts.idle_ns > 0 {
            write!(self.0, " idle {}", v.counts.idle_ns).unwrap();
        }
        let taken = v.interference;
        for (ns, noun) in [
            (taken.irq_ns, "irq"),
            (taken.softirq_ns, "softirq"),
            (taken.fault_ns, "fault"),
            (taken.major_faults.map(i64::from), "major"),
        ] {
            if let Some(ns) = ns.filter(|&n| n > 0) {
                write!(self.0, " {noun} {ns}").unwrap();
            }
        }
        for (bit, name) in visit_flag::NAMES.iter().enumerate() {
            if v.flags & (1 << bit) != 0 {
                write!(self.0, " [{name}]").unwrap();
            }
        }
        self.0.push('\n');
    }

    fn strays(&mut self, samples: Samples<'_>, _: Pid, _: Tid) {
        for sample in samples.iter() {
            writeln!(self.0, "stray {}", sample.time.0).unwrap();
        }
    }

    fn lost(&mut self, _: Cpu, what: Lost, reason: Reason) {
        writeln!(self.0, "lost {what:?} {}", reason.name()).unwrap();
    }
}

pub(super) fn probes() -> ProbeSet {
    let rules = [
        VisitRule::Call,
        VisitRule::ByThread,
        VisitRule::ById,
        VisitRule::UntilNext,
    ];
    let probes = (0..8u16).map(|n| Probe {
        id: ProbeId(n),
        ..Probe::without_sites(String::new(), rules[n as usize % 4])
    });
    ProbeSet {
        probes: probes.collect(),
        ..ProbeSet::default()
    }
}

fn option(words: &[&str], name: &str) -> Option<u64> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

fn body(words: &[&str]) -> Body {
    let mark = |role| Body::Mark {
        probe: ProbeId(words[1].parse().unwrap()),
        role,
        stepped: words.contains(&"stepped"),
        ran_ns: option(words, "ran").map(|ns| ns as u16),
        id: option(words, "id"),
        sp: match (option(words, "g"), option(words, "sp").unwrap_or(0)) {
            (Some(goroutine), sp) => go_frame(goroutine, 4096, sp),
            (None, sp) => sp,
        },
        args: ArgBytes::default(),
    };
    match words[0] {
        "begin" => mark(Role::Begin),
        "end" => mark(Role::End),
        "ret" => mark(Role::Return),
        "next" => mark(Role::Next),
        "out" => {
            let preempted = words[1] == "run";
            Body::SwitchOut {
                ip: None,
                state: match words[1] {
                    "mark" => STATE_IN_MARK,
                    _ => u32::from(!preempted),
                },
                preempted,
                stack: StackKey::NONE,
            }
        }
        "in" => Body::SwitchIn,
        "woken" => Body::Wake { by: None },
        "displaced" => Body::Displace {
            by: crate::stream::decode::Actor::default(),
        },
        "fault" => Body::Interference {
            which: Interference::PageFault,
            ns: 0,
        },
        "took" => Body::Interference {
            which: match words[1] {
                "irq" => Interference::Interrupt,
                "softirq" => Interference::SoftInterrupt,
                "minor" => Interference::MinorFault,
                _ => Interference::MajorFault,
            },
            ns: words[2].parse().unwrap(),
        },
        "exec" => Body::Exec { old_tid: Tid(0) },
        "exit" => Body::Exit {
            last: words.get(1) == Some(&"last"),
            signal: 0,
        },
        other => panic!("no such record: {other}"),
    }
}

/// Hands on a record of process 1.
pub(super) fn push(
    correlator: &mut Correlator,
    time: TraceNs,
    tid: Tid,
    words: &[&str],
    out: &mut impl Sink,
) {
    let (pid, cpu) = (Pid(1), Cpu(option(words, "cpu").unwrap_or(0) as u16));
    if words[0] == "sample" {
        let samples = Samples {
            times: &[time],
            ips: &[Ip(1)],
            kinds: &[SampleKind::new(
                cpu,
                EventId(0),
                (false, words.contains(&"kernel")),
            )],
        };
        let sp = option(words, "sp").or(option(words, "id")).unwrap_or(0);
        let raw = RawSamples {
            samples,
            sps: &[sp],
        };
        return match correlator.runs {
            Some(_) => correlator.samples_with_ids((pid, tid), raw, out),
            None => correlator.samples((pid, tid), raw, out),
        };
    }
    let record = Record {
        time,
        pid,
        tid,
        cpu,
        body: body(words),
    };
    match correlator.runs {
        Some(_) => correlator.hold(&record, &Payloads::default(), out),
        None => correlator.push(&record, &Payloads::default(), out),
    }
}

/// Adds a loss up to `time`, if the line is one.
fn lose(correlator: &mut Correlator, time: TraceNs, words: &[&str]) -> bool {
    let flag = match words[0] {
        "loss" => visit_flag::LOSS,
        "throttled" => visit_flag::THROTTLED,
        _ => return false,
    };
    let from = TraceNs(words[1].parse().unwrap());
    let scope = LossScope {
        tid: option(words, "tid").map(|tid| Tid(tid as u32)),
        cpu: option(words, "cpu").map(|cpu| Cpu(cpu as u16)),
    };
    correlator.loss((from, time), flag, scope);
    true
}

/// Everything that can be recorded is recorded.
pub(super) const OPTIONS: CorrelateOptions = CorrelateOptions {
    switches: true,
    other_waits: false,
    costly_events: u64::MAX,
    page_faults: true,
    interference: Interferences {
        irq: true,
        faults: true,
    },
    counters: 0,
    count_interval_ns: 0,
    ids_in_user_mode: true,
    max_samples: 100,
};

fn run(input: &str) -> String {
    run_on(&probes(), input)
}

fn run_on(probes: &ProbeSet, input: &str) -> String {
    let mut correlator = Correlator::new(probes, OPTIONS);
    let (mut printer, mut end) = (Printer(String::new()), TraceNs(0));
    for line in input.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let time = TraceNs(words[0].parse().unwrap());
        if lose(&mut correlator, time, &words[1..]) {
            continue;
        }
        if words[1] == "stop" {
            correlator.stopping(time);
            continue;
        }
        let tid = Tid(words[1].parse().unwrap());
        push(&mut correlator, time, tid, &words[2..], &mut printer);
        end = time;
    }
    finish(correlator, end, printer)
}

/// Ends the trace and returns the output.
fn finish(mut correlator: Correlator, end: TraceNs, mut printer: Printer) -> String {
    correlator.finish(end, &mut printer);
    if correlator.missing_switches > 0 {
        writeln!(
            printer.0,
            "missing switch-ins {}",
            correlator.missing_switches
        )
        .unwrap();
    }
    if correlator.shared_samples > 0 {
        writeln!(printer.0, "shared samples {}", correlator.shared_samples).unwrap();
    }
    if correlator.resumed_elsewhere > 0 {
        writeln!(printer.0, "elsewhere {}", correlator.resumed_elsewhere).unwrap();
    }
    assert_eq!(correlator.held, 0, "samples are still booked as held");
    assert!(correlator.by_id.is_empty(), "ids are still booked as open");
    assert!(
        correlator.goroutines.is_empty(),
        "goroutines are still booked as open"
    );
    printer.0
}

#[track_caller]
fn check(input: &str, expect: &str) {
    same(&run(input), expect);
}

#[track_caller]
fn same(output: &str, expect: &str) {
    let clean = |text: &str| -> String {
        text.lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .fold(String::new(), |all, line| all + line + "\n")
    };
    assert_eq!(output, clean(expect));
}

mod fast_visits;
mod goroutines;
mod losses;
mod marked;
mod runs;
mod turns;
mod waits;

/// A call owns the samples between its marks; the others are strays.
#[test]
fn call() {
    check(
        "10 7 sample
         20 7 begin 0 sp=100
         25 7 sample sp=90
         30 7 ret 0 sp=100
         35 7 sample",
        "stray 10
         p0 item 1 tid 7 20..30 samples 25 active 20..30
         stray 35",
    );
}

/// In recursion the innermost call owns samples and time; no instant counts twice.
#[test]
fn recursion() {
    check(
        "10 7 begin 0 sp=100
         12 7 sample sp=95
         20 7 begin 0 sp=90
         25 7 sample sp=85
         30 7 ret 0 sp=90
         35 7 sample sp=95
         40 7 ret 0 sp=100",
        "p0 item 2 tid 7 20..30 samples 25 active 20..30 [overlapped]
         p0 item 1 tid 7 10..40 samples 12 35 active 10..20 30..40 [overlapped]",
    );
}

/// A frame found gone by a sample, an outer return or a new call ends there, flagged.
#[test]
fn unwinding() {
    check(
        "10 7 begin 0 sp=100
         15 7 sample sp=120
         20 7 begin 0 sp=100
         30 7 begin 0 sp=110
         35 7 begin 0 sp=90
         36 7 begin 0 sp=80
         40 7 ret 0 sp=110",
        "p0 item 1 tid 7 10..15 samples active 10..15 [unwound]
         stray 15
         p0 item 2 tid 7 20..30 samples active 20..30 [unwound]
         p0 item 5 tid 7 36..40 samples active 36..40 [overlapped] [unwound]
         p0 item 4 tid 7 35..40 samples active 35..36 [overlapped] [unwound]
         p0 item 3 tid 7 30..40 samples active 30..35 [overlapped]",
    );
}

/// A stack pointer on another stack (signal, coroutine) shows nothing about the frame.
#[test]
fn other_stack() {
    check(
        "10 7 begin 0 sp=100
         15 7 sample sp=900000000
         20 7 ret 0 sp=100",
        "p0 item 1 tid 7 10..20 samples 15 active 10..20",
    );
}

/// A stack pointer at the end of the address space does not overflow.
#[test]
fn highest_stack() {
    check(
        "10 7 begin 0 sp=18446744073709551615
         20 7 sample sp=18446744073709551614
         30 7 sample sp=18446744073709551615
         40 7 ret 0 sp=18446744073709551615",
        "p0 item 1 tid 7 10..40 samples 20 30 active 10..40",
    );
}

/// Ends are found by id, in any order.
#[test]
fn by_id() {
    check(
        "10 7 begin 2 id=5
         20 7 begin 2 id=6
         30 7 end 2 id=5
         40 7 end 2 id=6
         50 7 end 2 id=9",
        "p2 item 5 tid 7 10..30 samples active 10..20 shared 10 [overlapped] [time_shared]
         p2 item 6 tid 7 20..40 samples active 30..40 shared 10 [overlapped] [time_shared]
         lost Mark unmatched_mark",
    );
}

/// An end before the first begin of its probe (where visits stay on their thread: on that thread) is of an item that
/// began before the recording, unless a mark was lost.
#[test]
fn began_before() {
    check(
        "5 throttled 1
         10 7 end 2 id=4
         11 7 end 1
         12 7 ret 0 sp=100
         20 7 begin 2 id=5
         30 7 end 2 id=5
         31 7 end 2 id=6
         32 8 end 2 id=6
         40 8 end 1
         41 8 begin 1
         42 8 end 1
         43 8 end 1
         44 9 end 1",
        "lost Mark began_before
         lost Mark began_before
         lost Mark began_before
         p2 item 5 tid 7 20..30 samples active 20..30
         lost Mark unmatched_mark
         lost Mark unmatched_mark
         lost Mark began_before
         p1 item 1 tid 8 41..42 samples active 41..42
         lost Mark unmatched_mark
         lost Mark began_before",
    );
}

/// Begin probes are detached first: a later end is of an item that began after the end of the recording, unless a mark
/// was lost.
#[test]
fn began_after() {
    check(
        "10 7 begin 2 id=5
         19 7 end 2 id=4
         20 stop
         30 7 end 2 id=5
         31 7 end 2 id=6
         40 loss 35
         41 7 end 2 id=7",
        "lost Mark unmatched_mark
         p2 item 5 tid 7 10..30 samples active 10..30
         lost Mark began_after
         lost Mark unmatched_mark",
    );
}

/// A second begin with the same id means that the end was missed; an end may come from another thread.
#[test]
fn by_id_twice_and_elsewhere() {
    check(
        "10 7 begin 2 id=5
         20 7 begin 2 id=5
         30 8 end 2 id=5",
        "p2 item 5 tid 7 10..20 samples active 10..20 [end_missing]
         p2 item 5 tid 7 20..30 samples active 20..30 [ended_elsewhere]",
    );
}

/// By thread, and until the next: each begin ends the open visit.
#[test]
fn by_thread_and_next() {
    check(
        "10 7 begin 1
         20 7 begin 1
         30 7 end 1
         40 7 end 1
         50 7 next 3
         60 7 next 3
         70 7 exit",
        "p1 item 1 tid 7 10..20 samples active 10..20 [end_missing]
         p1 item 2 tid 7 20..30 samples active 20..30
         lost Mark unmatched_mark
         p3 item 1 tid 7 50..60 samples active 50..60
         p3 item 2 tid 7 60..70 samples active 60..70 [thread_ended]",
    );
}

/// Visits end with their thread, with an exec of their process, and at the end of the trace.
#[test]
fn cut_short() {
    check(
        "10 7 begin 0 sp=100
         11 8 begin 0 sp=100
         20 7 exit
         30 9 exec
         40 9 begin 0 sp=100",
        "p0 item 1 tid 7 10..20 samples active 10..20 [thread_ended]
         p0 item 2 tid 8 11..30 samples active 11..30 [thread_ended]
         p0 item 3 tid 9 40..? samples active [open_at_end]",
    );
}

/// Items whose ends never come are closed, oldest first, before they fill the memory.
#[test]
fn ends_that_never_come() {
    let begins = (0..MAX_OPEN + 3).map(|n| format!("{n} 7 begin 2 id={n}\n"));
    let output = run(&begins.collect::<String>());
    let missing: Vec<&str> = output
        .lines()
        .filter(|line| line.contains("[end_missing]"))
        .map(|line| line.split_once(" tid").unwrap().0)
        .collect();
    assert_eq!(missing, ["p2 item 0", "p2 item 1", "p2 item 2"]);
    assert_eq!(output.matches("[open_at_end]").count(), MAX_OPEN);
}

proptest::proptest! {
    /// No order of records breaks it, with or without resume marks, and every sample comes out once.
    #[test]
    fn any_records(steps: Vec<(u8, u8, u8, u8)>) {
        let what = ["begin 0", "ret 0", "begin 1", "end 1", "begin 2", "end 2", "next 3", "sample",
            "out sleep", "out run", "in", "exit", "exec", "begin 4", "ret 4", "begin 5", "end 5", "next 7"];
        let mut input = String::new();
        for (time, (what_n, tid, id, sp)) in steps.iter().enumerate() {
            let what = what[*what_n as usize % what.len()];
            let (tid, id, sp) = (tid % 3, id % 4, 1000 + u64::from(*sp));
            writeln!(input, "{time} {tid} {what} id={id} sp={sp}").unwrap();
        }
        // Without and with resume marks.
        for output in [run(&input), run_on(&turns::resuming(), &input)] {
        let samples = steps.iter().filter(|step| step.0 as usize % what.len() == 7).count();
        let strays = output.matches("stray").count();
        let owned: usize = output
            .lines()
            .filter_map(|line| line.split_once(" samples ")?.1.split_once("active"))
            .map(|(samples, _)| samples.split_whitespace().count())
            .sum();
        proptest::prop_assert_eq!(samples, strays + owned + output.matches("lost Sample").count());
        }
    }
}

/// Interruptions count for the current visit, and outside of visits for none of them.
#[test]
fn interference() {
    let out = run("
        5 1 took irq 3
        10 1 begin 0 sp=100
        20 1 took irq 4
        30 1 begin 0 sp=50
        40 1 took softirq 5
        45 1 took major 7
        50 1 ret 0 sp=50
        60 1 took irq 6
        65 1 took minor 8
        70 1 ret 0 sp=100
        80 1 took irq 9
    ");
    let [inner, outer] = out.lines().collect::<Vec<_>>()[..] else {
        panic!("{out}");
    };
    assert!(inner.contains(" softirq 5 fault 7 major 1"), "{out}");
    assert!(
        outer.contains(" irq 10 fault 8") && !outer.contains("major"),
        "{out}"
    );
}

/// Switches, migrations and page faults count for the current visit, and outside of visits for none of them. A fault
/// shows that the thread runs, and on which CPU, even if records were lost.
#[test]
fn counts() {
    check(
        "5 7 fault
         10 7 begin 0 sp=100
         11 7 fault
         12 7 out sleep
         15 7 in cpu=1
         20 7 begin 0 sp=90 cpu=1
         21 7 fault cpu=1
         22 7 fault cpu=1
         23 7 out run cpu=1
         24 7 in cpu=1
         25 7 out sleep cpu=1
         26 7 in cpu=0
         30 7 ret 0 sp=90
         32 7 out sleep
         35 7 fault cpu=1
         40 7 ret 0 sp=100 cpu=1
         41 7 fault cpu=1",
        "p0 item 2 tid 7 20..30 samples active 20..23 24..25 26..30 runnable 23..24 sleeping 25..26 2 switches 1 migrations 2 faults [overlapped] [migrated] [preempted]
         p0 item 1 tid 7 10..40 samples active 10..12 15..20 30..32 35..40 sleeping 12..15 sleeping 32..35 2 switches 2 migrations 2 faults idle 1 [overlapped] [migrated] [preempted]",
    );
}

/// A wait within a mark is time of the mark, and no wait of the visit; the same holds for an outer visit.
#[test]
fn waits_in_marks() {
    check(
        "10 7 begin 0 sp=100
         12 7 out mark
         15 7 in
         20 7 begin 0 sp=90
         23 7 out mark
         24 7 in
         25 7 out sleep
         26 7 in
         30 7 ret 0 sp=90
         40 7 ret 0 sp=100",
        "p0 item 2 tid 7 20..30 samples active 20..23 24..25 26..30 sleeping 25..26 2 switches 1 in marks 1 own 1 [overlapped]
         p0 item 1 tid 7 10..40 samples active 10..12 15..20 30..40 1 switches 1 in marks 3 own 4 idle 1 [overlapped]",
    );
}

/// A mark takes what marks at its kind of place take, though others of its role are elsewhere: beside a call, and in the
/// fast path.
#[test]
fn dear_and_cheap_places() {
    struct Own(Vec<u64>);
    impl Sink for Own {
        fn visit(&mut self, visit: &ClosedVisit<'_>) {
            self.0.push(visit.own.marks_ns);
        }
        fn strays(&mut self, _: Samples<'_>, _: Pid, _: Tid) {}
        fn lost(&mut self, _: Cpu, lost: Lost, reason: Reason) {
            panic!("{lost:?} {reason:?}");
        }
    }
    let mut times = MarkTimes::default();
    for (role, stepped, before_ns, after_ns) in [
        (Role::Begin, false, 1, 2),
        (Role::Begin, true, 3, 20),
        (Role::Return, false, 4, 5),
        (Role::Return, true, 30, 6),
    ] {
        let time = MarkTime {
            before_ns,
            after_ns,
        };
        times.set(role, stepped, time);
    }
    assert_eq!(times.ends(), [(2, 4), (2, 30), (20, 4), (20, 30)]);
    let mut correlator = Correlator::new(&probes(), OPTIONS);
    correlator.mark_times(&[times], Coldness::default());
    let mut own = Own(Vec::new());
    let mut time = 0;
    for line in [
        "begin 0 sp=100",
        "ret 0 sp=100",
        "begin 0 sp=100 stepped",
        "ret 0 sp=100",
        "begin 0 sp=100",
        "ret 0 sp=100 stepped",
    ] {
        time += 1_000;
        let words: Vec<&str> = line.split_whitespace().collect();
        push(&mut correlator, TraceNs(time), Tid(7), &words, &mut own);
    }
    assert_eq!(own.0, [6, 24, 32]);
}

/// The additional time of cold marks counts for the visits that it falls into: after a begin's time, and before an
/// end's; beside a call, in calls within calls, and in the fast path.
#[test]
fn cold_marks() {
    struct Own(Vec<(u64, i64)>);
    impl Sink for Own {
        fn visit(&mut self, visit: &ClosedVisit<'_>) {
            self.0.push((visit.own.marks_ns, visit.own.cold_ns));
        }
        fn strays(&mut self, _: Samples<'_>, _: Pid, _: Tid) {}
        fn lost(&mut self, _: Cpu, lost: Lost, reason: Reason) {
            panic!("{lost:?} {reason:?}");
        }
    }
    let coldness = Coldness {
        warm_ns: [100.0, 200.0],
        before: 10.0,
        after: 1.0,
    };
    let cold = |ns| coldness.more(false, ns);
    assert_eq!(coldness.more(true, Some(210)), cold(Some(110)));
    assert_eq!(coldness.more(true, Some(110)), Cold::default());
    assert_eq!(cold(None), Cold::default());
    assert_eq!(
        (cold(Some(90)).before_ns, cold(Some(90)).after_ns),
        (-100, -10)
    );
    // An interrupted program.
    assert_eq!(cold(Some(2_000)), cold(Some(400)));
    let mut correlator = Correlator::new(&probes(), OPTIONS);
    correlator.mark_times(&[MarkTimes::default()], coldness);
    let mut own = Own(Vec::new());
    let mut time = 0;
    for line in [
        "begin 0 sp=100 ran=120",
        "ret 0 sp=100 ran=130",
        "begin 0 sp=100 ran=101",
        "begin 0 sp=90 ran=102",
        "ret 0 sp=90 ran=103",
        "ret 0 sp=100",
    ] {
        time += 1_000;
        let words: Vec<&str> = line.split_whitespace().collect();
        push(&mut correlator, TraceNs(time), Tid(7), &words, &mut own);
    }
    assert_eq!(own.0, [(0, 20 + 300), (0, 2 + 30), (0, 1 + 22 + 33)]);
}

/// The sums of open visits: closed intervals and the current one, of the current visit only.
#[test]
fn open_load() {
    let options = CorrelateOptions {
        switches: true,
        other_waits: false,
        costly_events: u64::MAX,
        page_faults: true,
        interference: Interferences::default(),
        counters: 0,
        count_interval_ns: 0,
        ids_in_user_mode: false,
        max_samples: 100,
    };
    let mut correlator = Correlator::new(&probes(), options);
    let mut printer = Printer(String::new());
    let lines = [
        (10, "begin 0 sp=100"),
        (12, "sample"),
        (14, "out sleep"),
        (18, "in"),
        (20, "begin 0 sp=90"),
        (21, "fault"),
        (25, "sample"),
    ];
    for (time, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        push(&mut correlator, TraceNs(time), Tid(7), &words, &mut printer);
    }
    let load = correlator.open_load(TraceNs(30), false);
    let expected = OpenLoad {
        oncpu_ns: 4 + 2 + 10,
        samples: SamplesBy::of_event(EventId(0), 2),
        page_faults: 1,
        extras: ExtraRecords::default(),
    };
    assert_eq!(load, expected);
}
