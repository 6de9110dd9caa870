//! Reports of synthetic traces, against golden text: `BLESS=1 cargo test -p pebs-trace report`
//! rewrites it.

mod interrupts_and_faults;

use super::csv::{self, CsvTable};
use super::text;
use crate::compare::explain::{ExplainOptions, explain};
use crate::compare::losses::LossVisits;
use crate::compare::report::model::{FlagCount, Report};
use crate::compare::report::{ReportError, ReportOptions, build};
use crate::failure::Hint as _;
use crate::ledger::{Account, CpuLedger, Ledger, Reason};
use crate::present::{human, json};
use crate::store::fixtures::Did::{self, Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info_with};
use crate::store::run::{
    CostInfo, EntryClass, Extra, ExtraLimit, OverheadInfo, ResetChange, RunInfo, SiteInfo,
};
use crate::store::schema::{ArgType, ArgValue, FunctionRow, LossRow, visit_flag};
use crate::units::{CountUnit, Cpu, EventId, FunctionId, ProbeId, TraceNs};

/// A run of one probe with one argument, sampled every 16 us.
fn run_info(spec: &str, column: &str, r#type: ArgType) -> RunInfo {
    let mut info = info_with(&[spec], &[(column, r#type)]);
    info.events[0].reset = 16_000;
    info.transport = "bpf".to_owned();
    info.transport_reason = "cpu-clock has no buffered mode".to_owned();
    info
}

/// A trace whose visits have a page fault for each 100 us beyond the first 50 us.
fn maker(info: RunInfo) -> Maker {
    let mut maker = Maker::new(info);
    maker.each_visit = |row| {
        row.cpu_begin = Cpu(0);
        row.idle_ns = None;
        let ran = row.page_faults.and(row.oncpu_ns);
        row.page_faults = ran.map(|ns| ((ns - 50_000).max(0) / 100_000) as u32);
    };
    maker
}

fn made(arg: impl Into<ArgValue>, did: &[Did]) -> VisitFixture {
    VisitFixture::with([Some(arg.into())], did).tid(101)
}

fn balanced(samples: u64, marks: u64) -> Ledger {
    let account = |seen| Account {
        seen,
        written: seen,
        ..Account::default()
    };
    Ledger {
        cpus: vec![CpuLedger {
            cpu: 0,
            samples: account(samples),
            marks: account(marks),
            tasks: account(90),
        }],
        samples_unmatched: 12,
        throttled: Some(0),
        ..Ledger::default()
    }
}

/// 20,040 GETs as of an in-memory store: 40 of them free a large hash.
fn store() -> TestTrace {
    let spec = "/usr/bin/redis-server:processCommand(key=str(*(*(arg1+80)+8)))";
    let mut info = run_info(spec, "key", ArgType::Str);
    info.ledger = Some(balanced(9_812, 40_080));
    info.cost = Some(CostInfo {
        marks: 40_080,
        samples: 9_812,
        tool_cpu_ns: 310_000_000,
        marks_ns: Some(20_000_000.0),
        samples_ns: Some(24_500_000.0),
        page_faults: 0,
        page_faults_ns: Some(0.0),
        pause_before_ns: None,
        pause_after_ns: None,
        visits_oncpu_ns: Some(140_000_000.0),
        slowdown: Some(0.31),
        ..CostInfo::default()
    });
    let mut maker = maker(info);
    for i in 0..20_040_i64 {
        if i % 501 == 250 {
            let n = i / 501;
            let (clear, free) = (310_000 + 7_000 * n, 400_000 + 31_000 * (n % 7));
            let did = [
                Ran(1, 3_000),
                Ran(3, clear),
                Ran(4, free),
                Ran(5, 90_000 + 500 * n),
                Ran(2, 1_000),
            ];
            maker.visit(&made(format!("big:{n:03}"), &did));
            continue;
        }
        let more = (i * 7919 % 1000) * (i * 104_729 % 1000) / 500;
        let did = [Ran(1, 3_000 + more), Ran(2, 900)];
        let preempted = [did[0], Waited(1, "runnable", 8_000 + i * i / 4_000), did[1]];
        let key = format!("small:{i:06}");
        if i % 4000 == 17 {
            maker.visit(&made(key, &preempted).flags(visit_flag::PREEMPTED));
        } else {
            maker.visit(&made(key, &did));
        }
    }
    let redis = "/usr/bin/redis-check-rdb";
    maker.finish(&[
        (1, "processCommand", redis),
        (2, "addReply", redis),
        (3, "_dictClear", redis),
        (4, "sdsfree", redis),
        (5, "zfree", redis),
    ])
}

/// 1,000 INSERTs of an embedded database: five wait for the disk in their commit.
fn database() -> TestTrace {
    let spec = "libsqlite3.so.0:sqlite3_step(n=arg2)";
    let mut maker = maker(run_info(spec, "n", ArgType::I64));
    for i in 0..1_000_i64 {
        let insert = [Ran(1, 6_000 + i * 37 % 3_000), Ran(2, 3_000)];
        let flush = 1_200_000 + 300_000 * (i / 200);
        let commit = [
            insert[0],
            Ran(3, 210_000),
            Waited(4, "uninterruptible", flush),
            Waited(4, "uninterruptible", flush / 3),
            Waited(0, "runnable", 15_000),
            insert[1],
        ];
        let did: &[Did] = if i % 200 == 60 { &commit } else { &insert };
        maker.visit(&made(i, did));
    }
    let lib = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6";
    maker.finish(&[
        (1, "sqlite3VdbeExec", lib),
        (2, "sqlite3BtreeInsert", lib),
        (3, "sqlite3WalCheckpoint", lib),
        (4, "fdatasync", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    ])
}

/// Everything that may be missing is: no clock, no switches, no end, names that attack terminals.
fn ragged() -> TestTrace {
    let mut info = run_info("./app:h\x1b]0;owned\x07", "k", ArgType::Str);
    info.events[0].name = "uops_retired.all".to_owned();
    info.events[0].unit = CountUnit::Events;
    info.events[0].r#type = 4;
    info.switches = false;
    info.page_faults = false;
    info.complete = false;
    info.notes = vec!["kernel.perf_event_paranoid is 3".to_owned()];
    let mut ledger = balanced(70, 81);
    ledger.cpus[0].samples.book(Reason::DroppedRingFull, 9);
    ledger.cpus[0].marks.seen = 80;
    ledger.throttled = None;
    info.ledger = Some(ledger);
    let mut maker = maker(info);
    for i in 0..40 {
        let flags = match i {
            3..=5 => visit_flag::LOSS,
            _ => visit_flag::MIGRATED * u32::from(i == 9),
        };
        let ns = if i == 20 { 90_000 } else { 20_000 + 10 * i };
        let name = if i == 20 { "a\n\x1b[31mred" } else { "b" };
        maker.visit(&made(name, &[Ran(1, ns), Ran(2, 100 * i)]).flags(flags));
    }
    maker.visit(&made("open", &[Ran(1, 50)]).flags(visit_flag::OPEN_AT_END));
    for records in [Some(9), None] {
        maker.add(LossRow {
            begin_ns: TraceNs(60_000),
            end_ns: TraceNs(120_000),
            cpu: Some(Cpu(0)),
            tid: None,
            reason: "dropped_ring_full".to_owned(),
            records,
        });
    }
    maker.add(FunctionRow {
        function_id: FunctionId(2),
        module: Some("/opt/app".to_owned()),
        ..FunctionRow::default()
    });
    maker.finish(&[(1, "evil\u{202e}::<name>\r", "/opt/a,b/\"app\"")])
}

/// Makes a trace and its report; the trace's path is replaced, as it differs from run to run.
fn report(make: fn() -> TestTrace, options: &ReportOptions) -> Report {
    let mut report = build(&make(), options).unwrap();
    report.trace = "TRACE".to_owned();
    report
}

#[track_caller]
fn golden(name: &str, got: &str) {
    crate::out::testing::golden("report", name, got);
}

/// The slow items of a key-value store are identified by number, and by the function that frees their
/// memory.
#[test]
fn report_of_store() {
    let report = report(store, &ReportOptions::default());
    let text = text::render(&report);
    golden("store.txt", &text);
    let head: String = text.lines().take(8).collect();
    for needed in [
        "20,040 items",
        "40 items of",
        "key=big:0",
        "_dictClear",
        "sdsfree",
        "zfree",
    ] {
        assert!(head.contains(needed), "{needed} is not in the first lines");
    }
    let probe = &report.probes[0];
    assert!(
        probe
            .slowest
            .iter()
            .all(|visit| visit.visit_id % 501 == 251)
    );
    assert_eq!(probe.slow.as_ref().unwrap().rule, "gap");
}

/// No line is wider than the page, whatever is in the trace.
#[test]
fn fits_the_page() {
    let made: [fn() -> TestTrace; 3] = [store, database, ragged];
    for make in made {
        let report = report(make, &ReportOptions::default());
        for width in [80, 120, 200] {
            let text = text::page(&report, width).plain();
            let wide = text.lines().find(|line| human::columns(line) > width);
            assert_eq!(wide, None, "{width} columns:\n{text}");
        }
    }
}

/// Time that a commit waits for the disk is shown as that: off the CPU, in fdatasync.
#[test]
fn report_of_database() {
    let report = report(database, &ReportOptions::default());
    golden("database.txt", &text::render(&report));
    let top = &report.probes[0].spread[0];
    assert_eq!(top.function.name.as_deref(), Some("fdatasync"));
    assert_eq!(top.state.as_deref(), Some("uninterruptible"));
    assert_eq!((top.slow.samples, top.typical.samples), (10, 0));
    // 1.2, 1.5, .. 2.4 ms, and a third of that once more.
    assert_eq!(top.slow.per_visit, Some(1_800_000.0 * 4.0 / 3.0));
}

/// An argument that is the same in all of the slowest is said once, in the title.
#[test]
fn shared_argument_is_said_once() {
    fn same() -> TestTrace {
        let key = "a key that is so long that no row has room for anything else beside it";
        let mut maker = maker(run_info("app:handle(key=str(arg1))", "key", ArgType::Str));
        for i in 0..1_000 {
            maker.visit(&made(key, &[Ran(1, 6_000 + 30_000 * (i / 990))]));
        }
        maker.finish(&[(1, "handle", "/usr/bin/app")])
    }
    let report = report(same, &ReportOptions::default());
    let text = text::page(&report, 80).plain();
    let list = text.split("the slowest items,").nth(1).unwrap();
    let words: Vec<&str> = list.split_whitespace().take(5).collect();
    assert_eq!(words[..4], ["all", "with", "key=a", "key"], "{text}");
    assert_eq!(list.matches("key=").count(), 1, "{text}");
    let wide = text.lines().find(|line| human::columns(line) > 80);
    assert_eq!(wide, None, "{text}");
}

/// Unobserved values are not printed, and no text of the target reaches the terminal unescaped.
#[test]
fn report_of_ragged_trace() {
    let report = report(ragged, &ReportOptions::default());
    let text = text::render(&report);
    golden("ragged.txt", &text);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!text.contains('\u{202e}'));
    assert_eq!(report.probes[0].time, None);
    assert_eq!(report.losses[0].records, None);
}

/// Programs get the same facts: JSON parses, CSV has its columns and its quotes.
#[test]
fn formats_for_programs() {
    let report = report(ragged, &ReportOptions::default());
    let text = json::render(&report).unwrap();
    assert!(text.contains("\"net_ns\": null"), "{text}");
    // Nulls are left out of the golden file, so that a new column without values does not change it.
    let known = text.lines().filter(|line| !line.ends_with(": null,"));
    golden("ragged.json", &known.collect::<Vec<_>>().join("\n"));
    golden(
        "ragged-functions.csv",
        &csv::render(&report, CsvTable::Functions),
    );
    golden("ragged-items.csv", &csv::render(&report, CsvTable::Items));
}

/// Visits that overlap a loss count only on request; one without an end never has a duration.
#[test]
fn visits_left_out() {
    let include = ReportOptions {
        losses: LossVisits::Include,
        ..ReportOptions::default()
    };
    let counts = |report: Report| {
        let probe = &report.probes[0];
        (
            probe.visits,
            probe.counted,
            probe.left_out_loss,
            probe.left_out_open,
        )
    };
    assert_eq!(
        counts(report(ragged, &ReportOptions::default())),
        (41, 37, 3, 1)
    );
    assert_eq!(counts(report(ragged, &include)), (41, 40, 0, 1));
}

/// Lists have the requested length, and an unknown probe is an error that names the existing ones.
#[test]
fn options_are_followed() {
    let trace = database();
    let short = ReportOptions {
        probe: Some(ProbeId(0)),
        slowest: 2,
        top: 1,
        ..ReportOptions::default()
    };
    let report = build(&trace, &short).unwrap();
    let probe = &report.probes[0];
    let lengths = (probe.slowest.len(), probe.spread.len(), probe.largest.len());
    assert_eq!(lengths, (2, 1, 1));
    let other = ReportOptions {
        probe: Some(ProbeId(7)),
        ..short
    };
    let error = build(&trace, &other).unwrap_err();
    assert!(matches!(error, ReportError::NoProbe { .. }));
    assert!(error.hint().unwrap().contains("sqlite3_step"));
}

/// A trace without visits gives a report that says so.
#[test]
fn empty_trace() {
    let trace = maker(run_info("./app:f", "k", ArgType::U64)).finish(&[]);
    let report = build(&trace, &ReportOptions::default()).unwrap();
    assert_eq!(report.probes[0].duration, None);
    let text = text::render(&report);
    assert!(text.starts_with("./app:f: 0 items in 1.00 us\n"), "{text}");
    assert!(!text.contains("NaN"), "{text}");
}
/// Items that have several visits are not called visits, and visits are not called items.
#[test]
fn visits_of_fewer_items() {
    let mut report = report(database, &ReportOptions::default());
    report.probes[0].items = Some(500);
    let text = text::render(&report);
    assert!(text.contains(": 500 items in 1,000 visits in "), "{text}");
    assert!(text.contains("5 visits of "), "{text}");
    report.probes[0].items = Some(2);
    assert!(text::render(&report).contains(": 1,000 visits with 2 ids in "));
    report.probes[0].items = None;
    assert!(text::render(&report).contains(": 1,000 visits in "));
}

/// Functions that have too few samples each are a cause together, in the report as in an explanation.
#[test]
fn many_small_functions() {
    let mut maker = maker(run_info("/usr/bin/node:handle", "n", ArgType::I64));
    for i in 0..2_000_i64 {
        let usual = Ran(1, 9_000 + i * 37 % 2_000);
        let parser = Ran(2 + (i / 200) as u32, 80_000);
        let did: &[Did] = if i % 200 == 60 {
            &[usual, parser]
        } else {
            &[usual]
        };
        maker.visit(&made(i, did));
    }
    let names: Vec<String> = (0..10).map(|n| format!("parse{n}")).collect();
    let parsers = (2..)
        .zip(&names)
        .map(|(id, name)| (id, &**name, "/usr/bin/node"));
    let functions: Vec<_> = parsers.chain([(1, "handle", "/usr/bin/node")]).collect();
    let made = maker.finish(&functions);
    let text = text::render(&build(&made, &ReportOptions::default()).unwrap());
    let explained = explain(&made, &ExplainOptions::default()).unwrap();
    let explained = crate::out::explain::text::render(&explained);
    for text in [text, explained] {
        assert!(
            text.contains("slow because: in functions of node 100 %"),
            "{text}"
        );
        assert!(!text.contains("\n  parse3 "), "{text}");
    }
}

/// Functions that are joined where slow items are compared stand by themselves in the list of all items.
#[test]
fn joined_functions_are_listed() {
    let mut maker = maker(run_info("/usr/bin/node:handle", "n", ArgType::I64));
    for i in 0..2_000_i64 {
        let usual = Ran(1, 9_000 + i * 37 % 2_000);
        let parser = Ran(2 + (i / 500) as u32, 40_000);
        let did: &[Did] = if i % 200 == 60 {
            &[usual, parser]
        } else {
            &[usual]
        };
        maker.visit(&made(i, did));
    }
    let names: Vec<String> = (0..4).map(|n| format!("parse{n}")).collect();
    let parsers = (2..)
        .zip(&names)
        .map(|(id, name)| (id, &**name, "/usr/bin/node"));
    let functions: Vec<_> = parsers.chain([(1, "handle", "/usr/bin/node")]).collect();
    let report = build(&maker.finish(&functions), &ReportOptions::default()).unwrap();
    let probe = &report.probes[0];
    let joined = probe.spread.iter().any(|row| row.function.is_module());
    assert!(joined, "{:?}", probe.spread);
    let of_all = probe.largest.iter().map(|row| row.function.name.as_deref());
    let of_all: Vec<_> = of_all.flatten().collect();
    for name in ["parse0", "handle"] {
        let apart = probe
            .spread
            .iter()
            .all(|row| row.function.name.as_deref() != Some(name));
        assert!(apart && of_all.contains(&name), "{name}: {of_all:?}");
    }
}

/// Functions of one pattern that call each other are named; the other way round, a function that calls itself is not.
#[test]
fn nested_visits() {
    let mut report = report(database, &ReportOptions::default());
    let overlapped = visit_flag::name(visit_flag::OVERLAPPED);
    report.probes[0].flags = vec![FlagCount {
        flag: overlapped,
        visits: 990,
    }];
    let site = |place: &str| SiteInfo {
        path: "/app".to_owned(),
        place: place.to_owned(),
        file_offset: 0,
        role: "begin".to_owned(),
        kind: "uprobe".to_owned(),
        instruction: String::new(),
        class: EntryClass::Emulated,
    };
    report.run.probes[0].sites = vec![site("a::outer+0x4"), site("a::operator+")];
    let text = text::render(&report);
    assert!(text.contains("call each other"), "{text}");
    assert!(text.contains("a::outer, a::operator+"), "{text}");
    report.run.probes[0].sites = vec![site("again+0x4"), site("again+0x8")];
    assert!(!text::render(&report).contains("call each other"));
}

/// A bound on the overhead is reported with the result, known or unknown.
#[test]
fn bound_on_the_overhead() {
    let mut report = report(database, &ReportOptions::default());
    let bound = OverheadInfo {
        event: EventId(0),
        most: 0.02,
        by_default: false,
        least_reset: 16_000,
        most_reset: 1_600_000,
        reset: 640_007,
        last: Some(0.0151),
        last_marks: Some(0.001),
        marks_alone: false,
        extra: None,
    };
    let change = ResetChange {
        time_ns: TraceNs(90_000),
        event: EventId(0),
        old: 16_000,
        new: 640_007,
        overhead: Some(4.3),
    };
    let mut line = |bound, resets| {
        (report.run.max_overhead, report.run.resets) = (Some(bound), resets);
        let text = text::page(&report, 300).plain();
        let line = text.lines().find(|line| line.starts_with("  slow-down"));
        line.unwrap_or_default().trim_start().to_owned()
    };
    assert_eq!(
        line(bound, vec![change]),
        "slow-down limit 2.0 %; last measured 1.5 %; a sample every 640 us after 1 change"
    );
    let early = OverheadInfo {
        last: change.overhead,
        ..bound
    };
    assert_eq!(
        line(early, vec![change]),
        "slow-down limit 2.0 %; 430 % before the last change (too little ran after it); \
         a sample every 640 us after 1 change"
    );
    let unknown = OverheadInfo {
        last: None,
        last_marks: None,
        reset: 16_000,
        ..bound
    };
    assert_eq!(
        line(unknown, vec![]),
        "slow-down limit 2.0 %; last measured - (too little ran); a sample every 16.0 us after 0 changes"
    );
    let alone = OverheadInfo {
        last: Some(0.09),
        last_marks: Some(0.081),
        marks_alone: true,
        reset: 1_600_000,
        ..bound
    };
    assert_eq!(
        line(alone, vec![change; 2]),
        "slow-down limit 2.0 %; last measured 9.0 %; a sample every 1.60 ms after 2 changes; marks alone cost more (8.1 %)"
    );
    let extra = Extra {
        share: 0.162,
        limit: Some(ExtraLimit::Marks),
        samples: 30,
        slowest: 0.01,
        takes_ns: 4.5e10,
    };
    let alone = OverheadInfo {
        by_default: true,
        extra: Some(extra),
        ..alone
    };
    assert!(line(alone, vec![]).ends_with(
        "(8.1 %); samples may add 16 % (twice what marks cost), with which the slowest 1.0 % of the items have 30 in 45.0 s"
    ));
}
