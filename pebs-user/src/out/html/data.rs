//! Data of the page: columns of numbers, as JSON.
//!
//! Times are ns on the trace clock, those of parts of a visit relative to its begin. Numbers of items are text,
//! as they have more digits than JavaScript's numbers. Names of the target are escaped where they would reorder
//! or hide the text around them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::flame::Flame;
use super::parts::{PartName, Parts};
use crate::compare::classes::{Class, RankBy, Standing};
use crate::compare::counted;
use crate::compare::load::{self, Functions, Probes, Sample, Visit, Wait, Weight, arg_text};
use crate::compare::losses::LossVisits;
use crate::compare::select::error::ExportError;
use crate::compare::select::{Chosen, VisitSet};
use crate::compare::stages::passages;
use crate::store::reader::Trace;
use crate::store::run::CountedInfo;
use crate::store::schema::{InterferenceColumns, visit_flag};
use crate::terminal::shown;

/// Samples and waits that are drawn in time lines, at most: of the slowest visits first.
const TIME_LINE_PARTS: u64 = 300_000;

/// Bars of a histogram for each factor of ten.
const BARS_A_DECADE: f64 = 10.0;

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    weight: String,
    /// Description of the weight of means over items.
    mean_weight: String,
    unit: String,
    is_time: bool,
    /// Names of the argument columns.
    args: Vec<String>,
    flags: Vec<&'static str>,
    probes: Vec<ProbeData>,
    parts: Vec<PartName>,
    visits: Columns,
    /// Interrupt, softirq and page-fault time of the visits, as far as recorded.
    between: Vec<Between>,
    /// Weights of parts in visits.
    sums: Sums,
    /// Time lines.
    runs: Runs,
    /// Visits that have a time line.
    with_time_line: usize,
    /// Samples and waits by call path.
    flame: Flame,
    losses: Vec<LossData>,
}

/// A probe, and the durations of all its visits that are whole.
#[derive(Debug, Serialize)]
struct ProbeData {
    label: String,
    slow_from: Option<i64>,
    /// Whether that is time on the CPU.
    slow_on_cpu: bool,
    visits: u64,
    p50: i64,
    p99: i64,
    max: i64,
    /// Begin and end of a bar, and visits in it.
    bars: Vec<(f64, f64, u64)>,
}

/// A row a visit, by begin.
#[derive(Debug, Default, Serialize)]
struct Columns {
    id: Vec<u64>,
    item: Vec<String>,
    probe: Vec<usize>,
    tid: Vec<u32>,
    begin: Vec<i64>,
    duration: Vec<Option<i64>>,
    oncpu: Vec<Option<i64>>,
    samples: Vec<u32>,
    flags: Vec<u32>,
    slow: Vec<u8>,
    typical: Vec<u8>,
    /// Whether statistics include it.
    counted: Vec<u8>,
    args: Vec<Vec<Option<String>>>,
    /// Number of the item that went through stages; null where probes are no stages.
    passage: Vec<Option<u32>>,
}

/// Interruption time or event counts of the visits; also included in the times of functions and waits.
#[derive(Debug, Serialize)]
struct Between {
    /// `interrupts`, or the name of an event that was counted.
    what: String,
    /// Whether it is an event counted with `--count`, not an interruption.
    is_counted: bool,
    /// Whether it is a time.
    is_time: bool,
    /// By visit.
    values: Vec<Option<i64>>,
}

/// Sums by visit: those of visit i are at `at[i]..at[i + 1]`.
#[derive(Debug, Default, Serialize)]
struct Sums {
    at: Vec<usize>,
    part: Vec<usize>,
    weight: Vec<f64>,
    /// Events or ns that the samples stand for.
    counted: Vec<f64>,
    samples: Vec<u32>,
}

/// Parts of a visit over time: `at` as in [`Sums`].
#[derive(Debug, Default, Serialize)]
struct Runs {
    at: Vec<usize>,
    begin: Vec<i64>,
    ns: Vec<i64>,
    part: Vec<usize>,
    /// Waits with a known waker or cause.
    by: Vec<Ended>,
}

/// The thread that ended or caused a wait.
#[derive(Debug, Serialize)]
struct Ended {
    /// The wait, as an index of [`Runs`].
    run: usize,
    /// `woken by cron (12)`.
    by: String,
    /// Part of the wait in which the thread was runnable, ns.
    ready: Option<i64>,
}

/// Ranges in which something was lost for one reason.
#[derive(Debug, Serialize)]
struct LossData {
    reason: String,
    ranges: u64,
    /// Time in them.
    ns: i64,
}

/// A part within a visit.
#[derive(Clone, Copy, Default)]
struct PartSum {
    weight: f64,
    counted: f64,
    /// Or waits.
    samples: u32,
}

/// Parts of a visit being gathered.
#[derive(Default)]
struct Draft {
    sums: FxHashMap<usize, PartSum>,
    samples: Vec<(i64, usize)>,
    waits: Vec<(Wait, usize)>,
}

/// Reads the data of the page.
pub(super) fn read(
    trace: &Trace,
    chosen: &Chosen,
    losses: LossVisits,
) -> Result<Page, ExportError> {
    let weight = Weight::of(&trace.info);
    let labels = Probes::of(&trace.info);
    let functions = Functions::read(trace)?;
    let mut visits = Vec::new();
    load::visits(trace, &chosen.visits, |visit| visits.push(visit))?;
    visits.sort_by_key(|visit| (visit.begin_ns.0, visit.visit_id));
    let mut parts = Parts::new(&functions);
    let (with_time_line, lines) = time_lines(&visits);
    let mut drafts = drafts(trace, chosen, weight, &lines, &mut parts)?;
    let (mut sums, mut runs) = (Sums::default(), Runs::default());
    for visit in &visits {
        let draft = drafts.remove(&visit.visit_id).unwrap_or_default();
        sums.add(&draft);
        runs.add(visit, draft);
    }
    sums.at.push(sums.part.len());
    runs.at.push(runs.part.len());
    let flame = Flame::read(trace, weight, (&visits, &chosen.visits), &mut parts)?;
    let mut items = FxHashMap::default();
    passages(trace, |visit, item| {
        if chosen.visits.contains(visit) {
            items.insert(visit, item);
        }
    })?;
    let probes: Vec<u16> = trace.info.probes.iter().map(|probe| probe.id.0).collect();
    let mut table = Columns::of(&visits, chosen, &probes, losses);
    if !items.is_empty() {
        let of = |visit: &Visit| items.get(&visit.visit_id).copied();
        table.passage = visits.iter().map(of).collect();
    }
    let columns = trace.info.columns.iter();
    Ok(Page {
        weight: weight.words(),
        mean_weight: weight.mean_words(),
        unit: weight.unit().to_owned(),
        is_time: weight.is_time(),
        args: columns.map(|it| shown(&it.name).into_owned()).collect(),
        flags: visit_flag::NAMES.to_vec(),
        probes: probes
            .iter()
            .map(|probe| ProbeData::of(chosen, *probe, &labels))
            .collect(),
        parts: parts.into_names(),
        visits: table,
        between: between(trace, &visits)?,
        sums,
        runs,
        with_time_line,
        flame,
        losses: losses_by_reason(trace)?,
    })
}

/// Visits that get a time line: the longest first, as long as their parts are not too many.
fn time_lines(visits: &[Visit]) -> (usize, VisitSet) {
    let mut order: Vec<&Visit> = visits.iter().collect();
    order.sort_by_key(|visit| Reverse((visit.duration_ns, visit.visit_id)));
    let (mut set, mut number, mut parts) = (VisitSet::default(), 0, 0);
    for visit in order {
        parts += u64::from(visit.samples) + u64::from(visit.switches.unwrap_or(0));
        if parts > TIME_LINE_PARTS {
            break;
        }
        set.insert(visit.visit_id);
        number += 1;
    }
    (number, set)
}

fn drafts(
    trace: &Trace,
    chosen: &Chosen,
    weight: Weight<'_>,
    lines: &VisitSet,
    parts: &mut Parts<'_>,
) -> Result<FxHashMap<u64, Draft>, ExportError> {
    let mut drafts: FxHashMap<u64, Draft> = FxHashMap::default();
    load::functions(trace, &chosen.visits, |row| {
        if let Some((weight, counted)) = weight.get(&row).zip(weight.events(&row)) {
            let part = parts.number(Some(row.function_id.0), None);
            let sums = &mut drafts.entry(row.visit_id).or_default().sums;
            let sum = PartSum {
                weight,
                counted,
                samples: row.samples,
            };
            sums.insert(part, sum);
        }
    })?;
    load::waits(trace, &chosen.visits, |wait| {
        let part = parts.number(wait.function, Some(&wait.state));
        let draft = drafts.entry(wait.visit_id).or_default();
        if weight.is_time() {
            let sum = draft.sums.entry(part).or_default();
            sum.weight += wait.ns() as f64;
            sum.counted = sum.weight;
            sum.samples += 1;
        }
        if lines.contains(wait.visit_id) {
            draft.waits.push((wait, part));
        }
    })?;
    load::samples(trace, lines, weight.event(), |sample: Sample| {
        let part = parts.number(Some(sample.function), None);
        let draft = drafts.entry(sample.visit_id).or_default();
        draft.samples.push((sample.time_ns, part));
    })?;
    Ok(drafts)
}

impl ProbeData {
    fn of(chosen: &Chosen, probe: u16, labels: &Probes) -> Self {
        let classes = chosen.classes.get(&probe);
        let durations = chosen.durations.get(&probe);
        let mut bars: Vec<(f64, f64, u64)> = Vec::new();
        for step in durations.iter().flat_map(|it| it.iter_recorded()) {
            let place = (step.value_iterated_to().max(1) as f64).log10() * BARS_A_DECADE;
            let from = 10_f64.powf(place.floor() / BARS_A_DECADE);
            let to = 10_f64.powf((place.floor() + 1.0) / BARS_A_DECADE);
            match bars.last_mut() {
                // The same computation: equal to the last bit.
                Some(bar) if bar.0.total_cmp(&from).is_eq() => bar.2 += step.count_at_value(),
                _ => bars.push((from, to, step.count_at_value())),
            }
        }
        let limit = classes.and_then(|it| it.limit.as_ref());
        let quantiles = chosen.quantiles.get(&probe);
        Self {
            label: shown(&labels.label(probe)).into_owned(),
            slow_from: limit.map(|limit| limit.from_ns),
            slow_on_cpu: chosen.ranker.by == RankBy::CpuTime,
            visits: durations.map_or(0, |it| it.len()),
            p50: quantiles.map_or(0, |it| it.p50_ns),
            p99: quantiles.map_or(0, |it| it.p99_ns),
            max: quantiles.map_or(0, |it| it.max_ns),
            bars,
        }
    }
}

impl Columns {
    fn of(visits: &[Visit], chosen: &Chosen, probes: &[u16], losses: LossVisits) -> Self {
        let mut columns = Self::default();
        for visit in visits {
            let standing = Standing::of(visit.took(), visit.flags, losses);
            let counted = matches!(standing, Standing::Counted(_));
            let of = (visit.probe_id.0, visit.flags);
            let class = chosen.class(standing, visit.oncpu_ns, of);
            let text = |value: &Option<_>| {
                let value = value.as_ref().map(arg_text);
                value.map(|value| shown(&value).into_owned())
            };
            let probe = probes.iter().position(|probe| *probe == visit.probe_id.0);
            columns.id.push(visit.visit_id);
            columns.item.push(visit.item_id.to_string());
            columns.probe.push(probe.unwrap_or(0));
            columns.tid.push(visit.tid.0);
            columns.begin.push(visit.begin_ns.0);
            columns.duration.push(visit.duration_ns);
            columns.oncpu.push(visit.oncpu_ns);
            columns.samples.push(visit.samples);
            columns.flags.push(visit.flags);
            columns.slow.push(u8::from(class == Some(Class::Slow)));
            let typical = class == Some(Class::Typical);
            columns.typical.push(u8::from(typical));
            let in_probe = chosen.classes.contains_key(&of.0);
            columns.counted.push(u8::from(counted && in_probe));
            columns.args.push(visit.args.iter().map(text).collect());
        }
        columns
    }
}

fn between(trace: &Trace, visits: &[Visit]) -> Result<Vec<Between>, ExportError> {
    let names = InterferenceColumns::WORDS.into_iter();
    let columns = names.enumerate().map(|(at, what)| Between {
        what: what.to_owned(),
        is_counted: false,
        is_time: at < InterferenceColumns::TIMES,
        values: visits
            .iter()
            .map(|visit| visit.interference().values()[at])
            .collect(),
    });
    let known = columns.filter(|column| column.values.iter().any(Option::is_some));
    Ok(known.chain(counts(trace, visits)?).collect())
}

/// Counted events of the visits.
fn counts(trace: &Trace, visits: &[Visit]) -> Result<Vec<Between>, ExportError> {
    let column = |event: &CountedInfo| Between {
        what: shown(&event.name).into_owned(),
        is_counted: true,
        is_time: event.unit.is_time(),
        values: vec![None; visits.len()],
    };
    let mut columns: Vec<Between> = trace.info.counted.iter().map(column).collect();
    let places: FxHashMap<u64, usize> = visits
        .iter()
        .enumerate()
        .map(|(at, visit)| (visit.visit_id, at))
        .collect();
    counted::each(trace, |count| {
        let column = columns.get_mut(usize::from(count.event));
        if let (Some(column), Some(at)) = (column, places.get(&count.visit_id)) {
            column.values[*at] = count.count.and_then(|count| count.try_into().ok());
        }
    })?;
    Ok(columns)
}

impl Sums {
    fn add(&mut self, draft: &Draft) {
        self.at.push(self.part.len());
        let mut sums: Vec<_> = draft.sums.iter().collect();
        sums.sort_unstable_by_key(|(part, _)| **part);
        for (part, sum) in sums {
            self.part.push(*part);
            // Tenths of a ns are below the precision.
            self.weight.push(sum.weight.round());
            self.counted.push(sum.counted.round());
            self.samples.push(sum.samples);
        }
    }
}

impl Runs {
    /// Adds a visit's time line. Where the function changes between two samples is unknown: half way.
    fn add(&mut self, visit: &Visit, draft: Draft) {
        self.at.push(self.part.len());
        let Draft {
            mut samples, waits, ..
        } = draft;
        samples.sort_unstable();
        let last = samples.last().map_or(visit.begin_ns.0, |last| last.0);
        let end = visit.end_ns.map_or(last, |end| end.0.max(last));
        let (mut from, mut rest) = (visit.begin_ns.0, samples.as_slice());
        while let Some((time, part)) = rest.first().copied() {
            let same = rest.iter().take_while(|sample| sample.1 == part).count();
            let until = match rest.get(same) {
                Some((next, _)) => {
                    let before = rest[same - 1].0;
                    before.midpoint(*next)
                }
                None => end,
            };
            debug_assert!(time <= until, "samples are sorted");
            self.push(visit, (from, until.saturating_sub(from), part));
            (from, rest) = (until, &rest[same..]);
        }
        for (wait, part) in waits {
            if let Some(by) = &wait.by {
                self.by.push(Ended {
                    run: self.part.len(),
                    by: shown(&by.to_string()).into_owned(),
                    ready: wait.runnable_ns,
                });
            }
            self.push(visit, (wait.begin_ns, wait.ns(), part));
        }
    }

    fn push(&mut self, visit: &Visit, (begin, ns, part): (i64, i64, usize)) {
        self.begin.push(begin.saturating_sub(visit.begin_ns.0));
        self.ns.push(ns.max(0));
        self.part.push(part);
    }
}

/// In order of their first range.
fn losses_by_reason(trace: &Trace) -> Result<Vec<LossData>, ExportError> {
    let mut losses: Vec<LossData> = Vec::new();
    load::losses(trace, |begin, end, reason| {
        let ns = end.saturating_sub(begin);
        match losses.iter_mut().find(|it| it.reason == reason) {
            Some(known) => {
                known.ranges += 1;
                known.ns = known.ns.saturating_add(ns);
            }
            None => losses.push(LossData {
                reason: reason.to_owned(),
                ranges: 1,
                ns,
            }),
        }
    })?;
    Ok(losses)
}
