//! Interruptions in a report.

use crate::compare::report::model::Report;
use crate::compare::report::{ReportOptions, build};
use crate::out::report::csv::{self, CsvTable};
use crate::out::report::text;
use crate::present::json;
use crate::store::fixtures::Did::Ran;
use crate::store::fixtures::{Maker, VisitFixture, info};

/// 400 items of 50 us and two of 800 us, a tenth of which are interrupts if recorded.
fn report(recorded: bool) -> Report {
    let mut maker = Maker::new(info(&["./app:handle(n=arg1, key=str(arg2))"]));
    maker.extras = recorded;
    for i in 0..402_u64 {
        let ns = if i % 201 == 100 { 800_000 } else { 50_000 };
        maker.visit(&VisitFixture::new(i, "k", &[Ran(1, ns)]));
    }
    let trace = maker.finish(&[(1, "handle", "/opt/app")]);
    build(&trace, &ReportOptions::default()).unwrap()
}

/// The means of slow and typical items are shown, and the excess of each slow item; page faults were not recorded.
#[test]
fn interruptions_of_classes() {
    let report = report(true);
    let probe = &report.probes[0];
    let rows = probe.interference.iter();
    let rows: Vec<_> = rows.map(|row| (row.what, row.slow, row.typical)).collect();
    assert_eq!(
        rows,
        [
            ("interrupts", Some(80_000.0), Some(5_000.0)),
            ("softirqs", Some(0.0), Some(0.0))
        ]
    );
    let text = text::render(&report);
    let list = text.split("interruptions, mean of one item; already part of the times above\n");
    let list = list.last().unwrap();
    let words =
        |line: usize| -> Vec<&str> { list.lines().nth(line).unwrap().split_whitespace().collect() };
    assert_eq!(words(0), ["slow", "typical", "part", "all"]);
    assert_eq!(
        words(1),
        [
            "interrupts",
            "80.0",
            "us",
            "5.00",
            "us",
            "10",
            "%",
            "5.37",
            "us"
        ]
    );
    assert_eq!(words(2)[0], "softirqs");
    assert_eq!(list.matches(", interrupts 80.0 us").count(), 2, "{text}");
    let json: serde_json::Value = serde_json::from_str(&json::render(&report).unwrap()).unwrap();
    let slowest = &json["probes"][0]["slowest"][0];
    assert_eq!(slowest["irq_ns"], 80_000);
    assert!(slowest["fault_ns"].is_null() && slowest["major_faults"].is_null());
    let csv = csv::render(&report, CsvTable::Items);
    assert!(
        csv.lines()
            .next()
            .unwrap()
            .contains(",page_faults,irq_ns,softirq_ns,fault_ns,reclaim_ns,major_faults,n,")
    );
    assert!(csv.lines().nth(1).unwrap().contains(",80000,0,,,"), "{csv}");
}

/// Without them the report has no lines on interruptions.
#[test]
fn not_recorded() {
    let report = report(false);
    assert!(report.probes[0].interference.is_empty());
    assert!(!text::render(&report).contains("interruptions"));
}
