//! Items that are slow on the CPU, hidden among items that are slow as they waited.

use super::{FUNCTIONS, SPEC};
use crate::compare::classes::{RankBy, Ranks, SlowBy, apart_on_cpu};
use crate::compare::explain::model::ProbeExplanation;
use crate::compare::explain::request::{ExplainError, ExplainOptions, ItemChoice};
use crate::compare::explain::{explain, explain_item};
use crate::compare::losses::LossVisits;
use crate::compare::report;
use crate::compare::report::request::ReportOptions;
use crate::failure::Hint as _;
use crate::out;
use crate::out::explain::text;
use crate::out::view::data::Data;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};

/// 4,000 items of 40 to 60 us on the CPU, of which `waiting` of 100 wait for 30 us to 3 ms; every `dear`th rehashes for
/// 300 us, and none if that is 0.
fn server(waiting: u32, dear: u64, seed: u64) -> TestTrace {
    let mut random = SplitMix64::new(seed);
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..4_000_u64 {
        let mut did = vec![Ran(1, 40_000 + i64::from(random.below(20_000)))];
        if random.below(100) < waiting {
            let exponent = f64::from(random.below(1_000)) / 1_000.0;
            did.push(Waited(
                1,
                "runnable",
                (30_000.0 * 100_f64.powf(exponent)) as i64,
            ));
        }
        if dear > 0 && i % dear == dear / 2 {
            did.push(Ran(2, 280_000 + i64::from(random.below(40_000))));
        }
        maker.visit(&VisitFixture::new(i % 4, &format!("k:{i}"), &did));
    }
    maker.finish(&FUNCTIONS)
}

fn explained(trace: &TestTrace, slow: Option<&str>) -> (ProbeExplanation, String) {
    let options = ExplainOptions {
        slow: slow.map(|it| it.parse().unwrap()),
        ..ExplainOptions::default()
    };
    let explained = explain(trace, &options).unwrap();
    let text = text::render(&explained);
    (explained.probes[0].clone(), text)
}

/// Forty items that compute are a second sentence, of `explain` and of the report, where hundreds wait; and the first
/// where time on the CPU is asked for.
#[test]
fn hidden_behind_waits() {
    let trace = server(30, 100, 1);
    let (probe, said) = explained(&trace, None);
    let group = probe.slow_on_cpu.unwrap();
    let slow = group.slow.as_ref().unwrap();
    assert_eq!((slow.items, slow.between), (40, 0));
    assert!(slow.from_ns > 300_000 && slow.to_ns < 400_000, "{slow:?}");
    assert!(slow.others_up_to_ns.unwrap() < 61_000);
    let gap = group.gap.as_ref().unwrap();
    assert_eq!(gap.causes[0].function.function_id, Some(2));
    assert!((gap.causes[0].figures.share - 1.0).abs() < 0.05, "{gap:?}");
    let sentence = said.lines().find(|it| it.starts_with("slow on the CPU:"));
    let sentence = sentence.unwrap_or_else(|| panic!("{said}"));
    assert!(
        sentence.contains("40 items") && said.contains("--slow cpu"),
        "{said}"
    );
    let first = said.lines().find(|it| it.starts_with("slow because:"));
    assert!(
        first.is_some_and(|it| it.contains("waited for a CPU")),
        "{said}"
    );

    let report = report::build(&trace, &ReportOptions::default()).unwrap();
    assert_eq!(report.probes[0].slow_on_cpu.as_ref(), Some(&group));
    assert!(out::report::text::render(&report).contains(sentence));

    let (asked, said) = explained(&trace, Some("cpu"));
    assert!(asked.slow_on_cpu.is_none());
    let whole = asked.whole.unwrap();
    assert_eq!((whole.by, &whole.slow), (RankBy::CpuTime, &group.slow));
    assert!(
        said.contains("slow on the CPU because: in rehash"),
        "{said}"
    );
    assert!(
        whole
            .gap
            .unwrap()
            .causes
            .iter()
            .all(|it| it.state.is_none())
    );
    let (asked, said) = explained(&trace, Some("cpu:200us"));
    assert_eq!(asked.whole.unwrap().slow.unwrap().items, 40);
    assert!(said.contains("on the CPU, by --slow cpu:200us"), "{said}");
}

/// The report and the view set items apart by time on the CPU as `explain` does: the same items, limits and times of
/// functions, and no waits; so do they by a rule for durations.
#[test]
fn report_by_time_on_the_cpu() {
    let trace = server(30, 100, 1);
    for rule in ["cpu", "cpu:200us", "cpu:p99", "3x", "1ms"] {
        let slow: SlowBy = rule.parse().unwrap();
        let whole = explained(&trace, Some(rule)).0.whole.unwrap();
        let options = ReportOptions {
            slow: Some(slow),
            ..ReportOptions::default()
        };
        let report = report::build(&trace, &options).unwrap();
        let probe = &report.probes[0];
        let (found, asked) = (probe.slow.as_ref().unwrap(), whole.slow.as_ref().unwrap());
        assert_eq!((probe.by, found.visits), (slow.by, asked.items), "{rule}");
        assert_eq!((found.from_ns, found.to_ns), (asked.from_ns, asked.to_ns));
        assert_eq!((&found.rule, found.between), (&asked.rule, asked.between));
        assert_eq!(probe.duration.unwrap().p50_ns, whole.duration.p50_ns);
        let gap = found.mean_ns - probe.typical.unwrap().mean_ns;
        assert!((gap - whole.gap.as_ref().unwrap().gap_ns).abs() < 1e-3);
        let by_cpu = slow.by == RankBy::CpuTime;
        let rows = probe.spread.iter().chain(&probe.largest);
        assert_eq!(rows.clone().all(|it| it.state.is_none()), by_cpu, "{rule}");
        assert!(probe.slow_on_cpu.is_none());
        let said = out::report::text::render(&report);
        let because = said.contains("slow on the CPU because: in rehash");
        assert_eq!(because, by_cpu, "{rule}: {said}");
        let typed = format!("by --slow {rule}");
        assert_eq!(said.contains(&typed), rule != "cpu" && rule != "cpu:p99");
        let view = Data::read(&trace, (50, Some(slow)), LossVisits::LeaveOut).unwrap();
        assert_eq!(view.groups[0].report.slow, probe.slow);
        let ranked: Vec<i64> = view.items.iter().map(|it| it.ranked_ns).collect();
        assert_eq!(ranked[0], found.to_ns, "{rule}");
        assert!(ranked.is_sorted_by(|a, b| a >= b));
    }
}

/// If the same items are slow by duration, or none is slow on the CPU, there is no second sentence.
#[test]
fn nothing_to_add() {
    for trace in [server(0, 100, 2), server(30, 0, 3), server(0, 0, 4)] {
        let (probe, said) = explained(&trace, None);
        assert!(probe.slow_on_cpu.is_none(), "{said}");
        let report = report::build(&trace, &ReportOptions::default()).unwrap();
        assert!(report.probes[0].slow_on_cpu.is_none());
        assert!(!out::report::text::render(&report).contains("on the CPU:"));
    }
}

/// Time on the CPU is not known without switches, and cannot rank a single item.
#[test]
fn refused() {
    let options = ExplainOptions {
        slow: Some("cpu:p99".parse::<SlowBy>().unwrap()),
        ..ExplainOptions::default()
    };
    let mut info = info(&[SPEC]);
    info.switches = false;
    let mut maker = Maker::new(info);
    maker.visit(&VisitFixture::new(1, "k", &[Ran(1, 40_000)]));
    let trace = maker.finish(&FUNCTIONS);
    let error = explain(&trace, &options).unwrap_err();
    assert!(matches!(error, ExplainError::NoCpuTime { .. }), "{error}");
    let of_report = ReportOptions {
        slow: options.slow,
        ..ReportOptions::default()
    };
    let of_report = report::build(&trace, &of_report).unwrap_err();
    assert_eq!(of_report.to_string(), error.to_string());
    assert_eq!(of_report.hint(), error.hint());
    let of_view = Data::read(&trace, (10, options.slow), LossVisits::LeaveOut).unwrap_err();
    assert_eq!(of_view.to_string(), error.to_string());
    let trace = server(0, 100, 5);
    let error = explain_item(&trace, &options, ItemChoice::Visit(1)).unwrap_err();
    assert!(matches!(error, ExplainError::OneByCpuTime), "{error}");
}

/// Chance sets no items apart: of 1,000 draws of items whose times on the CPU are of one distribution, with and without
/// waits, at most 5 % have slow ones of their own.
#[test]
fn not_by_chance() {
    let mut random = SplitMix64::new(6);
    let mut unit = move || f64::from(random.below(1 << 30) + 1) / f64::from(1 << 30);
    let found = (0..1_000).filter(|draw| {
        let [mut durations, mut on_cpu] = [Ranks::default(), Ranks::default()];
        for _ in 0..500 {
            let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
            let active = match draw % 3 {
                0 => 40_000.0 * (0.2 * normal).exp(),
                1 => 40_000.0 * normal.exp(),
                _ => 10_000.0 - 40_000.0 * unit().ln(),
            };
            let wait = match unit() < 0.1 {
                true => 30_000.0 * 100_f64.powf(unit()),
                false => 0.0,
            };
            let rank = |ns: f64| crate::compare::classes::Rank {
                ns: ns as i64,
                ..Default::default()
            };
            durations.add(rank(active + wait));
            on_cpu.add(rank(active));
        }
        apart_on_cpu(&durations.close(None).unwrap(), on_cpu).is_some()
    });
    let found = found.count();
    assert!(found <= 50, "{found}");
}
