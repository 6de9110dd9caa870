//! Events beside times, of synthetic traces.

use super::*;
use crate::compare::explain::model::EventFigures;
use crate::compare::names::FunctionName;
use crate::compare::report::model::{EventCells, Row};
use crate::store::run::EventInfo;
use crate::store::schema::VisitFunctionRow;

/// Items, of which every 20th is slow.
const ITEMS: u64 = 400;

/// Faults of `rehash` in a slow item, and in any other.
const FAULTS: (u32, u32) = (30, 1);

/// A clock beside an event each of which is a sample, one every 100 of which is, and one sampled by frequency.
fn described() -> crate::store::run::RunInfo {
    let mut info = info(&[SPEC]);
    let clock = info.events[0].clone();
    let more = [
        ("page-faults", 1, None),
        ("misses", 100, None),
        ("by-frequency", 1, Some(4_000)),
    ];
    let more = (1..)
        .zip(more)
        .map(|(id, (name, reset, frequency))| EventInfo {
            id: EventId(id),
            name: name.to_owned(),
            reset,
            frequency,
            unit: match frequency {
                Some(_) => CountUnit::Samples,
                None => CountUnit::Events,
            },
            ..clock.clone()
        });
    info.events.extend(more);
    info
}

/// `rehash` has time and faults, `parse` time and, in slow items, misses, `rare` two faults and no time.
fn traced() -> TestTrace {
    let mut maker = Maker::new(described());
    for i in 0..ITEMS {
        let is_slow = i % 20 == 10;
        let usual = Ran(1, 40_000 + (i as i64 % 7) * 1_000);
        let did = match is_slow {
            true => vec![usual, Ran(2, 300_000 + i as i64 * 10)],
            false => vec![usual, Ran(2, 5_000)],
        };
        maker.visit(&VisitFixture::new(i % 4, "key", &did));
        let end = TraceNs(maker.now);
        let faults = if is_slow { FAULTS.0 } else { FAULTS.1 };
        let mut rows = vec![(2, 1, faults, 1), (5, 1, 2, 1), (2, 3, 7, 0)];
        rows.extend(is_slow.then_some((1, 2, 3, 100)));
        // Too few samples to say anything.
        rows.extend((i == 30).then_some((3, 2, 4, 100)));
        for (function, event, samples, reset) in rows {
            maker.add(VisitFunctionRow {
                visit_id: i + 1,
                item_id: i + 1,
                function_id: FunctionId(function),
                event: EventId(event),
                samples,
                events: (reset > 0).then_some(u64::from(samples * reset)),
                first_ns: end,
                last_ns: end,
                span_ns: 0,
                self_ns: None,
                self_stderr_ns: None,
            });
        }
    }
    maker.finish(&FUNCTIONS)
}

fn is(function: &FunctionName, name: &str) -> bool {
    function.name.as_deref() == Some(name)
}

/// In slow and in typical items.
fn figures<'a>(gap: &'a Gap, name: &str) -> &'a [EventFigures] {
    let causes = gap.causes.iter().map(|it| (&it.function, &it.further));
    let others = gap.with_events.iter().map(|it| (&it.function, &it.further));
    let mut all = causes.chain(others);
    &all.find(|it| is(it.0, name)).unwrap().1[..]
}

/// Each event has its numbers in slow and in typical items beside a function's time; what is unknown is null.
#[test]
fn explained() {
    let trace = traced();
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let gap = group.gap.as_ref().unwrap();
    assert!((sum(gap) - 1.0).abs() < 1e-9);
    let [faults, misses, by_frequency] = figures(gap, "rehash") else {
        panic!("three events beside the clock")
    };
    assert_eq!((faults.slow, faults.typical), (Some(30.0), Some(1.0)));
    assert_eq!((faults.excess, faults.excess_low), (Some(29.0), Some(29.0)));
    assert_eq!((faults.slow_samples, misses.slow_samples), (600, 0));
    // No sample, but not every one is: unknown, not 0.
    assert_eq!((misses.slow, misses.excess), (None, None));
    assert_eq!((by_frequency.slow, by_frequency.slow_samples), (None, 140));
    let [parse, rare] = &gap.with_events[..] else {
        panic!("{:?}", gap.with_events)
    };
    assert!(is(&parse.function, "parse") && parse.slow_samples > 0);
    assert!(is(&rare.function, "rare") && rare.slow_samples == 0);
    let [faults, ..] = figures(gap, "rare") else {
        panic!("three events beside the clock")
    };
    assert_eq!((faults.slow, faults.typical), (Some(2.0), Some(2.0)));
    assert_eq!(faults.share, Some(2.0 / 32.0));
    let [_, misses, _] = figures(gap, "parse") else {
        panic!("three events beside the clock")
    };
    assert_eq!((misses.slow, misses.typical), (Some(300.0), Some(0.0)));
    let all: Vec<_> = group.further.iter().map(|it| it.slow).collect();
    assert_eq!(all, [Some(32.0), Some(320.0), None]);
    let json = serde_json::to_value(&explanation).unwrap();
    let note = &json["further_events"][2]["note"];
    assert!(note.as_str().unwrap().contains("by frequency"), "{note}");
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Visit(11)).unwrap();
    let [faults, ..] = figures(item.account.gap.as_ref().unwrap(), "rehash") else {
        panic!("three events beside the clock")
    };
    assert_eq!((faults.slow, faults.typical), (Some(30.0), Some(1.0)));
}

fn cells<'a>(rows: &'a [Row], name: &str) -> &'a [EventCells] {
    let row = rows.iter().find(|it| is(&it.function, name));
    &row.unwrap().further
}

/// The same in the report, of all items as well.
#[test]
fn reported() {
    let trace = traced();
    let report = report::build(&trace, &ReportOptions::default()).unwrap();
    let probe = &report.probes[0];
    let [faults, misses, by_frequency] = cells(&probe.largest, "rehash") else {
        panic!("three events beside the clock")
    };
    assert_eq!(faults.events, Some(980.0));
    let each = [faults.all, faults.slow, faults.typical].map(|it| it.per_visit);
    assert_eq!(each, [Some(2.45), Some(30.0), Some(1.0)]);
    assert_eq!(faults.all.share, Some(980.0 / 1_780.0));
    assert_eq!((misses.events, misses.all.per_visit), (None, None));
    assert_eq!(
        (by_frequency.events, by_frequency.all.samples),
        (None, 2_800)
    );
    let rare = probe.largest.iter().find(|it| is(&it.function, "rare"));
    assert_eq!(rare.unwrap().all.per_visit, None);
    assert_eq!(cells(&probe.largest, "rare")[0].events, Some(800.0));
    // Slow items have no more faults of it than others.
    assert!(!probe.spread.iter().any(|it| is(&it.function, "rare")));
    let misses = cells(&probe.largest, "parse")[1];
    assert_eq!(misses.events, Some(6_000.0));
    assert_eq!(misses.slow.per_visit, Some(300.0));
    let text = out::report::csv::render(&report, out::report::csv::CsvTable::Functions);
    let mut lines = text.lines().map(|it| it.split(',').count());
    let columns = lines.next().unwrap();
    assert!(lines.all(|it| it == columns), "{text}");
    assert!(text.contains(",page-faults slow_per_visit,"), "{text}");
}

/// Columns of events fall away on a narrow page, and no line is wider.
#[test]
fn within_the_page() {
    let trace = traced();
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Visit(11)).unwrap();
    let report = report::build(&trace, &ReportOptions::default()).unwrap();
    for width in [60, 80, 120, 200] {
        let pages = [
            text::page(&explanation, width),
            text::item::page(&item, width),
            out::report::text::page(&report, width),
        ];
        for page in pages.map(|it| it.plain()) {
            let wide = page.lines().find(|line| columns(line) > width);
            assert_eq!(wide, None, "{width} columns:\n{page}");
            let titles = ["page-faults", "page-faults  typical"].map(|it| page.contains(it));
            assert!(titles[0] || width < 80, "{page}");
            assert!(titles[1] || width < 200, "{page}");
            assert!(page.contains("by-frequency: sampled by"), "{page}");
        }
    }
}

/// Without a clock or a steady event there are no times, and events still have their numbers.
#[test]
fn without_times() {
    let mut described = described();
    described.events.remove(0);
    let mut maker = Maker::new(described);
    maker.each_function = |row| {
        row.event = EventId(1);
        row.events = Some(row.samples.into());
        row.self_ns = None;
        row.self_stderr_ns = None;
    };
    maker.info.events[0].reset = 10_000;
    let trace = served(maker);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    assert!(explanation.no_function_times.is_some());
    let group = whole(&explanation);
    let gap = group.gap.as_ref().unwrap();
    let rehash = gap.with_events.iter().find(|it| is(&it.function, "rehash"));
    assert!(rehash.unwrap().further[0].slow.unwrap() > 25.0);
}
