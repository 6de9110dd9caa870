//! Comparisons of made-up traces.

use crate::compare::counted::Excess;
use crate::compare::diff::model::{Diff, Failed, Note, RowDiff};
use crate::compare::diff::{DiffError, DiffOptions, DiffRows, diff};
use crate::compare::explain::model::CauseType;
use crate::failure::Hint as _;
use crate::out::diff::text;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};
use crate::store::run::{CountedInfo, EntryClass, PositionsInfo, RunInfo, SiteInfo};
use crate::store::schema::{CountRow, count_state};
use crate::units::{CountUnit, EventId};

fn said(failed: &[Failed]) -> Vec<String> {
    failed.iter().map(ToString::to_string).collect()
}

const SPEC: &str = "/srv/old/server:handle(n=arg2, key=str(arg1))";
const MOVED: &str = "/srv/new/server:handle(n=arg2, key=str(arg1))";

/// Behaviour of a build: mean time of an item in `hash`, in `send`, and waiting.
#[derive(Clone, Copy)]
struct Build {
    hash: u32,
    send: u32,
    wait: u32,
}

const OLD: Build = Build {
    hash: 30_000,
    send: 60_000,
    wait: 20_000,
};

/// 2,000 items, each time within a third of its mean; functions are numbered by the seed.
fn run(described: RunInfo, build: Build, seed: u64) -> TestTrace {
    let mut maker = Maker::new(described);
    let mut random = SplitMix64::new(seed);
    let first = (seed % 5) as u32;
    for _ in 0..2_000 {
        let mut about = |mean: u32| i64::from(mean - mean / 3 + random.below(mean / 3 * 2));
        let did = [
            Ran(first, about(build.hash)),
            Waited(first + 1, "sleeping", about(build.wait)),
            Ran(first + 1, about(build.send)),
        ];
        maker.visit(&VisitFixture::new(0, "k", &did));
    }
    let path = described_module(&maker.info);
    maker.finish(&[(first, "hash", &path), (first + 1, "send", &path)])
}

fn described_module(info: &RunInfo) -> String {
    info.probes[0].spec.split(':').next().unwrap().to_owned()
}

fn above(percent: f64) -> DiffOptions {
    DiffOptions {
        fail_above: Some(percent / 100.0),
        ..DiffOptions::default()
    }
}

fn row<'a>(found: &'a Diff, name: &str, kind: CauseType) -> &'a RowDiff {
    let mut rows = found.probes[0].rows.iter();
    rows.find(|it| it.name.as_deref() == Some(name) && it.kind == kind)
        .unwrap()
}

/// If samples beat with the items of a run, functions have no interval and can't fail; observed figures can.
#[test]
fn beating() {
    let slower = Build {
        hash: 60_000,
        ..OLD
    };
    let old = run(info(&[SPEC]), OLD, 1);
    for beats in [false, true] {
        let mut described = info(&[MOVED]);
        described.positions = vec![PositionsInfo {
            probe_id: described.probes[0].id,
            beats,
            ..PositionsInfo::default()
        }];
        let new = run(described, slower, 2);
        let found = diff(&old, &new, &above(5.0)).unwrap();
        let hash = row(&found, "hash", CauseType::Function).change;
        assert_eq!((hash.changed, hash.fails), (!beats, !beats));
        assert_eq!(hash.change_low_ns.is_none(), beats);
        assert_eq!(hash.share_high.is_none(), beats);
        let wait = row(&found, "send", CauseType::Wait).change;
        assert!(wait.change_low_ns.is_some());
        let failed = said(&found.failed);
        assert!(failed.iter().any(|it| it.contains("CPU")), "{failed:?}");
        let beat = found
            .notes
            .iter()
            .any(|it| matches!(it, Note::Beats { .. }));
        assert_eq!(beat, beats, "{:?}", found.notes);
    }
}

/// A function that takes longer is found by its name, whatever its number and wherever the build lies;
/// it fails above the limit and not above a larger one.
#[test]
fn slower_function() {
    let old = run(info(&[SPEC]), OLD, 1);
    let slower = Build {
        hash: 45_000,
        ..OLD
    };
    let new = run(info(&[MOVED]), slower, 2);
    let found = diff(&old, &new, &above(5.0)).unwrap();
    let hash = row(&found, "hash", CauseType::Function);
    let (low, high) = (
        hash.change.change_low_ns.unwrap(),
        hash.change.change_high_ns.unwrap(),
    );
    assert!(
        low < 15_000.0 && 15_000.0 < high && low > 10_000.0,
        "{low} {high}"
    );
    assert!(hash.change.fails && hash.change.changed);
    assert!(!row(&found, "send", CauseType::Function).change.changed);
    assert!(!row(&found, "send", CauseType::Wait).change.changed);
    assert_eq!(said(&found.failed), ["on CPU", "p50", "hash"]);
    assert_eq!(found.notes, []);
    let shown = text::render(&found);
    assert!(shown.lines().nth(1).unwrap().contains("hash +1"), "{shown}");
    assert!(diff(&old, &new, &above(40.0)).unwrap().failed.is_empty());
    // Faster is not a failure.
    assert!(diff(&new, &old, &above(5.0)).unwrap().failed.is_empty());
}

/// Functions named by their address are compared one by one if both traces ran the same build, else as their module.
#[test]
fn functions_without_names() {
    let run = |build_id, hash| {
        let mut maker = Maker::new(info(&[SPEC]));
        maker.build_id = build_id;
        for _ in 0..200 {
            maker.visit(&VisitFixture::new(0, "k", &[Ran(1, hash), Ran(2, 30_000)]));
        }
        let path = described_module(&maker.info);
        maker.finish(&[
            (1, "server+fn@0x1000", &path),
            (2, "server+fn@0x2000", &path),
        ])
    };
    let named = |before, after| {
        let (old, new) = (run(before, 30_000), run(after, 40_000));
        let found = diff(&old, &new, &DiffOptions::default()).unwrap();
        let names = found.probes[0].rows.iter().map(|it| it.name.clone());
        names.collect::<Vec<_>>()
    };
    let each = [Some("server+fn@0x1000"), Some("server+fn@0x2000")];
    let mut same = named(Some("abc"), Some("abc"));
    same.sort();
    assert_eq!(same, each.map(|it| it.map(str::to_owned)));
    assert_eq!(named(Some("abc"), Some("def")), [None]);
    assert_eq!(named(None, None), [None]);
}

/// Builds whose binaries have different names are still compared function by function.
#[test]
fn renamed_binary() {
    let described = |spec: &str| {
        let mut described = info(&[spec]);
        let path = described_module(&described);
        described.probes[0].sites = vec![SiteInfo {
            path,
            place: "handle".to_owned(),
            file_offset: 0,
            role: "begin".to_owned(),
            kind: "uprobe".to_owned(),
            instruction: String::new(),
            class: EntryClass::Emulated,
        }];
        described
    };
    let old = run(described("/srv/app-old:handle"), OLD, 1);
    let new = run(described("/srv/app-new:handle"), OLD, 2);
    let found = diff(&old, &new, &above(5.0)).unwrap();
    let hash = row(&found, "hash", CauseType::Function);
    assert_eq!(hash.module.as_deref(), Some("app-old"));
    assert!(!hash.change.changed, "{hash:?}");
    assert_eq!(said(&found.failed), [] as [String; 0]);
    assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
}

/// Waits are compared as well, and fail like functions.
#[test]
fn longer_wait() {
    let old = run(info(&[SPEC]), OLD, 1);
    let slower = Build {
        wait: 60_000,
        ..OLD
    };
    let new = run(info(&[SPEC]), slower, 2);
    let found = diff(&old, &new, &above(5.0)).unwrap();
    assert_eq!(said(&found.failed), ["p50", "waited for a socket in send"]);
    let by_module = DiffOptions {
        by: DiffRows::Module,
        ..above(5.0)
    };
    let found = diff(&old, &new, &by_module).unwrap();
    assert_eq!(said(&found.failed), ["p50", "slept in server"]);
}

/// Runs of the same build differ beyond chance in hardly any comparison, and never fail.
#[test]
fn same_build() {
    let runs: Vec<_> = (0..8).map(|seed| run(info(&[SPEC]), OLD, seed)).collect();
    let (mut changed, mut compared) = (0, 0);
    for (at, old) in runs.iter().enumerate() {
        for new in &runs[at + 1..] {
            let found = diff(old, new, &above(1.0)).unwrap();
            assert_eq!(said(&found.failed), [] as [String; 0]);
            changed += usize::from(found.probes[0].rows.iter().any(|it| it.change.changed));
            compared += 1;
        }
    }
    assert!(changed <= 4, "{changed} of {compared}");
}

/// Functions run by few items have few samples, in one run none: that is no change.
#[test]
fn rare_functions() {
    const FUNCTIONS: u32 = 60;
    let make = |seed: u64| {
        let mut maker = Maker::new(info(&[SPEC]));
        let mut random = SplitMix64::new(seed);
        for _ in 0..1_500 {
            let mut did = vec![Ran(0, 20_000 + i64::from(random.below(20_000)))];
            // Each runs in about 8 items.
            let rare = 1 + random.below(FUNCTIONS * 3);
            if rare <= FUNCTIONS {
                did.push(Ran(rare, 10_000 + i64::from(random.below(10_000))));
            }
            maker.visit(&VisitFixture::new(0, "k", &did));
        }
        let path = described_module(&maker.info);
        let names: Vec<String> = (0..=FUNCTIONS).map(|n| format!("f{n}")).collect();
        let named = names
            .iter()
            .zip(0..)
            .map(|(name, n)| (n, name.as_str(), path.as_str()));
        maker.finish(&named.collect::<Vec<_>>())
    };
    let runs: Vec<_> = (0..12).map(make).collect();
    let (mut changed, mut compared) = (0, 0);
    for pair in runs.windows(2) {
        let found = diff(&pair[0], &pair[1], &DiffOptions::default()).unwrap();
        assert!(found.probes[0].rows.len() > 20, "{found:?}");
        changed += usize::from(found.probes[0].rows.iter().any(|it| it.change.changed));
        compared += 1;
    }
    assert!(changed <= 1, "{changed} of {compared}");
}

/// The first line names exactly the changes of the rows, however small.
#[test]
fn verdict_and_rows_agree() {
    let make = |seed| run(info(&[SPEC]), OLD, seed);
    let mut found = diff(&make(1), &make(2), &DiffOptions::default()).unwrap();
    let rows = &mut found.probes[0].rows;
    rows.iter_mut().for_each(|it| it.change.changed = false);
    let none = text::render(&found);
    assert!(
        none.contains("no function's time per item beyond chance"),
        "{none}"
    );
    let change = &mut found.probes[0].rows[0].change;
    (change.changed, change.share, change.change_ns) = (true, 0.001, 90.0);
    let little = text::render(&found);
    assert!(!little.contains("no function's time"), "{little}");
    assert!(
        little.contains("+90 ns an item: each less than 0.5 % of it"),
        "{little}"
    );
}

/// Differences that make traces hard to compare are noted; without a common probe there is an error.
#[test]
fn different_runs() {
    let old = run(info(&[SPEC]), OLD, 1);
    let mut described = info(&["/srv/old/server:handle(n=arg3, key=str(arg1))"]);
    described.events[0].reset = 20_000;
    described.host.kernel = "6.19".to_owned();
    described.switches = false;
    let new = run(described, OLD, 2);
    let notes = diff(&old, &new, &DiffOptions::default()).unwrap().notes;
    for part in [
        "probes differ: ",
        "reset values differ: 10000 before",
        "kernels differ: ",
        "intervals do not cover it",
    ] {
        assert!(
            notes.iter().any(|it| it.to_string().contains(part)),
            "{part}: {notes:?}"
        );
    }
    let other = run(info(&["/bin/x:other"]), OLD, 3);
    let error = diff(&old, &other, &DiffOptions::default()).unwrap_err();
    assert!(matches!(error, DiffError::Probes { .. }), "{error}");
    assert!(error.hint().unwrap().contains("same --uprobe"));
    let empty = Maker::new(info(&[SPEC])).finish(&[]);
    let error = diff(&old, &empty, &DiffOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no visits that ended") && error.hint().is_some());
}

/// Events that are counted in [`counted_run`].
const EVENTS: usize = 16;

/// 400 items with counts of [`EVENTS`] events, each between 0 and 19, the first one larger by `more`.
fn counted_run(more: u32, seed: u64) -> TestTrace {
    let mut described = info(&[SPEC]);
    let event = |id: u8| CountedInfo {
        id: EventId(id),
        name: format!("event{id}"),
        unit: CountUnit::Events,
        ..CountedInfo::default()
    };
    described.counted = (0..EVENTS as u8).map(event).collect();
    let mut maker = Maker::new(described);
    let mut random = SplitMix64::new(seed);
    for visit_id in 1..=400 {
        let ran = 50_000 + i64::from(random.below(10_000));
        maker.visit(&VisitFixture::new(0, "k", &[Ran(1, ran)]));
        for event in 0..EVENTS as u8 {
            let more = if event == 0 { more } else { 0 };
            maker.add(CountRow {
                visit_id,
                item_id: visit_id,
                event: EventId(event),
                count: Some(u64::from(random.below(20) + more)),
                enabled_ns: Some(ran),
                running_ns: Some(ran),
                state: count_state::EXACT,
            });
        }
    }
    let path = described_module(&maker.info);
    maker.finish(&[(1, "hash", &path)])
}

/// Counts that changed beyond chance: per item, and per us.
fn changed(found: &Diff) -> Vec<(String, bool, bool)> {
    let is_sure = |it: Option<Excess>| {
        let it = it.unwrap();
        it.low.unwrap() > 0.0 || it.high.unwrap() < 0.0
    };
    let rows = found.probes[0].counted_events.iter();
    let each = rows.map(|it| {
        (
            it.event.clone(),
            is_sure(it.excess),
            is_sure(it.rate_excess),
        )
    });
    each.filter(|it| it.1 || it.2).collect()
}

/// Of many counted events without a change, one seems to change no more often than the interval's level allows; a real
/// change is found.
#[test]
fn counts_by_chance() {
    let by_chance = (0..12).filter(|seed| {
        let (old, new) = (counted_run(0, 2 * seed), counted_run(0, 2 * seed + 1));
        let found = diff(&old, &new, &above(5.0)).unwrap();
        assert!(found.comparisons >= 2 * EVENTS as u64 + 4);
        !changed(&found).is_empty()
    });
    let by_chance = by_chance.count();
    assert!(by_chance <= 3, "{by_chance} of 12");
    let found = diff(&counted_run(0, 101), &counted_run(3, 102), &above(5.0)).unwrap();
    assert_eq!(changed(&found), [("event0".to_owned(), true, true)]);
    let json = serde_json::to_value(&found).unwrap();
    let row = &json["probes"][0]["counted_events"][0];
    let mean = |side: &str| row[side]["per_item"].as_f64().unwrap();
    let change = row["change"]["value"].as_f64().unwrap();
    assert!(
        change > 2.0 && (mean("after") - mean("before") - change).abs() < 1e-9,
        "{row}"
    );
}
