//! Explanations of synthetic traces with known truth.

mod chain;
mod further;
mod kinds;
mod like;
mod on_cpu;
mod paths;
mod properties;
mod stages;
mod when;

use crate::compare::explain::item_model::MomentType;
use crate::compare::explain::model::{
    Cause, CauseType, Explanation, Gap, Group, SplitTest, TypicalRule,
};
use crate::compare::explain::request::{ExplainError, ExplainOptions, ItemChoice, Unit};
use crate::compare::explain::timing::Timing;
use crate::compare::explain::{explain, explain_item};
use crate::compare::losses::LossVisits;
use crate::compare::report;
use crate::compare::report::request::ReportOptions;
use crate::compare::waits::{IDLE, OTHER_ITEMS};
use crate::failure::Hint as _;
use crate::out;
use crate::out::explain::text;
use crate::present::human::columns;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Idled, Ran, Waited, Yielded};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};
use crate::store::run::KeepInfo;
use crate::store::schema::{FunctionStatRow, measure, visit_flag};
use crate::units::{CountUnit, EventId, FunctionId, ProbeId, TraceNs};

const SPEC: &str = "/usr/bin/server:handle(n=arg2, key=str(arg1))";
const FUNCTIONS: [(u32, &str, &str); 5] = [
    (1, "parse", "/usr/bin/server"),
    (2, "rehash", "/usr/bin/server"),
    (3, "clear_page", "[kernel]"),
    (4, "fdatasync", "/lib/libc.so.6"),
    (5, "rare", "/usr/bin/server"),
];

/// 4,000 items: every hundredth rehashes 300 us and waits 200 us for the disk.
fn server() -> TestTrace {
    served(Maker::new(info(&[SPEC])))
}

fn served(maker: Maker) -> TestTrace {
    served_by(maker, &FUNCTIONS)
}

/// The same with other functions.
fn served_by(mut maker: Maker, functions: &[(u32, &str, &str)]) -> TestTrace {
    let mut random = SplitMix64::new(11);
    for i in 0..4_000_u64 {
        let usual = Ran(1, 40_000 + i64::from(random.below(20_000)));
        if i % 100 == 50 {
            let did = [
                usual,
                Ran(2, 290_000 + i64::from(random.below(20_000))),
                Waited(
                    4,
                    "uninterruptible",
                    190_000 + i64::from(random.below(20_000)),
                ),
            ];
            maker.visit(&VisitFixture::new(9, &format!("big:{i}"), &did));
        } else {
            maker.visit(&VisitFixture::new(
                i % 4,
                &format!("small:{i}"),
                &[usual, Ran(3, 5_000)],
            ));
        }
    }
    maker.finish(functions)
}

/// A wait has the stack at which slow items went to it; interruptions are listed beside the causes, whose shares sum to
/// 1 without them.
#[test]
fn paths_and_interference() {
    let mut maker = Maker::new(info(&[SPEC]));
    maker.extras = true;
    let trace = served(maker);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let gap = group.gap.as_ref().unwrap();
    assert!((sum(gap) - 1.0).abs() < 1e-9);
    let wait = gap.causes.iter().find(|it| it.kind == CauseType::Wait);
    let path = wait.unwrap().blocked.as_ref().unwrap();
    let names = path.functions.iter().map(|it| it.name.as_deref().unwrap());
    let names: Vec<&str> = names.collect();
    assert_eq!(
        (names, path.part),
        (vec!["clear_page", "fdatasync", "parse"], 1.0)
    );
    assert!(gap.causes.iter().filter(|it| it.blocked.is_some()).count() == 1);
    let [irq, softirq] = &group.interference[..] else {
        panic!("page faults were not recorded: {:?}", group.interference)
    };
    assert_eq!((irq.what, softirq.what), ("interrupts", "softirqs"));
    // A tenth of the time on the CPU; slow items have 295 us more.
    let truth = 29_500.0;
    assert!(irq.excess_low_ns.unwrap() <= truth && truth <= irq.excess_high_ns.unwrap());
    assert!((irq.share - irq.excess_ns / gap.gap_ns).abs() < 1e-9);
    assert!(irq.variance_part.unwrap() > 0.8 && softirq.variance_part.is_none());
    let text = text::render(&explanation);
    for width in [80, 120, 200] {
        let text = text::page(&explanation, width).plain();
        let wide = text.lines().find(|line| columns(line) > width);
        assert_eq!(wide, None, "{width} columns:\n{text}");
    }
    let path = "100 % of it at clear_page [kernel] <- fdatasync <- parse";
    assert!(
        text.contains(path) && text.contains("interruptions, mean of one item"),
        "{text}"
    );
    let slow = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Visit(51)).unwrap();
    let text = text::item::render(&slow);
    assert!(
        text.contains(
            "waited for the disk in fdatasync <- parse, at clear_page [kernel] <- fdatasync"
        ),
        "{text}"
    );
    assert!(slow.interference[0].slow_ns > slow.interference[0].typical_ns);
}

/// Items that are slow because their CPU ran at half its speed for a while: this comes first among the interruptions,
/// with the time lost to the slower clock.
#[test]
fn slower_clock() {
    let mut maker = Maker::new(info(&[SPEC]));
    maker.extras = true;
    for i in 0..400_u64 {
        let slow = i % 20 == 0;
        let khz = if slow { 2_000_000 } else { 4_000_000 };
        maker.frequency(khz);
        let cycles = 100_000 + (i as i64 % 7) * 1_000;
        let did = [Ran(1, cycles * if slow { 2 } else { 1 })];
        maker.visit(&VisitFixture::new(i % 4, "key", &did));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let first = &whole(&explanation).interference[0];
    assert_eq!(first.what, "slower clock");
    // 100 us of work and a bit, which takes twice as long.
    let truth = 103_000.0;
    assert!((first.excess_ns / truth - 1.0).abs() < 0.05, "{first:?}");
    assert!((first.share - 1.0).abs() < 0.1, "{first:?}");
    assert!(first.variance_part.unwrap() > 0.8);
    let text = text::render(&explanation);
    assert!(text.contains("slower clock 100 %"), "{text}");
}

fn whole(explanation: &Explanation) -> &Group {
    explanation.probes[0].whole.as_ref().unwrap()
}

fn sum(gap: &Gap) -> f64 {
    let causes: f64 = gap.causes.iter().map(|it| it.figures.share).sum();
    causes + gap.others.share + gap.unexplained.share
}

/// By uops the functions' own times count, not their uops: `rehash` makes a tenth of the others' in a ns. `report` has
/// times, too. A trace of an older pebs-trace has no such times: there its part is what its uops are.
#[test]
fn times_by_uops() {
    let rehash = |has_times: bool| {
        let mut info = info(&[SPEC]);
        info.events[0].name = "uops_retired.all".to_owned();
        info.events[0].unit = CountUnit::Events;
        info.events[0].has_times = has_times;
        let mut maker = Maker::new(info);
        maker.each_function = |row| {
            if row.function_id == FunctionId(2) {
                row.samples = row.samples.div_ceil(10);
                row.events = row.events.map(|it| it / 10);
            }
        };
        let trace = served(maker);
        let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
        let causes = &whole(&explanation).gap.as_ref().unwrap().causes;
        let named = |it: &&Cause| it.function.name.as_deref() == Some("rehash");
        let share = causes.iter().find(named).map_or(0.0, |it| it.figures.share);
        let report = report::build(&trace, &ReportOptions::default()).unwrap();
        let mut rows = report.probes[0].spread.iter();
        let row = rows.find(|it| it.function.name.as_deref() == Some("rehash"));
        let row = row.unwrap();
        (share, row.unit, row.slow.per_visit.unwrap())
    };
    let (share, unit, per_visit) = rehash(true);
    assert!((share - 0.6).abs() < 0.02, "{share}");
    assert_eq!(unit, CountUnit::Ns);
    assert!((per_visit - 300_000.0).abs() < 6_000.0, "{per_visit}");
    let (share, unit, _) = rehash(false);
    assert!(share < 0.4, "{share}");
    assert_eq!(unit, CountUnit::Events);
}

fn holds(cause: &Cause, truth: f64) -> bool {
    cause.figures.share_low.unwrap() <= truth && truth <= cause.figures.share_high.unwrap()
}

/// The causes are found in their order, the truth within their intervals, and their shares sum to 1.
#[test]
fn causes_are_ranked() {
    let trace = server();
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let slow = group.slow.as_ref().unwrap();
    assert_eq!((slow.rule.as_str(), slow.items), ("gap", 40));
    let gap = group.gap.as_ref().unwrap();
    assert!((sum(gap) - 1.0).abs() < 1e-9, "{}", sum(gap));
    assert!((490e3..500e3).contains(&gap.gap_ns), "{}", gap.gap_ns);
    let [rehash, sync] = &gap.causes[..] else {
        panic!("{:#?}", gap.causes)
    };
    assert_eq!(rehash.function.name.as_deref(), Some("rehash"));
    assert!(holds(rehash, 300e3 / gap.gap_ns), "{rehash:?}");
    assert_eq!(sync.kind, CauseType::Wait);
    assert_eq!(
        (sync.figures.slow_samples, sync.figures.typical_samples),
        (40, 0)
    );
    assert!(holds(sync, 200e3 / gap.gap_ns), "{sync:?}");
    let variance = group.variance.as_ref().unwrap();
    let attributed: f64 = variance.parts.iter().map(|it| it.share).sum();
    assert!((attributed + variance.others + variance.unexplained - 1.0).abs() < 1e-9);
    assert_eq!(variance.parts[0].function.name.as_deref(), Some("rehash"));
}

/// A few items between the slow ones and the rest don't hide the gap; they are counted.
#[test]
fn strays_between() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..1_000_i64 {
        let ns = match i % 20 {
            7 => 800_000 + i * 100,
            _ if i % 300 == 1 => [200_000, 280_000, 400_000, 570_000][i as usize / 300],
            _ => 100_000 + i * 40,
        };
        maker.visit(&VisitFixture::new(i as u64 % 4, "key", &[Ran(1, ns)]));
    }
    let explanation = explain(&maker.finish(&FUNCTIONS), &ExplainOptions::default()).unwrap();
    let slow = whole(&explanation).slow.as_ref().unwrap();
    assert_eq!(
        (slow.rule.as_str(), slow.items, slow.between),
        ("gap", 50, 4)
    );
    let text = text::render(&explanation);
    assert!(
        text.contains("set apart by a gap with 4 items in it (the others at most "),
        "{text}"
    );
}

/// If marks show which item a thread turns to, the time it slept during an item is separate from the time for other
/// items.
#[test]
fn idle() {
    for resumes in [true, false] {
        let mut described = info(&[SPEC]);
        if resumes {
            described.resumes = described.probes.clone();
        }
        let mut maker = Maker::new(described);
        for i in 0..2_000_i64 {
            let ran = Ran(1, 40_000 + i % 7 * 1_000);
            let slow = [ran, Idled(300_000 + i), Yielded(100_000), ran];
            let did = if i % 100 == 50 {
                &slow[..]
            } else {
                &[ran, ran]
            };
            maker.visit(&VisitFixture::new(i as u64 % 4, "key", did));
        }
        let trace = maker.finish(&FUNCTIONS);
        let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
        let gap = whole(&explanation).gap.as_ref().unwrap();
        assert!((sum(gap) - 1.0).abs() < 1e-9);
        let of = |state| {
            let found = gap.causes.iter().find(|it| it.state.as_deref() == state);
            found.map(|it| (it.kind, it.figures.excess_ns.round() as i64))
        };
        // Slow ones only: 50, 150, ..: 1,000 ns more in the mean.
        let (idle, others) = if resumes {
            assert_eq!(of(Some(IDLE)), Some((CauseType::Wait, 301_000)));
            assert_eq!(of(Some(OTHER_ITEMS)), Some((CauseType::Elsewhere, 100_000)));
            ("idle between its turns", "other items of the thread ")
        } else {
            assert_eq!(of(Some(IDLE)), None);
            ("idle", "other items of the thread, or idle ")
        };
        let text = text::render(&explanation);
        assert!(text.contains(idle) && text.contains(others), "{text}");
        let report = report::build(&trace, &ReportOptions::default()).unwrap();
        let time = report.probes[0].time.as_ref().unwrap();
        let slept = time.waits.iter().find(|it| it.state == IDLE);
        let expected = resumes.then_some(20.0 * 301_000.0);
        assert_eq!(slept.map(|it| it.ns), expected);
        let text = out::report::text::render(&report);
        assert!(text.contains(idle) && text.contains(others), "{text}");
    }
}

/// Without context switches the notes say that intervals do not cover time off the CPU.
#[test]
fn without_switches() {
    let mut described = info(&[SPEC]);
    described.switches = false;
    let trace = served(Maker::new(described));
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let text = text::render(&explanation);
    assert!(text.contains("intervals do not cover it"), "{text}");
}

/// The argument that slow items share is named, with the probability of chance.
#[test]
fn what_goes_along() {
    let trace = server();
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let splits = &whole(&explanation).because;
    let key = splits.iter().find(|it| it.argument == "key").unwrap();
    assert_eq!((key.test, key.value.as_str()), (SplitTest::Begins, "big:"));
    let n = splits.iter().find(|it| it.argument == "n").unwrap();
    assert_eq!((n.test, n.value.as_str()), (SplitTest::Equal, "9"));
    for split in [key, n] {
        assert_eq!((split.slow_with, split.other_with), (40, 0));
        assert!(split.effect == 1.0 && split.chance < 1e-60, "{split:?}");
    }
    assert!(
        splits
            .iter()
            .all(|it| !["tid", "pid", "cpu_begin"].contains(&it.argument.as_str()))
    );
    let text = text::render(&explanation);
    let lines: Vec<&str> = text.lines().take(5).collect();
    let has_line = |parts: [&str; 2]| {
        let mut lines = lines.iter();
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(has_line(["  slow ", "40 of 4,000 items"]), "{text}");
    assert!(has_line(["  because ", "=9 holds for all 40"]), "{text}");
    assert!(lines[1].starts_with("slow because: in rehash 6"), "{text}");
}

/// Being stopped is one cause, in any functions, and not a cause of the program's.
#[test]
fn stopped() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..3_000_u64 {
        let mut did = vec![Ran(1, 40_000 + (i % 97) as i64 * 10)];
        if i % 100 == 50 {
            let at = if i % 200 == 50 { 1 } else { 4 };
            did.push(Waited(at, "stopped", 900_000 + i as i64));
        }
        maker.visit(&VisitFixture::new(0, "k", &did));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let causes = &whole(&explanation).gap.as_ref().unwrap().causes;
    let [first, others @ ..] = &causes[..] else {
        panic!("no cause")
    };
    assert_eq!(
        (first.kind, first.figures.slow_samples),
        (CauseType::Stopped, 30)
    );
    assert!(first.figures.share > 0.95 && first.function.name.is_none());
    assert!(others.iter().all(|it| it.kind != CauseType::Stopped));
    let text = text::render(&explanation);
    assert!(text.contains("slow because: was stopped "), "{text}");
}

/// Items are compared within the groups asked for; slow is relative to the group.
#[test]
fn groups_asked_for() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..3_000_u64 {
        let kind = i % 3;
        let usual = 20_000 * (kind as i64 + 1) + (i % 97) as i64 * 10;
        let slow = kind == 1 && i % 60 == 1;
        let did = if slow {
            vec![Ran(1, usual), Waited(4, "sleeping", 100_000)]
        } else {
            vec![Ran(1, usual)]
        };
        maker.visit(&VisitFixture::new(kind, "k", &did));
    }
    let trace = maker.finish(&FUNCTIONS);
    let options = ExplainOptions {
        group_by: vec!["n".to_owned()],
        slow: Some("2x".parse().unwrap()),
        ..ExplainOptions::default()
    };
    let explanation = explain(&trace, &options).unwrap();
    let groups = &explanation.probes[0].groups;
    assert_eq!(groups.len(), 3);
    let first = &groups[0];
    assert_eq!(first.labels[0].value.as_deref(), Some("1"));
    assert_eq!(first.slow.as_ref().unwrap().items, 50);
    let cause = &first.gap.as_ref().unwrap().causes[0];
    assert_eq!(
        (cause.kind, cause.figures.slow_samples),
        (CauseType::Wait, 50)
    );
    assert!(
        groups[1..]
            .iter()
            .all(|it| it.slow.is_none() && it.gap.is_none())
    );
    let compared = &explanation.probes[0].compared;
    let of_slow: Vec<(u64, u64)> = compared
        .iter()
        .map(|it| (it.items, it.slow_items))
        .collect();
    assert_eq!(of_slow, [(1_000, 50), (1_000, 0), (1_000, 0)]);
    let times: f64 = compared.iter().map(|it| it.time_part).sum();
    assert!((times - 1.0).abs() < 1e-9 && compared[0].slow_part == 1.0);
    // Only the group that has an answer has a section.
    let text = text::render(&explanation);
    let sections = text.matches("slow because:").count();
    assert!(
        sections == 1
            && text.contains("3 groups, the one with most slow items beyond chance first"),
        "{text}"
    );
    // The same groups are found automatically, as the durations differ by them.
    let found = explain(&trace, &ExplainOptions::default()).unwrap();
    let grouped = found.probes[0].grouped.as_ref().unwrap();
    assert_eq!(grouped.argument, "n");
    assert!(grouped.part > 0.8 && grouped.chance < 1e-12, "{grouped:?}");
    assert_eq!(found.probes[0].groups.len(), 3);
}

/// Of many groups the one whose items are slow comes first, though none of its items is slow within it.
#[test]
fn slow_group_among_many() {
    let mut maker = Maker::new(info(&[SPEC]));
    let mut random = SplitMix64::new(12);
    for i in 0..6_000_u64 {
        let usual = 30_000 + i64::from(random.below(10_000));
        let dear = i % 100 == 7;
        let ns = usual + if dear { 100_000 } else { 0 };
        let key = if dear {
            "big".to_owned()
        } else {
            format!("k{}", i % 400)
        };
        // One item of some groups is much longer.
        let stray = i % 1_500 == 11;
        let did = [
            Ran(1, ns),
            Waited(4, "sleeping", if stray { 900_000 } else { 1 }),
        ];
        maker.visit(&VisitFixture::new(0, &key, &did));
    }
    let options = ExplainOptions {
        group_by: vec!["key".to_owned()],
        ..ExplainOptions::default()
    };
    let explanation = explain(&maker.finish(&FUNCTIONS), &options).unwrap();
    let first = &explanation.probes[0].compared[0];
    assert_eq!(first.labels[0].value.as_deref(), Some("big"));
    assert_eq!((first.items, first.slow_items), (60, 60));
    let text = text::render(&explanation);
    let table = text
        .lines()
        .skip_while(|it| !it.contains("beyond chance first"));
    assert!(table.take(3).any(|it| it.contains("key=big")), "{text}");
}

/// Arguments unrelated to the durations neither explain nor group.
#[test]
fn nothing_goes_along_by_chance() {
    let mut random = SplitMix64::new(5);
    for run in 0..12 {
        let mut maker = Maker::new(info(&[SPEC]));
        for _ in 0..600 {
            let key = format!("k{}", random.below(40));
            let ns = 20_000 + i64::from(random.below(50_000));
            maker.visit(&VisitFixture::new(
                random.below(9).into(),
                &key,
                &[Ran(1, ns)],
            ));
        }
        let trace = maker.finish(&FUNCTIONS);
        let options = ExplainOptions {
            slow: Some("p90".parse().unwrap()),
            ..ExplainOptions::default()
        };
        let explanation = explain(&trace, &options).unwrap();
        let group = whole(&explanation);
        assert_eq!(group.slow.as_ref().unwrap().items, 61);
        assert_eq!(group.because, [], "run {run}");
        assert_eq!(explanation.probes[0].grouped, None, "run {run}");
    }
}

/// Code without a name that was made at run time is named so, with the command for the runtime at hand.
#[test]
fn made_at_run_time() {
    let functions = [
        (1, "parse", "/usr/lib/jvm/lib/server/libjvm.so"),
        (2, "", "[anon]"),
    ];
    let trace = served_by(Maker::new(info(&[SPEC])), &functions);
    let text = text::render(&explain(&trace, &ExplainOptions::default()).unwrap());
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("slow because: in code made at run time"),
        "{text}"
    );
    assert!(
        words.contains("'jcmd PID Compiler.perfmap' while recording"),
        "{text}"
    );
}

/// With too few samples or items the reason is given instead of a cause; waits are still observed.
#[test]
fn too_few_samples() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..300 {
        let slow = i % 30 == 7;
        let did = if slow {
            vec![Ran(2, 7_000), Waited(4, "sleeping", 50_000)]
        } else {
            vec![Ran(1, 1_000)]
        };
        maker.visit(&VisitFixture::new(0, "k", &did));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let samples = group.slow.as_ref().unwrap().samples;
    assert!(samples < 10, "{samples}");
    let reason = format!("too few samples ({samples}): record longer or lower --reset");
    assert_eq!(
        group
            .too_little
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some(reason.as_str())
    );
    let gap = group.gap.as_ref().unwrap();
    assert!(
        gap.causes.iter().all(|it| it.kind == CauseType::Wait),
        "{gap:?}"
    );
    assert!((sum(gap) - 1.0).abs() < 1e-9);
    let text = text::render(&explanation);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(&reason), "{text}");
}

/// Visits that overlap a loss are left out and counted in the header; they can be included.
#[test]
fn losses_are_left_out() {
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..200 {
        let mut made = VisitFixture::new(0, "k", &[Ran(1, 20_000 + i * 10)]);
        made.flags = if i % 10 == 0 { visit_flag::LOSS } else { 0 };
        maker.visit(&made);
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    assert_eq!(explanation.probes[0].left_out.loss, 20);
    assert_eq!(whole(&explanation).items, 180);
    assert!(text::render(&explanation).contains("20 items overlapping a loss (--all"));
    let all = ExplainOptions {
        losses: LossVisits::Include,
        ..ExplainOptions::default()
    };
    assert_eq!(whole(&explain(&trace, &all).unwrap()).items, 200);
}

/// A visit of another probe nested in a call is part of it: its waits count for the outer one, and its presence
/// separates slow items from others.
#[test]
fn inner_visits_count() {
    let mut maker = Maker::new(info(&["/bin/db:query", "/bin/db:checkpoint"]));
    for i in 0..1_000_u64 {
        let begin = maker.now + 500;
        if i % 50 == 9 {
            let wait = [Waited(4, "uninterruptible", 400_000)];
            let inner = VisitFixture::new(0, "", &wait).probe(1);
            maker.at(begin + 5_000, &inner);
            let elsewhere = [
                Ran(1, 10_000),
                Waited(4, "sleeping", 1_000),
                Ran(1, 420_000),
            ];
            maker.at(begin, &VisitFixture::new(0, "", &elsewhere));
            continue;
        }
        maker.at(begin, &VisitFixture::new(0, "", &[Ran(1, 20_000)]));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let split = &group.because[0];
    assert_eq!(split.argument, "visits of checkpoint");
    assert_eq!((split.slow_with, split.other_with), (20, 0));
    let causes = &group.gap.as_ref().unwrap().causes;
    let inner = causes
        .iter()
        .find(|it| it.state.as_deref() == Some("uninterruptible"))
        .unwrap();
    assert_eq!(
        (inner.figures.slow_samples, inner.figures.slow_ns),
        (20, 400_000.0)
    );
    assert!((sum(group.gap.as_ref().unwrap()) - 1.0).abs() < 1e-9);
}

/// A trace that kept slow items only: typical are those that were not kept, by their sums.
#[test]
fn kept_items() {
    let mut described = info(&[SPEC]);
    described.keep = Some(KeepInfo {
        keep: "slow".to_owned(),
        slow: None,
        warm_up: 0,
        visits: None,
    });
    let mut maker = Maker::new(described);
    for i in 0..1_000_u64 {
        if i % 50 == 0 {
            let did = [Ran(1, 50_000), Ran(2, 450_000)];
            maker.visit(&VisitFixture::new(0, "k", &did));
        } else {
            // Its time, without a row of its functions.
            let mut made = VisitFixture::new(0, "k", &[Ran(9, 50_000)]);
            made.flags = visit_flag::CONDENSED;
            maker.visit(&made);
        }
    }
    let row = |measure, function: Option<u32>, samples, sum: f64| FunctionStatRow {
        end_ns: TraceNs(maker.now),
        probe_id: ProbeId(0),
        measure,
        function_id: function.map(FunctionId),
        event: function.map(|_| EventId(0)),
        visits: 1_000,
        visits_with: 1_000,
        samples,
        sum_ns: Some(sum),
        sum_squared: Some(0.0),
        ..FunctionStatRow::default()
    };
    let whole_ns = 980.0 * 50e3 + 20.0 * 500e3;
    let rows = [
        row(measure::DURATION, None, None, whole_ns),
        row(measure::ONCPU, None, None, whole_ns),
        row(measure::SELF, Some(1), Some(5_000), 50e6),
        row(measure::SELF, Some(2), Some(900), 9e6),
    ];
    rows.into_iter().for_each(|row| maker.add(row));
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    let typical = group.typical.unwrap();
    assert_eq!((typical.rule, typical.items), (TypicalRule::NotKept, 980));
    let gap = group.gap.as_ref().unwrap();
    assert!((gap.gap_ns - 450e3).abs() < 1e3, "{}", gap.gap_ns);
    let first = &gap.causes[0];
    assert_eq!(first.function.name.as_deref(), Some("rehash"));
    assert!(
        (first.figures.share - 1.0).abs() < 0.02 && first.figures.share_low.is_some(),
        "{first:?}"
    );
    assert!((sum(gap) - 1.0).abs() < 1e-9);
    let grouped = ExplainOptions {
        group_by: vec!["n".to_owned()],
        ..ExplainOptions::default()
    };
    let error = explain(&trace, &grouped).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("kept the details of slow items only"),
        "{error}"
    );
}

/// Each error is one line, with advice.
#[test]
fn refusals() {
    let trace = server();
    let check = |options: ExplainOptions, what: &str, hint: &str| {
        let error = explain(&trace, &options).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
    };
    let by = |column: &str| ExplainOptions {
        group_by: vec![column.to_owned()],
        ..ExplainOptions::default()
    };
    check(by("kye"), "cannot group by 'kye'", "there are key, ");
    let probe = ExplainOptions {
        probe: Some(ProbeId(4)),
        ..ExplainOptions::default()
    };
    check(probe, "no probe 4", "there are 0 (");
    let none =
        explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(4711)).unwrap_err();
    assert!(none.to_string().starts_with("no item 4711"), "{none}");
    assert_eq!(
        none.hint().unwrap(),
        "ids are from 1 to 4000; the closest is 4000"
    );
    let empty = Maker::new(info(&[SPEC])).finish(&[]);
    let error = explain(&empty, &ExplainOptions::default()).unwrap_err();
    assert!(
        matches!(error, ExplainError::NoItems { .. }) && error.hint().is_some(),
        "{error}"
    );
}

/// One item: its place in its group, and the causes of its additional time.
#[test]
fn one_item() {
    let trace = server();
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(51)).unwrap();
    assert!(item.account.rank <= 40 && item.account.percentile > 0.98);
    let gap = item.account.gap.as_ref().unwrap();
    assert_eq!(gap.causes[0].function.name.as_deref(), Some("rehash"));
    assert!((sum(gap) - 1.0).abs() < 1e-9 && gap.gap_low_ns.is_none());
    let kinds: Vec<MomentType> = item.moments.iter().map(|it| it.kind).collect();
    assert_eq!(
        kinds,
        [MomentType::Begin, MomentType::Waited, MomentType::End]
    );
    let shown = text::item::render(&item);
    assert!(
        shown.contains("waited for the disk in fdatasync"),
        "{shown}"
    );
    let usual = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Visit(1)).unwrap();
    assert!(usual.account.too_little.is_some(), "{usual:?}");
}

/// Cycles of one mode don't divide the time on the CPU, whatever the order of the modifiers.
#[test]
fn events_of_the_kernel_alone() {
    let mut info = info(&[SPEC]);
    info.events[0].unit = CountUnit::Events;
    for (name, divides) in [
        ("cycles", true),
        ("cycles:upp", true),
        ("cycles:uk", true),
        ("cpu/cycles/P", true),
        ("cycles:k", false),
        ("cycles:ppk", false),
        ("cpu/cycles/Pk", false),
        ("cpu-clock:k", false),
        ("task-clock", true),
    ] {
        name.clone_into(&mut info.events[0].name);
        let reason = Timing::of(&info).reason;
        assert_eq!(reason.is_none(), divides, "{name}: {reason:?}");
    }
}
