//! Every reader of a trace returns the same number for the same question.

use serde_json::Value;

use super::{NetOnCpu, Rank};
use crate::compare::diff::{DiffOptions, diff};
use crate::compare::explain::{ExplainOptions, Unit, explain};
use crate::compare::losses::LossVisits;
use crate::compare::report::{ReportOptions, build};
use crate::compare::select::{Bound, Request, Selection, choose};
use crate::out::view::data::Data;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, VisitFixture, info};
use crate::store::reader::Trace;
use crate::store::schema::visit_flag;
use crate::units::ProbeId;

const SPEC: &str = "/usr/bin/server:handle(n=arg2, key=str(arg1))";

/// Figures that one reader shows for a trace; `None`: it does not show them.
#[derive(Debug, Default)]
struct ReaderFigures {
    by: &'static str,
    slow: Option<f64>,
    slow_from: Option<f64>,
    typical: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    /// Time per slow and per typical item of function 2.
    function: Option<(f64, f64)>,
    gap: Option<f64>,
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn page(trace: &Trace) -> Value {
    let mut out = Vec::new();
    crate::out::html::write(trace, None, LossVisits::LeaveOut, String::new(), &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let data = page.split("type=\"application/json\"").nth(1).unwrap();
    let data = &data[data.find('{').unwrap()..data.find("</script>").unwrap()];
    serde_json::from_str(data).unwrap()
}

/// Figures of all readers, for the only probe of a trace.
fn figures(trace: &Trace) -> Vec<ReaderFigures> {
    let report = serde_json::to_value(build(trace, &ReportOptions::default()).unwrap()).unwrap();
    let of = &report["probes"][0];
    let row = of["spread"].as_array().unwrap().iter();
    let row = row.filter(|it| it["state"].is_null() && it["function"]["function_id"] == 2);
    let in_report = ReaderFigures {
        by: "report",
        slow: number(&of["slow"]["visits"]),
        slow_from: number(&of["slow"]["from_ns"]),
        typical: number(&of["typical"]["visits"]),
        p50: number(&of["duration"]["p50_ns"]),
        p99: number(&of["duration"]["p99_ns"]),
        function: row
            .map(|it| (&it["slow"]["per_visit"], &it["typical"]["per_visit"]))
            .map(|it| (number(it.0).unwrap_or(0.0), number(it.1).unwrap_or(0.0)))
            .next(),
        gap: number(&of["slow"]["mean_ns"])
            .zip(number(&of["typical"]["mean_ns"]))
            .map(|(slow, typical)| slow - typical),
    };
    let options = ExplainOptions {
        unit: Some(Unit::Visit),
        ..ExplainOptions::default()
    };
    let explained = serde_json::to_value(explain(trace, &options).unwrap()).unwrap();
    let of = &explained["probes"][0]["whole"];
    let causes = of["gap"]["causes"].as_array().unwrap().iter();
    let cause = causes.filter(|it| it["kind"] == "function" && it["function"]["function_id"] == 2);
    let in_explain = ReaderFigures {
        by: "explain",
        slow: number(&of["slow"]["items"]),
        slow_from: number(&of["slow"]["from_ns"]),
        typical: number(&of["typical"]["items"]),
        p50: number(&of["duration"]["p50_ns"]),
        p99: number(&of["duration"]["p99_ns"]),
        function: cause
            .map(|it| {
                let of = |key: &str| number(&it[key]).unwrap();
                (of("slow_ns"), of("typical_ns"))
            })
            .next(),
        gap: number(&of["gap"]["gap_ns"]),
    };
    let view = Data::read(trace, (10, None), LossVisits::LeaveOut).unwrap();
    let of = &view.groups[0].report;
    let (slow, typical) = (of.slow.as_ref().unwrap(), of.typical.as_ref().unwrap());
    let row = of.spread.iter();
    let row = row.filter(|it| it.state.is_none() && it.function.function_id == Some(2));
    let in_view = ReaderFigures {
        by: "view",
        slow: Some(slow.visits as f64),
        slow_from: Some(slow.from_ns as f64),
        typical: Some(typical.visits as f64),
        p50: of.duration.map(|it| it.p50_ns as f64),
        p99: of.duration.map(|it| it.p99_ns as f64),
        function: row
            .map(|it| {
                (
                    it.slow.per_visit.unwrap_or(0.0),
                    it.typical.per_visit.unwrap_or(0.0),
                )
            })
            .next(),
        gap: Some(slow.mean_ns - typical.mean_ns),
    };
    let page = page(trace);
    let count = |column: &str| {
        let values = page["visits"][column].as_array().unwrap().iter();
        values.filter(|it| **it == 1).count() as f64
    };
    let in_html = ReaderFigures {
        by: "html",
        slow: Some(count("slow")),
        slow_from: number(&page["probes"][0]["slow_from"]),
        typical: Some(count("typical")),
        p50: number(&page["probes"][0]["p50"]),
        p99: number(&page["probes"][0]["p99"]),
        ..ReaderFigures::default()
    };
    let request = Request {
        selection: Selection::All,
        slow: None,
        losses: LossVisits::LeaveOut,
        lossy: false,
        open: false,
        bound: None::<Bound>,
    };
    let chosen = choose(trace, &request).unwrap();
    let classes = &chosen.classes[&0];
    let typical = (0..100_000).filter(|visit| chosen.typical.contains(*visit));
    let in_export = ReaderFigures {
        by: "export",
        slow: Some(classes.slow as f64),
        slow_from: classes.limit.as_ref().map(|it| it.from_ns as f64),
        typical: Some(typical.count() as f64),
        p50: Some(classes.quantiles.p50_ns as f64),
        p99: Some(classes.quantiles.p99_ns as f64),
        ..ReaderFigures::default()
    };
    let same = diff(trace, trace, &DiffOptions::default()).unwrap();
    let of = |figure: &str| {
        let found = same.probes[0]
            .durations
            .iter()
            .find(|it| it.figure == figure);
        found.map(|it| it.change.before_ns)
    };
    let in_diff = ReaderFigures {
        by: "diff",
        p50: of("p50"),
        p99: of("p99"),
        ..ReaderFigures::default()
    };
    vec![in_report, in_explain, in_view, in_html, in_export, in_diff]
}

/// Compares the readers pairwise; returns the number of comparisons.
fn agree(trace: &Trace) -> usize {
    let all = figures(trace);
    let mut compared = 0;
    for (at, a) in all.iter().enumerate() {
        for b in &all[at + 1..] {
            let of = |it: &ReaderFigures| {
                [
                    ("slow", it.slow),
                    ("slow from", it.slow_from),
                    ("typical", it.typical),
                    ("p50", it.p50),
                    ("p99", it.p99),
                    ("function in slow", it.function.map(|it| it.0)),
                    ("function in typical", it.function.map(|it| it.1)),
                    ("gap", it.gap),
                ]
            };
            for ((what, a_says), (_, b_says)) in of(a).into_iter().zip(of(b)) {
                if let (Some(x), Some(y)) = (a_says, b_says) {
                    compared += 1;
                    let same = (x - y).abs() <= x.abs().max(y.abs()) * 1e-9;
                    assert!(same, "{what}: {} says {x}, {} says {y}", a.by, b.by);
                }
            }
        }
    }
    compared
}

/// A server where every hundredth item rehashes and waits; some visits are lost, never end, or overlap a loss.
fn server(maker: &mut Maker, slow: u64) {
    let mut random = SplitMix64::new(11);
    for i in 0..4_000_u64 {
        let usual = Ran(1, 40_000 + i64::from(random.below(20_000)));
        let part = Ran(2, 10_000 + i64::from(random.below(20_000)));
        let mut made = VisitFixture::new(9, &format!("key:{i}"), &[usual, part]);
        if slow > 0 && i % slow == slow / 2 {
            made.did = vec![
                usual,
                Ran(2, 290_000 + i64::from(random.below(20_000))),
                Waited(4, "uninterruptible", 190_000),
            ];
        }
        made.flags = match i % 500 {
            7 => visit_flag::LOSS,
            8 => visit_flag::END_MISSING,
            _ => 0,
        };
        maker.visit(&made);
    }
}

const FUNCTIONS: [(u32, &str, &str); 3] = [
    (1, "parse", "/usr/bin/server"),
    (2, "rehash", "/usr/bin/server"),
    (4, "fdatasync", "/lib/libc.so.6"),
];

/// All readers agree on slow items, found by a gap or by the 99th percentile.
#[test]
fn one_number_for_one_question() {
    for slow in [100, 0] {
        let mut maker = Maker::new(info(&[SPEC]));
        server(&mut maker, slow);
        let trace = maker.finish(&FUNCTIONS);
        let report = build(&trace, &ReportOptions::default()).unwrap();
        assert_eq!(report.probes[0].left_out_open, 8);
        assert_eq!(report.probes[0].left_out_loss, 8);
        let compared = agree(&trace);
        assert!(compared > 55, "{compared}");
    }
}

/// If most visits never end, no reader names a cause, and the text gives the reason.
#[test]
fn most_never_end() {
    let spec = "/usr/bin/server:handle(n=arg2, key=str(arg1))..done";
    let mut maker = Maker::new(info(&[spec]));
    let mut random = SplitMix64::new(3);
    for i in 0..400_u64 {
        let mut made =
            VisitFixture::new(1, "k", &[Ran(1, 50_000 + i64::from(random.below(90_000)))]);
        made.flags = if i % 20 == 0 {
            0
        } else {
            visit_flag::END_MISSING
        };
        maker.visit(&made);
    }
    let trace = maker.finish(&FUNCTIONS);
    let why = "380 of 400 items never ended: the end is on another thread, give it id=";
    let report = build(&trace, &ReportOptions::default()).unwrap();
    assert_eq!(
        report.probes[0]
            .never_ended
            .map(|it| it.to_string())
            .as_deref(),
        Some(why)
    );
    assert!(report.probes[0].slow.is_none() && report.probes[0].spread.is_empty());
    let text = crate::out::report::text::render(&report);
    assert!(text.contains(why) && !text.contains("carried"), "{text}");
    let explained = explain(&trace, &ExplainOptions::default()).unwrap();
    let whole = explained.probes[0].whole.as_ref().unwrap();
    assert!(whole.gap.is_none() && whole.because.is_empty() && whole.variance.is_none());
    assert_eq!(
        whole
            .too_little
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some(why)
    );
    let text = crate::out::explain::text::render(&explained);
    assert!(text.contains(why), "{text}");
}

/// pebs-trace's own work is not a function of any reader.
#[test]
fn own_work_is_in_no_profile() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..4_000_u64 {
        let slow = if i % 100 == 50 { 400_000 } else { 0 };
        let did = [Ran(1, 50_000), Ran(2, 20_000 + slow), Ran(3, 40_000 + slow)];
        maker.visit(&VisitFixture::new(9, &format!("key:{i}"), &did));
    }
    let functions = [
        FUNCTIONS[0],
        FUNCTIONS[1],
        (3, "own marks and samples", "[pebs-trace]"),
    ];
    let trace = maker.finish(&functions);
    assert_eq!(trace.own_function().unwrap(), Some(3));
    let mut written = vec![
        serde_json::to_string(&build(&trace, &ReportOptions::default()).unwrap()).unwrap(),
        serde_json::to_string(&explain(&trace, &ExplainOptions::default()).unwrap()).unwrap(),
        page(&trace).to_string(),
    ];
    for format in [
        crate::out::export::Format::Folded,
        crate::out::export::Format::Speedscope,
    ] {
        let mut out = Vec::new();
        let asked = (Selection::All, LossVisits::LeaveOut);
        crate::out::export::export(&trace, format, asked, &mut out).unwrap();
        written.push(String::from_utf8(out).unwrap());
    }
    for text in written {
        assert!(
            text.contains("rehash") && !text.contains("own marks and samples"),
            "{text}"
        );
    }
}

/// The DuckDB views give the same figures as the report.
#[test]
fn views_give_the_same() {
    let Some(python) = std::env::var_os("PEBS_TRACE_PYTHON") else {
        println!(
            "SKIP no Python with duckdb: PEBS_TRACE_PYTHON names it (cargo xtask test sets it)"
        );
        return;
    };
    let parent = tempfile::tempdir().unwrap();
    let mut maker = Maker::within(&parent.path().join("it's"), info(&[SPEC]));
    server(&mut maker, 100);
    let trace = maker.finish(&FUNCTIONS);
    let mut views = Vec::new();
    let asked = (Selection::All, LossVisits::LeaveOut);
    crate::out::export::export(&trace, crate::out::export::Format::Views, asked, &mut views)
        .unwrap();
    let file = parent.path().join("views.sql");
    std::fs::write(&file, views).unwrap();
    // The tables, as the comments in the file describe.
    let script = "
import duckdb, json, sys
text = open(sys.argv[1]).read()
for line in text.splitlines():
    if line.startswith('--   create view'):
        duckdb.sql(line[2:])
duckdb.sql(text)
sums = duckdb.sql('select class, items, duration_ns from class_sums order by class').fetchall()
of = lambda view, name: dict(duckdb.sql(f\"select class, ns_per_item from {view} where name = '{name}'\").fetchall())
print(json.dumps([sums, of('pooled_functions', 'rehash'), of('pooled_waits', 'fdatasync')]))";
    let ran = std::process::Command::new(python)
        .args(["-c", script])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let sums: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ran.stderr)));
    let report = build(&trace, &ReportOptions::default()).unwrap();
    let of = &report.probes[0];
    let (slow, typical) = (of.slow.as_ref().unwrap(), of.typical.as_ref().unwrap());
    let items = |class: &str| {
        let mut rows = sums[0].as_array().unwrap().iter();
        let found = rows.find(|it| it[0] == class).unwrap();
        (found[1].as_u64().unwrap(), found[2].as_f64().unwrap())
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() <= a.abs().max(b.abs()) * 1e-9, "{a} {b}");
    assert_eq!(items("slow").0, slow.visits);
    assert_eq!(items("typical").0, typical.visits);
    assert_eq!(items("all").0, of.counted);
    near(items("slow").1, slow.mean_ns);
    near(items("typical").1, typical.mean_ns);
    let row = |state: Option<&str>, id: u32| {
        let found = of.spread.iter();
        let mut found = found.filter(|it| it.function.function_id == Some(id));
        found.find(|it| it.state.as_deref() == state).unwrap()
    };
    let rehash = row(None, 2);
    near(
        sums[1]["slow"].as_f64().unwrap(),
        rehash.slow.per_visit.unwrap(),
    );
    near(
        sums[1]["typical"].as_f64().unwrap(),
        rehash.typical.per_visit.unwrap(),
    );
    let disk = row(Some("uninterruptible"), 4);
    near(
        sums[2]["slow"].as_f64().unwrap(),
        disk.slow.per_visit.unwrap(),
    );
}

/// Time on the CPU is no longer than the visit's net time, also where own time is that of visits nested in it.
#[test]
fn net_on_cpu() {
    let net = NetOnCpu {
        sample_ns: 10_000.0,
        marks_ns: vec![(ProbeId(0), 2_000.0)],
    };
    let rank = |ns, own_ns, samples| Rank {
        ns,
        own_ns,
        samples,
    };
    assert_eq!(net.net(30_000, rank(18_000, 12_000, 1), (0, 0)), 18_000);
    let nested = (0, visit_flag::OVERLAPPED);
    assert_eq!(net.net(20_000, rank(18_000, 12_000, 1), nested), 8_000);
    // 5 us of marks, of which 2 us are its own.
    assert_eq!(net.net(19_500, rank(15_000, 5_000, 0), nested), 15_000);
    assert_eq!(net.net(500, rank(0, 5_000, 0), nested), 0);
}
