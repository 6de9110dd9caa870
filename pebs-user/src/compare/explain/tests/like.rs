//! Items that are slow for their kind, though others with larger arguments take longer.

use super::{FUNCTIONS, SPEC};
use crate::compare::classes::RankBy;
use crate::compare::explain::explain;
use crate::compare::explain::model::ProbeExplanation;
use crate::compare::explain::request::ExplainOptions;
use crate::compare::report;
use crate::compare::report::request::ReportOptions;
use crate::out;
use crate::out::explain::text;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};

/// 6,000 queries for 1, 2, 5, 10, 20 or 50 rows, 1 us each and up to 5 % more; `cold` of those for one row load it in 35
/// to 40 us. Of 100 queries `waiting` wait for a CPU. With `many`, numbers of rows are any from 1 to 60.
fn queries((cold, many, waiting): (u64, bool, u32), seed: u64) -> TestTrace {
    let mut random = SplitMix64::new(seed);
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..6_000_u64 {
        let is_cold = cold > 0 && i % (6_000 / cold) == 17;
        let rows = match many {
            _ if is_cold => 1,
            true => 1 + u64::from(random.below(60)),
            false => [1, 2, 5, 10, 20, 50][random.below(6) as usize],
        };
        let took = rows as i64 * 1_000;
        let mut did = vec![Ran(1, took + i64::from(random.below((took / 20) as u32)))];
        if is_cold {
            did.push(Ran(2, 35_000 + i64::from(random.below(5_000))));
        }
        if random.below(100) < waiting {
            did.push(Waited(1, "runnable", 40_000 << random.below(7)));
        }
        maker.visit(&VisitFixture::new(rows, "k", &did));
    }
    maker.finish(&FUNCTIONS)
}

fn explained(trace: &TestTrace) -> (ProbeExplanation, String) {
    let explained = explain(trace, &ExplainOptions::default()).unwrap();
    let text = text::render(&explained);
    (explained.probes[0].clone(), text)
}

/// Cold queries for one row take less time than warm ones for fifty, and are what is said first, by `explain` and by the
/// report, with the function that loads.
#[test]
fn cold_queries_come_first() {
    for (many, waiting) in [(false, 0), (true, 0), (false, 5)] {
        let trace = queries((12, many, waiting), 1);
        let (probe, said) = explained(&trace);
        let first = &probe.slow_for_kind[0];
        let slow = first.slow.as_ref().unwrap();
        assert_eq!(slow.items, 12, "{said}");
        assert_eq!(first.by, RankBy::CpuTime, "{said}");
        let cause = &first.gap.as_ref().unwrap().causes[0];
        assert_eq!(cause.function.function_id, Some(2), "{said}");
        // Those of a range are compared with queries for more rows.
        assert!((0.85..1.2).contains(&cause.figures.share), "{said}");
        let line = said.lines().nth(1).unwrap();
        assert!(line.starts_with("slow for n"), "{said}");
        assert!(line.contains("12 items, "), "{said}");
        let report = report::build(&trace, &ReportOptions::default()).unwrap();
        assert_eq!(report.probes[0].slow_for_kind, probe.slow_for_kind);
        let report = out::report::text::render(&report);
        assert_eq!(report.lines().nth(1), Some(line), "{report}");
    }
}

/// A single one is named.
#[test]
fn one_cold_query() {
    let (probe, said) = explained(&queries((1, false, 0), 3));
    let slow = probe.slow_for_kind[0].slow.as_ref().unwrap();
    assert_eq!(slow.items, 1, "{said}");
    assert!(said.contains("slow for n=1: 1 item,"), "{said}");
}

/// If no item is slow for its kind, or those that are are slow among all, there is no second sentence.
#[test]
fn nothing_to_add() {
    for seed in 0..6 {
        let (probe, said) = explained(&queries((0, seed % 2 == 0, 0), seed));
        assert!(probe.slow_for_kind.is_empty(), "{seed}: {said}");
    }
    let (probe, said) = explained(&super::server());
    assert!(probe.slow_for_kind.is_empty(), "{said}");
}
