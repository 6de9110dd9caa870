//! Sums over the items of one trace, by probe: all that the fleet needs of it.
//!
//! Of a trace that kept some items they are in `function_stats`, else they are made from the details. Either way a trace is
//! read once, in streams, and what is left of it is some numbers for each function and wait.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use rustc_hash::FxHashMap;

use super::model::Moment;
use crate::compare::condensed::FunctionSums;
use crate::compare::diff::figures::Name;
use crate::compare::diff::place;
use crate::compare::explain::contrast::Naming;
use crate::compare::explain::keys::Key;
use crate::compare::explain::model::CauseType;
use crate::compare::explain::timing::Timing;
use crate::compare::losses::LossVisits;
use crate::compare::names::{FunctionName, Names, is_address};
use crate::compare::select::VisitSet;
use crate::compare::slots::Slots;
use crate::compare::stats::{self, Stats};
use crate::compare::waits::{States, WaitKey};
use crate::estimate::sketch::{Sketch, bucket};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::{measure, visit_flag};
use crate::store::view::{Select as _, View as _, columns};
use crate::units::FunctionId;

columns! {
    /// Durations in sums.
    struct Durations of function_stats {
        begin_ns, probe_id, measure, loss, visits_with, sum_ns, sum_squared, bucket_ns, bucket_count
    }
}

columns! {
    struct Visits of visits { visit_id, probe_id, begin_ns, duration_ns, oncpu_ns, flags }
}

columns! {
    struct Functions of visit_functions { visit_id, function_id, event, samples, events, self_ns }
}

columns! {
    struct Waits of waits { visit_id, begin_ns, end_ns, function_id, state }
}

/// Time of a function or wait in all items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub ns: f64,
    /// Samples, or waits.
    pub samples: u64,
}

/// Sums over items.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Items whose end is known.
    pub items: u64,
    pub duration_ns: f64,
    /// Squares of durations.
    pub squared: f64,
    /// Time on the CPU; all of it where switches were not recorded.
    pub active_ns: f64,
    pub lengths: Sketch,
    /// Items of traces that have samples: those that functions are known of.
    pub sampled_items: u64,
    pub spent: FxHashMap<Name, Spent>,
    /// Items and their durations by the time they began or ended, in steps.
    pub series: BTreeMap<i64, (u64, f64)>,
}

impl Sums {
    /// Adds items that began in a step, with the sum of their durations and that of the squares.
    fn add_items(&mut self, step: i64, items: u64, ns: f64, squared: f64) {
        self.items += items;
        self.duration_ns += ns;
        self.squared += squared;
        let of_step = self.series.entry(step).or_default();
        of_step.0 += items;
        of_step.1 += ns;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.items += other.items;
        self.duration_ns += other.duration_ns;
        self.squared += other.squared;
        self.active_ns += other.active_ns;
        self.lengths.merge(&other.lengths);
        self.sampled_items += other.sampled_items;
        for (name, more) in other.spent {
            let spent = self.spent.entry(name).or_default();
            spent.ns += more.ns;
            spent.samples += more.samples;
        }
        for (at, more) in other.series {
            let sum = self.series.entry(at).or_default();
            sum.0 += more.0;
            sum.1 += more.1;
        }
    }
}

/// Times to look at, and their steps, as time of the day in ns since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub since: Moment,
    pub until: Moment,
    pub step_ns: i64,
}

impl Period {
    fn has(&self, at: i64) -> bool {
        (self.since..self.until).contains(&at)
    }

    fn step(&self, at: i64) -> i64 {
        at.div_euclid(self.step_ns)
    }
}

/// Sums of a probe while a trace is read.
#[derive(Default)]
struct Draft {
    sums: Sums,
    stats: Stats,
}

/// A trace, and the part of it that is summed.
struct Reading<'a> {
    trace: &'a Trace,
    period: &'a Period,
    losses: LossVisits,
    /// The event that divides the time among functions.
    event: Option<&'a EventInfo>,
    /// The function of pebs-trace's own work.
    own: Option<u32>,
}

/// Sums of each probe of a trace that has items, by the probe's SPEC.
pub(super) fn sums(
    trace: &Trace,
    period: &Period,
    losses: LossVisits,
) -> Result<Vec<(String, Sums)>, ReadError> {
    let timing = Timing::of(&trace.info);
    let reading = Reading {
        trace,
        period,
        losses,
        event: timing.event.filter(|_| timing.reason.is_none()),
        own: trace.own_function()?,
    };
    let mut slots = Slots::new(&trace.info, None, Draft::default);
    let mut states = States::default();
    match trace.info.keep {
        Some(_) => reading.stats(&mut slots, &mut states)?,
        None => reading.details(&mut slots, &mut states)?,
    }
    let ids = slots.iter().flat_map(|(_, it)| {
        let waited = it.stats.waits.keys().filter_map(|it| it.function);
        it.stats.functions.functions().chain(waited)
    });
    let names = Names::of(trace, ids.map(|id| id.0).collect::<Vec<_>>().into_iter())?;
    let naming = Naming {
        names: &names,
        states: &states,
        probes: &trace.info.probes,
    };
    let found = slots.iter().filter(|(_, it)| it.sums.items > 0);
    Ok(found
        .map(|(probe, draft)| {
            let known = trace.info.probes.iter().find(|it| it.id.0 == probe);
            let spec = known.map_or_else(|| format!("probe {probe}"), |it| place(&it.spec));
            (spec, named(draft, &naming))
        })
        .collect())
}

/// The sums with times by name.
fn named(draft: &Draft, naming: &Naming<'_>) -> Sums {
    let Draft { sums, stats } = draft;
    let mut sums = sums.clone();
    let mut add = |key: Key, spent: Spent| {
        let (kind, function, state) = naming.of(key);
        // Another program took the CPU, wherever this one was.
        let function = match kind {
            CauseType::Preempted | CauseType::Stopped => FunctionName::default(),
            _ => function,
        };
        let name = Name::of((kind, function, state), |name, _| !is_address(name));
        let sum = sums.spent.entry(name).or_default();
        sum.ns += spent.ns;
        sum.samples += spent.samples;
    };
    let (all, active) = (stats.functions.events(), stats.functions.active_ns);
    for function in stats.functions.functions() {
        let events = stats.functions.events_of(function);
        let ns = if all > 0.0 {
            events / all * active
        } else {
            0.0
        };
        let samples = stats.functions.samples_of(function);
        add(Key::Function(function), Spent { ns, samples });
    }
    for (key, sum) in &stats.waits {
        let spent = Spent {
            ns: sum.ns as f64,
            samples: sum.waits,
        };
        add(Key::Wait(*key), spent);
    }
    sums.active_ns = active;
    sums.sampled_items = if all > 0.0 { sums.items } else { 0 };
    sums
}

impl Reading<'_> {
    /// The step in which an item began, by its begin on the trace's clock; `None`: the item is not summed.
    fn step(&self, begin: i64, has_loss: bool) -> Option<i64> {
        let at = self.trace.info.wall_clock_ns + begin;
        let is_left_out = has_loss && self.losses == LossVisits::LeaveOut;
        (!is_left_out && self.period.has(at)).then(|| self.period.step(at))
    }

    /// Adds up `function_stats`.
    fn stats(&self, slots: &mut Slots<Draft>, states: &mut States) -> Result<(), ReadError> {
        for batch in Durations::scan(self.trace)? {
            let batch = batch?;
            let columns = Durations::of(&batch)?;
            for row in 0..batch.num_rows() {
                if columns.measure.get(row) != measure::DURATION {
                    continue;
                }
                let step = self.step(columns.begin_ns[row], columns.loss.get(row));
                let (Some(step), Some((_, draft))) = (step, slots.of(columns.probe_id[row])) else {
                    continue;
                };
                draft.sums.add_items(
                    step,
                    columns.visits_with[row],
                    columns.sum_ns.get(row).unwrap_or(0.0),
                    columns.sum_squared.get(row).unwrap_or(0.0),
                );
                let (middles, counts) = (columns.bucket_ns.get(row), columns.bucket_count.get(row));
                let middles = middles.as_primitive::<Int64Type>().values();
                let counts = counts.as_primitive::<UInt64Type>().values();
                for (middle, count) in middles.iter().zip(counts) {
                    let middle = (*middle).max(0).cast_unsigned();
                    draft.sums.lengths.add_bucket(bucket(middle), *count);
                }
            }
        }
        let mut functions = Slots::new(&self.trace.info, None, Stats::default);
        for batch in stats::Columns::scan(self.trace)? {
            let batch = batch?;
            // Rows of a range stand together.
            let begins = stats::Columns::of(&batch)?.begin_ns;
            let is_in = |begin: &i64| self.step(*begin, false).is_some();
            let mut from = 0;
            for rows in begins.chunk_by(|a, b| is_in(a) == is_in(b)) {
                if rows.first().is_some_and(is_in) {
                    stats::add(
                        &batch.slice(from, rows.len()),
                        self.event,
                        self.own,
                        self.losses,
                        self.trace.info.switches,
                        &mut functions,
                        states,
                    )?;
                }
                from += rows.len();
            }
        }
        for (probe, stats) in functions {
            if let Some((_, draft)) = slots.of(probe) {
                draft.stats = stats;
            }
        }
        Ok(())
    }

    /// Adds up the details of a trace that kept those of all items.
    fn details(&self, slots: &mut Slots<Draft>, states: &mut States) -> Result<(), ReadError> {
        let mut of_probe: Vec<(u16, VisitSet)> = Vec::new();
        for batch in Visits::scan(self.trace)? {
            let batch = batch?;
            let columns = Visits::of(&batch)?;
            for row in 0..batch.num_rows() {
                let probe = columns.probe_id[row];
                let has_loss = columns.flags[row] & visit_flag::LOSS != 0;
                let (Some(step), Some(duration), Some((_, draft))) = (
                    self.step(columns.begin_ns[row], has_loss),
                    columns.duration_ns.get(row),
                    slots.of(probe),
                ) else {
                    continue;
                };
                let set = of_probe.iter().position(|it| it.0 == probe);
                let set = set.unwrap_or_else(|| {
                    of_probe.push((probe, VisitSet::default()));
                    of_probe.len() - 1
                });
                of_probe[set].1.insert(columns.visit_id[row]);
                let ns = duration.max(0) as f64;
                draft.sums.add_items(step, 1, ns, ns * ns);
                draft.sums.lengths.add(duration.max(0).cast_unsigned());
                let functions = &mut draft.stats.functions;
                functions.items += 1;
                functions.active_ns += match self.trace.info.switches {
                    true => columns.oncpu_ns.get(row).unwrap_or(0) as f64,
                    false => ns,
                };
            }
        }
        let probe_of = |visit: u64| {
            let found = of_probe.iter().find(|(_, set)| set.contains(visit));
            found.map(|(probe, _)| *probe)
        };
        if let Some(event) = self.event {
            self.functions(event, &probe_of, slots)?;
        }
        for batch in Waits::scan(self.trace)? {
            let batch = batch?;
            let columns = Waits::of(&batch)?;
            for (row, visit) in columns.visit_id.iter().enumerate() {
                if let Some((_, draft)) = probe_of(*visit).and_then(|probe| slots.of(probe)) {
                    let key = WaitKey {
                        state: states.index(columns.state.get(row)),
                        function: columns.function_id.get(row).map(FunctionId),
                    };
                    let ns = columns.end_ns[row] - columns.begin_ns[row];
                    draft.stats.waits.entry(key).or_default().add(ns.max(0));
                }
            }
        }
        Ok(())
    }

    /// Adds up the samples of visits by function.
    fn functions(
        &self,
        event: &EventInfo,
        probe_of: &impl Fn(u64) -> Option<u16>,
        slots: &mut Slots<Draft>,
    ) -> Result<(), ReadError> {
        for batch in Functions::scan(self.trace)? {
            let batch = batch?;
            let columns = Functions::of(&batch)?;
            for (row, visit) in columns.visit_id.iter().enumerate() {
                let function = columns.function_id[row];
                if columns.event[row] != event.id.0 || Some(function) == self.own {
                    continue;
                }
                let Some((_, draft)) = probe_of(*visit).and_then(|probe| slots.of(probe)) else {
                    continue;
                };
                let samples = u64::from(columns.samples[row]);
                let events = match event.has_times {
                    true => columns.self_ns.get(row).unwrap_or(0.0),
                    false => columns.events.get(row).map_or_else(
                        || samples as f64 * event.reset.max(1) as f64,
                        |events| events as f64,
                    ),
                };
                let sums = FunctionSums {
                    samples,
                    events,
                    ..FunctionSums::default()
                };
                draft.stats.functions.add(FunctionId(function), sums);
            }
        }
        Ok(())
    }
}
