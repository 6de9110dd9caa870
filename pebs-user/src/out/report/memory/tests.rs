use super::{csv, text};
use crate::compare::losses::LossVisits;
use crate::compare::report::ReportOptions;
use crate::compare::report::memory::*;
use crate::present::json;
use crate::store::fixtures::{Did, Maker, TestTrace, VisitFixture, info};
use crate::store::schema::{MemoryRow, SampleRow, visit_flag};
use crate::units::{CountUnit, Cpu, EventId, FunctionId, Tid, TraceNs};

/// Loads between two samples.
const RESET: u64 = 1_000;

/// An access of a visit's function 1.
fn access(visit_id: Option<u64>, n: u64, level: &'static str) -> MemoryRow<'static> {
    MemoryRow {
        time_ns: TraceNs(n.cast_signed()),
        visit_id,
        function_id: FunctionId(1),
        tid: Tid(7),
        event: EventId(0),
        events: Some(RESET),
        op: Some("load"),
        level: Some(level),
        snoop: None,
        tlb: Some("L1 hit"),
        locked: Some(false),
        blocked: None,
        latency_cycles: Some(if level == "L1 hit" { 5 } else { 200 }),
        op_cycles: None,
        retire_cycles: None,
        tlb_cycles: None,
        page_bytes: None,
        taken: None,
        mispredicted: None,
        addr: Some(n),
        phys_addr: None,
        data_src: None,
        pid: None,
        bytes: None,
        data_symbol: None,
        data_object: None,
        data_offset: None,
    }
}

fn sample(row: &MemoryRow<'_>) -> SampleRow {
    SampleRow {
        time_ns: row.time_ns,
        visit_id: row.visit_id,
        function_id: row.function_id,
        ip: 0x1000,
        tid: row.tid,
        cpu: Cpu(0),
        event: row.event,
        flags: 0,
        stack_id: None,
    }
}

/// 200 items, 2 of them slow: those have 20 samples of loads from memory, all others one from the
/// first level; 3 samples in no item, 2 in an item that overlaps a loss.
fn trace() -> TestTrace {
    let mut run = info(&["app:req"]);
    run.events[0].name = "mem-loads".to_owned();
    run.events[0].unit = CountUnit::Events;
    run.events[0].reset = RESET;
    let mut maker = Maker::new(run);
    let mut rows = Vec::new();
    for n in 0..200_u64 {
        let slow = n % 100 == 50;
        let lost = n == 7;
        let mut made =
            VisitFixture::new(n, "", &[Did::Ran(1, if slow { 900_000 } else { 10_000 })]);
        made.flags = if lost { visit_flag::LOSS } else { 0 };
        maker.visit(&made);
        let (count, level) = match (slow, lost) {
            (true, _) => (20, "RAM hit"),
            (_, true) => (2, "L3 hit"),
            _ => (1, "L1 hit"),
        };
        rows.extend((0..count).map(|i| access(Some(n + 1), n * 100 + i, level)));
    }
    rows.extend((0..3).map(|i| access(None, 90_000 + i, "L2 hit")));
    for row in rows {
        maker.add(sample(&row));
        maker.add(row);
    }
    // A sample without data on its access.
    maker.add(sample(&access(None, 99_000, "")));
    maker.finish(&[(1, "copy", "/bin/app")])
}

fn built(options: &ReportOptions) -> MemoryReport {
    build(&trace(), options).unwrap()
}

/// Samples x reset value, per item of each class, with the error of independent samples.
#[test]
fn counts_and_errors() {
    let report = built(&ReportOptions::default());
    let [event] = &report.events[..] else {
        panic!("{report:?}")
    };
    assert_eq!(
        (event.samples, event.with_access, event.left_out),
        (243, 242, 2)
    );
    let [items, outside] = &event.sections[..] else {
        panic!("{event:?}")
    };
    assert_eq!((items.probe_id, outside.probe_id), (Some(0), None));
    assert_eq!((items.visits, items.slow_visits), (Some(199), Some(2)));
    let [l1, ram] = &items.rows[..] else {
        panic!("{items:?}")
    };
    assert_eq!(
        (l1.level.as_deref(), ram.level.as_deref()),
        (Some("L1 hit"), Some("RAM hit"))
    );
    assert_eq!(l1.function.name.as_deref(), Some("copy"));
    assert_eq!((l1.all.samples, l1.all.events), (197, Some(197_000.0)));
    assert_eq!(l1.all.per_visit, Some(197_000.0 / 199.0));
    assert_eq!(l1.slow, AccessCell::default());
    assert_eq!((ram.slow.samples, ram.slow.per_visit), (40, Some(20_000.0)));
    let error = ram.slow.events_stderr.unwrap();
    assert!((error - 1000.0 * 40_f64.sqrt()).abs() < 1e-6, "{error}");
    assert_eq!((l1.all.latency_p50, l1.all.latency_p99), (Some(5), Some(5)));
    assert!(ram.slow.latency_p50.unwrap().abs_diff(200) <= 3);
    // Too few samples: their number, no estimate.
    assert_eq!(
        (outside.rows[0].all.samples, outside.rows[0].all.events),
        (3, None)
    );
}

/// Visits that overlap a loss count if asked for; with a single probe selected, samples outside of
/// visits are not listed.
#[test]
fn options() {
    let all = built(&ReportOptions {
        losses: LossVisits::Include,
        ..ReportOptions::default()
    });
    assert_eq!(all.events[0].left_out, 0);
    assert_eq!(all.events[0].sections[0].visits, Some(200));
    let one = built(&ReportOptions {
        probe: Some(crate::units::ProbeId(0)),
        ..ReportOptions::default()
    });
    assert_eq!(one.events[0].sections.len(), 1);
}

/// The three formats agree; for a trace without accesses the text names the options that record some.
#[test]
fn forms() {
    let report = built(&ReportOptions::default());
    let text = text::render(&report, 10);
    for part in [
        "mem-loads every 1,000: 243 samples, 242 with their memory access",
        "; 2 in items that are left out",
        "app:req, events per visit",
        "load RAM hit",
        "20.0 k",
        "in no item, events",
    ] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    assert!(text::render(&report, 1).contains("1 of 2 kinds; --top N lists more"));
    let csv = csv::render(&report);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 4);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
    assert!(lines[2].starts_with("mem-loads,0,1,copy,"), "{csv}");
    assert!(lines[2].contains(",load,RAM hit,,L1 hit,false,40,40000,"));
    let json: serde_json::Value = serde_json::from_str(&json::render(&report).unwrap()).unwrap();
    let row = &json["events"][0]["sections"][0]["rows"][1];
    assert_eq!(row["slow"]["per_visit"], 20_000.0);
    let empty = Maker::new(info(&["app:req"])).finish(&[]);
    let report = build(&empty, &ReportOptions::default()).unwrap();
    assert!(report.events.is_empty());
    assert!(text::render(&report, 10).contains("hint: record page-faults"));
    assert_eq!(csv::render(&report).lines().count(), 1);
}
