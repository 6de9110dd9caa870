//! Functions divided by call path, in traces with known truth.

use std::iter;

use super::{sum, whole};
use crate::compare::explain::model::{CallPath, Cause, Explanation};
use crate::compare::explain::request::{ExplainOptions, ItemChoice};
use crate::compare::explain::{explain, explain_item};
use crate::compare::report;
use crate::out::explain::text;
use crate::store::fixtures::Did::{Called, Ran};
use crate::store::fixtures::stacks::{SPEC, renamed, server, with_stacks};
use crate::store::fixtures::{Maker, VisitFixture, info};
use crate::store::run::KeepInfo;
use crate::store::schema::FunctionRow;
use crate::units::FunctionId;

fn first(explanation: &Explanation) -> &Cause {
    &whole(explanation).gap.as_ref().unwrap().causes[0]
}

fn callers(path: &CallPath) -> Vec<&str> {
    let names = path.callers.iter();
    names.map(|it| it.name.as_deref().unwrap_or("?")).collect()
}

/// The excess of a function is divided among its callers, up to the item's function: the truth is within the
/// intervals, and the parts sum to the function.
#[test]
fn callers_account_for_the_excess() {
    let trace = server(with_stacks(), |_, stack, ns| Called(stack, ns));
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let gap = whole(&explanation).gap.as_ref().unwrap();
    assert!((sum(gap) - 1.0).abs() < 1e-9);
    let cause = first(&explanation);
    assert_eq!(cause.function.name.as_deref(), Some("compare"));
    let [rehash, lookup] = &cause.paths[..] else {
        panic!("{cause:#?}")
    };
    assert_eq!(callers(rehash), ["rehash", "lookup", "handle"]);
    assert_eq!(callers(lookup), ["lookup", "handle"]);
    for (path, truth) in [(rehash, 300e3), (lookup, 100e3)] {
        assert!(path.known && !path.truncated);
        let (low, high) = (
            path.figures.excess_low_ns.unwrap(),
            path.figures.excess_high_ns.unwrap(),
        );
        assert!(low <= truth && truth <= high, "{path:#?}");
        let share = truth / gap.gap_ns;
        assert!(
            path.figures.share_low.unwrap() <= share && share <= path.figures.share_high.unwrap()
        );
    }
    assert_eq!(rehash.figures.typical_samples, 0);
    assert!(
        (1_150..1_250).contains(&rehash.figures.slow_samples),
        "{rehash:#?}"
    );
    let others = cause.other_paths.unwrap();
    assert_eq!((others.causes, others.slow_samples), (0, 0));
    let parts: f64 = cause.paths.iter().map(|it| it.figures.excess_ns).sum();
    assert!((parts + others.excess_ns - cause.figures.excess_ns).abs() < 1e-6);
    let samples: u64 = cause.paths.iter().map(|it| it.figures.slow_samples).sum();
    assert_eq!(samples, cause.figures.slow_samples);
    let text = text::render(&explanation);
    let row = text
        .lines()
        .find(|it| it.contains("<- rehash <- lookup <- handle"));
    let row = row.unwrap_or_else(|| panic!("{text}"));
    assert!(
        row.contains(
            &rehash
                .figures
                .slow_samples
                .to_string()
                .replacen('1', "1,", 1)
        ),
        "{row}"
    );
    assert!(!text.contains("main"), "{text}");
}

/// A single item: its samples by call path.
#[test]
fn one_item() {
    let trace = server(with_stacks(), |_, stack, ns| Called(stack, ns));
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(51)).unwrap();
    let cause = &item.account.gap.as_ref().unwrap().causes[0];
    let [rehash, _] = &cause.paths[..] else {
        panic!("{cause:#?}")
    };
    assert_eq!(callers(rehash), ["rehash", "lookup", "handle"]);
    assert!(
        (28..32).contains(&rehash.figures.slow_samples),
        "{rehash:#?}"
    );
    let text = text::item::render(&item);
    assert!(text.contains("<- rehash <- lookup <- handle"), "{text}");
}

/// Without the item's function on the stack a path is the whole stack; missing outer frames are marked.
#[test]
fn whole_stacks() {
    let mut info = with_stacks();
    info.probes[0].sites.clear();
    let trace = server(info, |_, stack, ns| Called(stack, ns));
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let [rehash, lookup] = &first(&explanation).paths[..] else {
        panic!("{:#?}", first(&explanation))
    };
    assert_eq!(callers(rehash), ["rehash", "lookup", "handle", "main"]);
    assert_eq!([rehash.truncated, lookup.truncated], [true, false]);
}

/// Samples without a call stack are a path of their own; if no sample has one, callers are not mentioned.
#[test]
fn without_stacks() {
    let trace = server(with_stacks(), |function, stack, ns| {
        // Only while it looks something up.
        if stack == 0 {
            Called(stack, ns)
        } else {
            Ran(function, ns)
        }
    });
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let cause = first(&explanation);
    let [lookup] = &cause.paths[..] else {
        panic!("{cause:#?}")
    };
    // `Ran` writes no rows of samples, so they are the remainder.
    assert!(lookup.known);
    let others = cause.other_paths.unwrap();
    assert!(others.share > 0.6, "{others:?}");
    assert!((lookup.figures.share + others.share - cause.figures.share).abs() < 1e-9);
    let trace = server(info(&[SPEC]), |function, _, ns| Ran(function, ns));
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let cause = first(&explanation);
    assert!(cause.paths.is_empty() && cause.other_paths.is_none());
    assert!(!text::render(&explanation).contains("<-"));
}

/// If only sums of the typical items were kept there are no call paths, and the reason is given.
#[test]
fn why_there_are_none() {
    let mut info = with_stacks();
    info.keep = Some(KeepInfo {
        keep: "slow".to_owned(),
        slow: None,
        warm_up: 0,
        visits: None,
    });
    let trace = server(info, |_, stack, ns| Called(stack, ns));
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    assert!(text::render(&explanation).contains("call paths: - (--keep"));
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(51)).unwrap();
    assert!(text::item::render(&item).contains("call paths: - (--keep"));
}

/// A function without a name has the nearest named caller of most samples: of slow items in an explanation, of all in a
/// report.
#[test]
fn called_from() {
    let explained = |names| {
        let trace = renamed(names);
        let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
        let from = first(&explanation).function.called_from.clone();
        let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(51)).unwrap();
        let of_item = item.account.gap.as_ref().unwrap().causes[0]
            .function
            .clone();
        assert_eq!(of_item.called_from, from);
        (from, explanation, trace)
    };
    let hidden = "server+fn@0x5000";
    let (from, explanation, trace) =
        explained(["main", "handle", "lookup", "rehash", hidden, "parse"]);
    assert_eq!(from.as_deref(), Some("rehash"));
    let text = text::render(&explanation);
    assert!(
        text.contains("slow because: in server+fn@0x5000 called from rehash 100 %"),
        "{text}"
    );
    let json = serde_json::to_value(&explanation).unwrap();
    let function = &json["probes"][0]["whole"]["gap"]["causes"][0]["function"];
    assert_eq!(function["called_from"], "rehash");
    let report = report::build(&trace, &report::ReportOptions::default()).unwrap();
    let rows = report.probes[0].largest.iter();
    let of_all = rows.map(|it| {
        (
            it.function.name.as_deref(),
            it.function.called_from.as_deref(),
        )
    });
    let of_all: Vec<_> = of_all.collect();
    assert!(
        of_all.contains(&(Some(hidden), Some("lookup"))),
        "{of_all:?}"
    );
    assert!(of_all.contains(&(Some("parse"), None)), "{of_all:?}");
    // Callers without a name are passed over, and a function that has a name needs none.
    let of = |names| explained(names).0;
    let far = of(["main", "handle", "lookup", "server+fn@0x4000", "", "parse"]);
    assert_eq!(far.as_deref(), Some("lookup"));
    assert_eq!(
        of(["main", "handle", "lookup", "rehash", "compare", "parse"]),
        None
    );
    assert_eq!(of(["", "", "", "", "", ""]), None);
}

/// The kernel's work for a call of the program is one cause, with its members, if it is spread over several of its
/// functions; a function with most of it is a cause by itself.
#[test]
fn functions_of_the_kernel() {
    let functions = [
        (1, "parse", "/usr/bin/server"),
        (2, "fault", "[kernel]"),
        (3, "clear", "[kernel]"),
        (4, "charge", "[kernel]"),
    ];
    let causes = |kernel: [i64; 3]| {
        let mut maker = Maker::new(info(&["/usr/bin/server:parse"]));
        for i in 0..2_000_u64 {
            let slow = [2, 3, 4].into_iter().zip(kernel);
            let slow = slow.filter(|_| i % 50 == 7);
            let did: Vec<_> = iter::once(Ran(1, 50_000 + (i % 7) as i64 * 100))
                .chain(slow.map(|(function, ns)| Ran(function, ns)))
                .collect();
            maker.visit(&VisitFixture::new(i, "", &did));
        }
        let trace = maker.finish(&functions);
        let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
        let gap = whole(&explanation).gap.clone().unwrap();
        assert!((sum(&gap) - 1.0).abs() < 1e-9);
        (gap.causes, text::render(&explanation))
    };
    let (spread, text) = causes([400_000, 350_000, 300_000]);
    let names = |it: &Cause| it.function.name.clone();
    let members: Vec<_> = spread[0].functions.iter().filter_map(names).collect();
    assert_eq!(members, ["fault", "clear", "charge"]);
    let parts: f64 = spread[0].functions.iter().map(|it| it.figures.share).sum();
    assert!((parts - spread[0].figures.share).abs() < 1e-9);
    assert!(
        text.contains(
            "slow because: in functions of the kernel 100 % (fault 38 %, clear 33 %, charge 29 %)"
        ),
        "{text}"
    );
    let (one, _) = causes([800_000, 350_000, 300_000]);
    let alone: Vec<_> = one.iter().filter_map(names).collect();
    assert_eq!(alone, ["fault", "clear", "charge"]);
}

/// The kernel's work in page faults is one cause, whatever function has most of it, and so is that in interrupts; slow items
/// have this many more faults.
#[test]
fn entries_to_the_kernel() {
    let cause_of = |entry: &str| {
        let mut maker = Maker::new(info(&["/usr/bin/server:parse"]));
        maker.each_visit = |visit| {
            let is_slow = visit.oncpu_ns > Some(500_000);
            visit.page_faults = Some(if is_slow { 1_605 } else { 0 });
        };
        for (id, name) in [(2, "clear"), (3, "charge")] {
            maker.add(FunctionRow {
                function_id: FunctionId(id),
                name: Some(name.to_owned()),
                module: Some("[kernel]".to_owned()),
                kernel: true,
                kernel_entry: Some(entry.to_owned()),
                ..FunctionRow::default()
            });
        }
        for i in 0..2_000_u64 {
            let usual = Ran(1, 50_000 + (i % 7) as i64 * 100);
            let did = match i % 50 {
                7 => vec![usual, Ran(2, 600_000), Ran(3, 200_000), Ran(4, 200_000)],
                _ => vec![usual],
            };
            maker.visit(&VisitFixture::new(i, "", &did));
        }
        let functions = ["parse", "read"].map(|it| (it, "/usr/bin/server"));
        let [(parse, program), (read, _)] = functions;
        let trace = maker.finish(&[(1, parse, program), (4, read, program)]);
        let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
        let text = text::render(&explanation);
        // The verdict, in one line.
        let lines = text
            .lines()
            .skip_while(|it| !it.starts_with("slow because:"));
        let verdict: Vec<_> = lines.take_while(|it| !it.starts_with("  slow ")).collect();
        let words = verdict.iter().flat_map(|it| it.split_whitespace());
        words.collect::<Vec<_>>().join(" ")
    };
    let faults = "slow because: page faults 80 % (1,605 more each): clear 60 %, charge 20 %; in read 20 % (shares of the 1.00 ms";
    let line = cause_of("page fault");
    assert!(line.starts_with(faults), "{line}");
    assert!(!line.contains("page faults more"), "{line}");
    let line = cause_of("interrupt");
    let interrupts = "slow because: interrupts 80 %: clear 60 %, charge 20 %; in read 20 % (shares";
    assert!(line.starts_with(interrupts), "{line}");
    assert!(line.ends_with("; 1,605 page faults more each"), "{line}");
    let line = cause_of("breakpoint");
    assert!(
        line.contains("breakpoints of another tool 80 %: clear"),
        "{line}"
    );
}
