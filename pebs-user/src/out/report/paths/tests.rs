use super::{csv, text};
use crate::compare::report::ReportOptions;
use crate::compare::report::model::Cell;
use crate::compare::report::paths::*;
use crate::present::json;
use crate::store::fixtures::Did::Called;
use crate::store::fixtures::stacks::{SPEC, server, with_stacks};

fn built(options: &ReportOptions) -> PathReport {
    let trace = server(with_stacks(), |_, stack, ns| Called(stack, ns));
    build(&trace, options).unwrap()
}

fn path(row: &PathRow) -> String {
    let frames = std::iter::once(&row.function).chain(&row.callers);
    let names = frames.map(|it| it.name.as_deref().unwrap_or("?"));
    names.collect::<Vec<_>>().join(" < ")
}

/// Means per visit by call path are the truth within their intervals, and sum to the function.
#[test]
fn means_by_path() {
    let report = built(&ReportOptions::default());
    let [section] = &report.sections[..] else {
        panic!("{report:?}")
    };
    assert_eq!(section.spec.as_deref(), Some(SPEC));
    assert_eq!((section.visits, section.slow_visits), (Some(4_000), 40));
    let [lookup, parse, rehash, rare] = &section.rows[..] else {
        panic!("{section:#?}")
    };
    assert_eq!((path(rare).as_str(), rare.others), ("compare", Some(1)));
    assert_eq!((rare.all.samples, rare.all.per_visit), (3, None));
    assert_eq!(path(parse), "parse < handle");
    assert_eq!(path(lookup), "compare < lookup < handle");
    assert_eq!(path(rehash), "compare < rehash < lookup < handle");
    let near = |cell: &Cell, truth: f64| {
        let (low, high) = (cell.low.unwrap(), cell.high.unwrap());
        assert!(low <= truth && truth <= high, "{truth}: {cell:?}");
    };
    near(&lookup.all, 41_000.0);
    near(&parse.all, 30_000.0);
    near(&rehash.all, 3_000.0);
    near(&rehash.slow, 300_000.0);
    assert_eq!(rehash.typical, Cell::default());
    assert!(lookup.typical.samples > 1_000, "{lookup:?}");
    assert!(lookup.known && !lookup.truncated && lookup.others.is_none());
}

/// If every sample has a call stack, the paths of a function sum to its figure in the report.
#[test]
fn as_the_report() {
    let trace = server(with_stacks(), |_, stack, ns| Called(stack, ns));
    let options = ReportOptions::default();
    let report = build(&trace, &options).unwrap();
    let rows = report.sections[0].rows.iter();
    let rows = rows.filter(|row| row.function.name.as_deref() == Some("compare"));
    let rows: Vec<Cell> = rows.map(|row| row.all).collect();
    let whole = crate::compare::report::build(&trace, &options).unwrap();
    let largest = whole.probes[0].largest.iter();
    let compare = largest
        .filter(|row| row.function.name.as_deref() == Some("compare"))
        .map(|row| row.all);
    let compare: Vec<Cell> = compare.collect();
    assert_eq!((rows.len(), compare.len()), (3, 1));
    let samples: u64 = rows.iter().map(|cell| cell.samples).sum();
    assert_eq!(samples, compare[0].samples);
    let mean: f64 = rows.iter().filter_map(|cell| cell.per_visit).sum();
    // 3 samples, of 10 us in 4,000 visits, are reported to be too few.
    assert!(
        (mean + 7.5 - compare[0].per_visit.unwrap()).abs() < 0.1,
        "{mean}"
    );
}

/// Text, CSV and JSON have the same content; for a trace without stacks the text says so.
#[test]
fn formats() {
    let report = built(&ReportOptions::default());
    let shown = text::render(&report, 1);
    assert!(
        shown.contains("compare <- lookup <- handle ")
            && shown.contains("(1 of 4; --top N lists more)"),
        "{shown}"
    );
    let csv = csv::render(&report);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    let columns = lines[0].split(',').count();
    assert!(
        lines[3].contains(",handle;lookup;rehash;compare,false,true,,ns,"),
        "{csv}"
    );
    assert!(
        lines.iter().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
    let json: serde_json::Value = serde_json::from_str(&json::render(&report).unwrap()).unwrap();
    assert_eq!(
        json["sections"][0]["rows"][2]["callers"][0]["name"],
        "rehash"
    );
    let mut without = with_stacks();
    without.call_graph = None;
    let trace = server(without, |_, stack, ns| Called(stack, ns));
    let none = build(&trace, &ReportOptions::default()).unwrap();
    assert!(none.sections.is_empty());
    assert!(text::render(&none, 9).starts_with("no sample of this trace has a call stack\nhint: "));
    assert_eq!(csv::render(&none).lines().count(), 1);
}
