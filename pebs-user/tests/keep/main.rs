//! Ring contents through the whole pipeline with `--keep`: the kept visits, the aggregates, and the size of the trace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod stream;
mod tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pebs_user::compare::report::model::{ProbeReport, Row, TypicalRule};
use pebs_user::compare::report::{ReportOptions, build};
use pebs_user::estimate::sketch::RELATIVE_ERROR;
use pebs_user::ledger::Reason;
use pebs_user::pipeline::synthetic;
use pebs_user::pipeline::{Keep, Outcome, Pipeline, PipelineOptions};
use pebs_user::store::options::WriterOptions;
use pebs_user::store::reader::Trace;
use pebs_user::store::recover::recover;
use pebs_user::store::run::{EventInfo, KeepInfo, KeptVisits, RunInfo};
use pebs_user::store::schema::{SCHEMA_VERSION, Table, VisitRow, measure, visit_flag};
use pebs_user::store::writer::TraceWriter;
use pebs_user::units::{CountUnit, EventId, KtimeNs};

use stream::{ITEMS, Stream};
use tables::Stat;

/// Several intervals in the stream's 0.3 s.
const INTERVAL: Duration = Duration::from_millis(50);

/// A trace made of the stream, in a directory that is removed with it.
struct StreamTrace {
    place: tempfile::TempDir,
    kept: KeptVisits,
    samples: u64,
    not_kept: u64,
}

impl StreamTrace {
    fn dir(&self) -> PathBuf {
        self.place.path().join("trace")
    }

    fn trace(&self) -> Trace {
        Trace::open(&self.dir()).unwrap()
    }

    fn bytes(&self) -> u64 {
        fn bytes(path: &Path) -> u64 {
            let meta = std::fs::metadata(path).unwrap();
            if !meta.is_dir() {
                return meta.len();
            }
            let entries = std::fs::read_dir(path).unwrap();
            entries.map(|entry| bytes(&entry.unwrap().path())).sum()
        }
        bytes(&self.dir())
    }

    /// Items whose details were kept.
    fn items(&self) -> BTreeSet<u64> {
        let visits = tables::visits(&self.trace());
        let kept = visits
            .iter()
            .filter(|it| it.flags & visit_flag::CONDENSED == 0);
        kept.map(|visit| visit.item_id).collect()
    }
}

fn info(keep: Keep) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        switches: true,
        events: vec![EventInfo {
            id: EventId(0),
            name: "cpu-clock".to_owned(),
            reset: 1000,
            unit: CountUnit::Ns,
            frequency: None,
            has_times: false,
            enabled_ns: None,
            running_ns: None,
            r#type: 1,
            config: 0,
            precise_requested: 0,
            precise_granted: 0,
            precise_reason: None,
        }],
        keep: (keep != Keep::All).then(|| KeepInfo {
            keep: "slow".to_owned(),
            slow: None,
            warm_up: 100,
            visits: None,
        }),
        ..RunInfo::default()
    }
}

/// A pipeline that has taken the whole stream, but is not finished. From some cycles on the reset value is another.
fn run(stream: &Stream, keep: Keep, dir: &Path, changes: &[(usize, u64)]) -> Pipeline {
    let options = WriterOptions {
        segment: INTERVAL,
        flush: INTERVAL / 5,
        ..WriterOptions::default()
    };
    let writer = TraceWriter::create(dir, &info(keep), options).unwrap();
    let options = PipelineOptions {
        origin: KtimeNs(stream::ORIGIN),
        keep,
        interval: INTERVAL,
        ..synthetic::options()
    };
    let probes = synthetic::probes();
    let mut pipeline = Pipeline::new(&probes, &options, writer, Default::default());
    let mut frontier = KtimeNs(stream::ORIGIN);
    for (n, mut cycle) in stream.cycles().into_iter().enumerate() {
        if let Some((_, reset)) = changes.iter().find(|(at, _)| *at == n) {
            pipeline.reset_changed(frontier, EventId(0), *reset);
        }
        frontier = cycle.frontier;
        pipeline.cycle(&mut cycle);
    }
    pipeline
}

fn make(stream: &Stream, keep: Keep) -> StreamTrace {
    make_changed(stream, keep, &[])
}

fn make_changed(stream: &Stream, keep: Keep, changes: &[(usize, u64)]) -> StreamTrace {
    let place = tempfile::tempdir().unwrap();
    let pipeline = run(stream, keep, &place.path().join("trace"), changes);
    let outcome = pipeline.finish(stream.end());
    let samples = check(stream, &outcome);
    let totals = outcome.ledger.totals().samples;
    outcome.writer.finish(&info(keep)).unwrap();
    StreamTrace {
        place,
        kept: outcome.kept,
        samples,
        not_kept: totals.of(Reason::NotKept),
    }
}

/// Checks that the ledger balances without loss; returns the number of samples.
fn check(stream: &Stream, outcome: &Outcome) -> u64 {
    assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
    assert_eq!(outcome.visits, ITEMS);
    assert_eq!(outcome.ledger.check(), Vec::<String>::new());
    let totals = outcome.ledger.totals();
    assert_eq!(
        (totals.samples.lost(), totals.samples.loss_ratio()),
        (0, 0.0)
    );
    assert_eq!(totals.samples.seen, stream.samples);
    totals.samples.seen
}

fn rule(text: &str) -> Keep {
    Keep::Slow(text.parse().unwrap())
}

/// A kept visit has all of its samples with their functions; a condensed one has none.
fn kept_are_whole(trace: &Trace) {
    let (visits, samples) = (tables::visits(trace), tables::samples_by_visit(trace));
    let functions = tables::functions(trace);
    for VisitRow {
        visit_id,
        samples: count,
        flags,
        ..
    } in visits
    {
        let kept = flags & visit_flag::CONDENSED == 0;
        let found = samples.get(&visit_id).copied().unwrap_or(0);
        assert_eq!(found, if kept { count } else { 0 }, "visit {visit_id}");
        let rows = functions.iter().filter(|row| row.visit_id == visit_id);
        let sum: u32 = rows.map(|row| row.samples).sum();
        assert_eq!(sum, found, "visit {visit_id}");
    }
}

/// With 1 % slow items, each of them is kept, by its duration or by one function; the trace is a small part of the
/// complete one, and the samples left out are in the ledger.
#[test]
fn slow_items_are_kept() {
    let stream = Stream::new();
    let all = make(&stream, Keep::All);
    assert_eq!((all.items().len() as u64, all.not_kept), (ITEMS, 0));
    assert_eq!(all.trace().rows(Table::FunctionStats).unwrap(), 0);
    for (text, by_function, at_most) in
        [("3x", true, 2.5), ("p99", false, 4.0), ("80us", false, 1.0)]
    {
        let made = make(&stream, rule(text));
        let kept = made.items();
        let missed = stream.slow.difference(&kept).count();
        assert_eq!(missed, 0, "{text}: slow items that are not kept");
        let missed = stream.slow_function.difference(&kept).count();
        assert!(
            missed == 0 || !by_function,
            "{text}: {missed} with a slow function"
        );
        let percent = kept.len() as f64 * 100.0 / ITEMS as f64;
        assert!(percent <= at_most, "{text}: kept {percent} %");
        assert_eq!(made.kept.sum(), kept.len() as u64);
        assert_eq!(made.kept.unknown, 0);
        kept_are_whole(&made.trace());
        let written = made.trace().rows(Table::Samples).unwrap();
        assert_eq!(written + made.not_kept, made.samples);
        let ratio = made.bytes() as f64 / all.bytes() as f64;
        println!(
            "{text}: {} of {ITEMS} items ({:?}), {} bytes, {:.1} % of {}",
            kept.len(),
            made.kept,
            made.bytes(),
            ratio * 100.0,
            all.bytes()
        );
        // 6 % are descriptions of columns, written once per trace.
        assert!(ratio <= 0.37, "{text}: {ratio} of the bytes");
    }
}

/// Without any details the aggregates still cover every visit and sample, interval by interval, and their quantiles are
/// those of the complete trace's rows.
#[test]
fn aggregates_are_those_of_the_rows() {
    let stream = Stream::new();
    let (all, none) = (make(&stream, Keep::All), make(&stream, Keep::None));
    assert_eq!((none.items().len(), none.not_kept), (0, none.samples));
    for table in [Table::Samples, Table::VisitFunctions, Table::Waits] {
        assert_eq!(none.trace().rows(table).unwrap(), 0, "{table:?}");
    }
    assert_eq!(
        tables::visits(&all.trace()).len(),
        tables::visits(&none.trace()).len()
    );
    let stats = tables::stats(&none.trace());
    let intervals: BTreeSet<i64> = stats.iter().map(|stat| stat.begin_ns).collect();
    assert!(intervals.len() >= 5, "{intervals:?}");

    let durations = tables::visits(&all.trace())
        .iter()
        .map(|it| it.duration_ns.unwrap() as f64)
        .collect();
    agrees(
        &Stat::merged(&stats, measure::DURATION, None),
        durations,
        ITEMS,
    );
    let functions = tables::functions(&all.trace());
    let ids: BTreeSet<u32> = functions.iter().map(|row| row.function_id.0).collect();
    assert!(ids.len() >= 5, "{ids:?}");
    let mut samples = 0;
    for id in ids {
        let rows = || functions.iter().filter(|row| row.function_id.0 == id);
        let merged = Stat::merged(&stats, measure::SELF, Some(id));
        let count: u64 = rows().map(|row| u64::from(row.samples)).sum();
        assert_eq!(merged.samples, count);
        samples += count;
        let squared = rows()
            .map(|row| f64::from(row.samples).powi(2))
            .sum::<f64>();
        assert!((merged.samples_squared - squared).abs() < 1e-6 * squared);
        agrees(
            &merged,
            rows().map(|row| row.self_ns.unwrap()).collect(),
            ITEMS,
        );
    }
    assert_eq!(samples, none.samples);
}

/// Checks a merged distribution against these values; its quantiles within the sketch's error.
fn agrees(merged: &Stat, mut values: Vec<f64>, visits: u64) {
    assert_eq!(
        (merged.visits, merged.visits_with),
        (visits, values.len() as u64)
    );
    let sum: f64 = values.iter().sum();
    assert!(
        (merged.sum_ns - sum).abs() < 1e-6 * sum,
        "{} {sum}",
        merged.sum_ns
    );
    values.sort_by(f64::total_cmp);
    assert_eq!(
        (merged.min_ns, merged.max_ns),
        (values[0], values[values.len() - 1])
    );
    for share in [0.5, 0.9, 0.99] {
        let exact = values[((share * values.len() as f64).ceil() as usize).max(1) - 1];
        let found = merged.quantile(share);
        // Values are truncated to whole ns first.
        assert!(
            (found - exact).abs() <= RELATIVE_ERROR * exact + 1.0,
            "{found} for {exact}"
        );
    }
}

fn report(trace: &Trace) -> ProbeReport {
    let mut report = build(trace, &ReportOptions::default()).unwrap();
    report.probes.remove(0)
}

fn row<'a>(rows: &'a [Row], like: &Row) -> &'a Row {
    let id = like.function.function_id;
    rows.iter()
        .find(|row| row.function.function_id == id)
        .unwrap()
}

fn near(a: f64, b: f64, part: f64) {
    assert!((a - b).abs() <= part * b.abs(), "{a} and {b}");
}

/// The report of a trace with only the slow items has the same figures of all items and of the slow ones as the
/// complete trace; so does one without any item, except for the causes.
#[test]
fn reports_agree() {
    let stream = Stream::new();
    let whole = report(&make(&stream, Keep::All).trace());
    let (slow, none) = (make(&stream, rule("3x")), make(&stream, Keep::None));
    let (slow, none) = (report(&slow.trace()), report(&none.trace()));
    assert!(whole.largest.len() >= 5);
    for other in [&slow, &none] {
        assert_eq!((other.visits, other.counted), (ITEMS, ITEMS));
        assert_eq!(other.duration, whole.duration);
        let (split, expected) = (other.time.as_ref().unwrap(), whole.time.as_ref().unwrap());
        assert_eq!(split.visits, expected.visits);
        near(split.oncpu_ns, expected.oncpu_ns, 1e-9);
        assert_eq!(other.largest.len(), whole.largest.len());
        for expected in &whole.largest {
            let (cell, expected) = (row(&other.largest, expected).all, expected.all);
            assert_eq!(cell.samples, expected.samples);
            near(cell.per_visit.unwrap(), expected.per_visit.unwrap(), 1e-9);
            near(cell.share.unwrap(), expected.share.unwrap(), 1e-9);
            let width = cell.high.unwrap() - cell.low.unwrap();
            near(width, expected.high.unwrap() - expected.low.unwrap(), 0.3);
        }
    }
    let (class, expected) = (slow.slow.as_ref().unwrap(), whole.slow.as_ref().unwrap());
    assert_eq!((class, &*class.rule), (expected, "gap"));
    assert_eq!(class.visits as usize, stream.slow.len());
    let typical = slow.typical.unwrap();
    assert_eq!(
        (typical.rule, typical.visits),
        (TypicalRule::NotKept, ITEMS - 200)
    );
    let (top, expected) = (&slow.spread[0], &whole.spread[0]);
    assert_eq!(top.slow, row(&whole.spread, top).slow);
    // Only the typical visits differ.
    near(top.difference.unwrap(), expected.difference.unwrap(), 0.02);
    let details = |it: &ProbeReport| {
        it.slowest
            .iter()
            .filter(|visit| !visit.functions.is_empty())
            .count()
    };
    assert_eq!((details(&slow), details(&none)), (10, 0));
    let class = none.slow.as_ref().unwrap();
    assert_eq!(class.without_details, class.visits);
    assert!(none.spread.is_empty() && none.slowest.iter().all(|visit| visit.is_condensed()));
}

/// If the reset value changed while recording, sums over items give the same times as rows, which is not what their
/// numbers of samples give.
#[test]
fn changed_reset_value() {
    let stream = Stream::new();
    let last = stream.cycles().len();
    let changes = [(last / 3, 7_000), (last / 2, 400), (2 * last / 3, 20_000)];
    let made = |keep: Keep| report(&make_changed(&stream, keep, &changes).trace());
    let whole = made(Keep::All);
    for keep in [rule("3x"), Keep::None] {
        let other = made(keep);
        assert_eq!(other.largest.len(), whole.largest.len());
        let mut differ = 0;
        for expected in &whole.largest {
            let (cell, expected) = (row(&other.largest, expected).all, expected.all);
            assert_eq!(cell.samples, expected.samples);
            near(cell.per_visit.unwrap(), expected.per_visit.unwrap(), 1e-9);
            let width = cell.high.unwrap() - cell.low.unwrap();
            near(width, expected.high.unwrap() - expected.low.unwrap(), 0.3);
            let by_samples = cell.samples as f64 / whole.largest[0].all.samples as f64;
            let by_events = cell.per_visit.unwrap() / whole.largest[0].all.per_visit.unwrap();
            differ += usize::from((by_samples / by_events - 1.0).abs() > 1e-4);
        }
        assert!(differ > 0);
        if keep != Keep::None {
            let (top, expected) = (&other.spread[0], &whole.spread[0]);
            near(top.difference.unwrap(), expected.difference.unwrap(), 0.05);
        }
    }
}

/// A killed recording has visits after its last aggregates. Once recovered, its report covers the data present: equal
/// mean times, and no visit is subtracted that was never added.
#[test]
fn killed_recording_is_reported() {
    let (stream, place) = (Stream::new(), tempfile::tempdir().unwrap());
    let dir = place.path().join("trace");
    drop(run(&stream, rule("3x"), &dir, &[]));
    let recovered = recover(&dir).unwrap();
    assert!(recovered.tables.iter().any(|it| it.table == Table::Visits));
    let (trace, whole) = (Trace::open(&dir).unwrap(), make(&stream, Keep::All));
    let stats = tables::stats(&trace);
    let aggregated = Stat::merged(&stats, measure::DURATION, None).visits;
    let visits = trace.rows(Table::Visits).unwrap();
    assert!(
        0 < aggregated && aggregated < visits,
        "{aggregated} {visits}"
    );
    let (cut, whole) = (report(&trace), report(&whole.trace()));
    assert_eq!(
        (cut.counted, cut.time.as_ref().unwrap().visits),
        (visits, aggregated)
    );
    for expected in &whole.largest {
        let cell = row(&cut.largest, expected).all;
        near(
            cell.per_visit.unwrap(),
            expected.all.per_visit.unwrap(),
            0.1,
        );
    }
    let f = |report: &ProbeReport| row(&report.spread, &whole.spread[0]).typical.per_visit;
    near(f(&cut).unwrap(), f(&whole).unwrap(), 0.1);
}
