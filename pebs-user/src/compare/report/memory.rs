//! Memory accesses of functions, and the source of the data: `report --by memory`.
//!
//! A row is a function with one kind of access: operation, source of the data, snoop, translation of the
//! address. A sample stands for as many events as its reset value (Akiyama, Hirofuchi 2017, V.D: samples x
//! reset value); for n samples the standard error is that of n independent events, so 1/sqrt(n) of the sum
//! where the reset value stayed the same. With 16 samples every 1,000 loads: 16,000 loads, give or take 4,000.

use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::classes::VisitClasses;
use super::section::{Runs, Section};
use crate::compare::classes::Class;
use crate::compare::names::{FunctionName, Names};
use crate::compare::pool::MIN_SAMPLES;
use crate::compare::probe;
use crate::compare::report::passes::{first_pass, gather};
use crate::compare::report::request::{ReportError, ReportOptions};
use crate::compare::slots::Slots;
use crate::compare::waits::States;
use crate::estimate::sketch::Sketch;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::Table;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::EventId;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const MEMORY_REPORT_VERSION: u32 = 1;

columns! {
    struct Accesses of memory {
        visit_id, function_id, event, events, op, level, snoop, tlb, locked, latency_cycles
    }
}

columns! {
    struct Sampled of samples { event }
}

/// A report of the memory accesses of one trace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryReport {
    /// [`MEMORY_REPORT_VERSION`].
    pub memory_report_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// Least number of samples for an estimate of events.
    pub min_samples: u64,
    /// Events whose samples have memory accesses; empty if there are none.
    pub events: Vec<EventAccesses>,
}

/// Memory accesses in the samples of one event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EventAccesses {
    pub event: EventInfo,
    pub samples: u64,
    /// Samples with any data on their access.
    pub with_access: u64,
    /// Those of them in visits that are left out: they overlap a loss, have no end, or are of another probe.
    pub left_out: u64,
    /// By probe; last those in no visit.
    pub sections: Vec<AccessSection>,
}

/// The accesses of the visits of one probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AccessSection {
    /// Number of the probe; null: in no visit.
    pub probe_id: Option<u16>,
    /// SPEC as typed.
    pub spec: Option<String>,
    /// Visits with their details; null in no visit.
    pub visits: Option<u64>,
    /// Slow visits with their details.
    pub slow_visits: Option<u64>,
    /// Typical visits with their details.
    pub typical_visits: Option<u64>,
    /// The most events first.
    pub rows: Vec<AccessRow>,
}

/// One kind of access of one function. Null: not in the samples.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AccessRow {
    pub function: FunctionName,
    /// Operation.
    pub op: Option<String>,
    /// Source of the data.
    pub level: Option<String>,
    /// Snoop of other caches.
    pub snoop: Option<String>,
    /// Translation of the address.
    pub tlb: Option<String>,
    /// Whether the instruction was locked.
    pub locked: Option<bool>,
    /// All visits.
    pub all: AccessCell,
    /// Slow visits.
    pub slow: AccessCell,
    /// Typical visits.
    pub typical: AccessCell,
}

/// The accesses of a row in one class of visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AccessCell {
    pub samples: u64,
    /// Events that they stand for; null below [`MIN_SAMPLES`], and where the kernel varied the reset value and
    /// samples do not have it.
    pub events: Option<f64>,
    /// Standard error of `events`.
    pub events_stderr: Option<f64>,
    /// Events per visit of the class.
    pub per_visit: Option<f64>,
    /// Median latency in cycles, over the samples that have it.
    pub latency_p50: Option<u64>,
    /// 99th percentile.
    pub latency_p99: Option<u64>,
}

/// Makes the report of the memory accesses of a trace.
///
/// Cost: reads `visits` twice, `memory`, `functions` and the events of `samples` once.
///
/// # Errors
/// If the trace can't be read, or has no such probe.
pub(crate) fn build(trace: &Trace, options: &ReportOptions) -> Result<MemoryReport, ReportError> {
    probe::check(trace, options.probe)?;
    let mut sums = Sums::default();
    if trace.rows(Table::Memory)? > 0 {
        let runs = Runs::of(trace)?;
        let sections = first_pass(trace, options)?
            .map(|probe, tally| Section::new(probe, tally, &trace.info.columns, options, &runs));
        let gathered = gather(trace, options, sections, &mut States::default())?;
        for batch in Accesses::scan(trace)? {
            sums.add(&batch?, &gathered.classes)?;
        }
        for batch in Sampled::scan(trace)? {
            let batch = batch?;
            for event in Sampled::of(&batch)?.event.iter() {
                sums.event(*event).samples += 1;
            }
        }
        return finish(trace, options, sums, gathered.sections);
    }
    Ok(report(trace, Vec::new()))
}

fn report(trace: &Trace, events: Vec<EventAccesses>) -> MemoryReport {
    MemoryReport {
        memory_report_version: MEMORY_REPORT_VERSION,
        trace: trace.dir.display().to_string(),
        min_samples: MIN_SAMPLES,
        events,
    }
}

/// Key of a row; texts by their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    event: u8,
    /// Index of the probe's section; `None`: in no visit.
    slot: Option<u16>,
    function: u32,
    op: Option<u32>,
    level: Option<u32>,
    snoop: Option<u32>,
    tlb: Option<u32>,
    locked: Option<bool>,
}

/// Sums of one row in one class.
#[derive(Default)]
struct Sum {
    samples: u64,
    events: f64,
    squares: f64,
    /// Whether a sample lacks the number of events it stands for.
    unknown: bool,
    latency: Sketch,
}

impl Sum {
    fn add(&mut self, events: Option<u64>, latency: Option<u32>) {
        self.samples += 1;
        match events {
            Some(events) => {
                self.events += events as f64;
                self.squares += (events as f64).powi(2);
            }
            None => self.unknown = true,
        }
        if let Some(latency) = latency {
            self.latency.add(latency.into());
        }
    }

    fn cell(&self, visits: Option<u64>) -> AccessCell {
        let known = !self.unknown && self.samples >= MIN_SAMPLES;
        let events = known.then_some(self.events);
        let visits = visits.filter(|visits| *visits > 0);
        AccessCell {
            samples: self.samples,
            events,
            events_stderr: known.then(|| self.squares.sqrt()),
            per_visit: events.zip(visits).map(|(n, visits)| n / visits as f64),
            latency_p50: self.latency.quantile(0.5),
            latency_p99: self.latency.quantile(0.99),
        }
    }
}

/// Sums of one row: all, slow, typical.
type Row = [Sum; 3];

#[derive(Default)]
struct EventSums {
    samples: u64,
    with_access: u64,
    left_out: u64,
}

#[derive(Default)]
struct Sums {
    rows: FxHashMap<Key, Row>,
    events: Vec<EventSums>,
    texts: Vec<String>,
    numbers: FxHashMap<String, u32>,
}

impl Sums {
    fn event(&mut self, event: u8) -> &mut EventSums {
        let index = usize::from(event);
        if self.events.len() <= index {
            self.events.resize_with(index + 1, EventSums::default);
        }
        &mut self.events[index]
    }

    fn number(&mut self, text: Option<&str>) -> Option<u32> {
        let text = text?;
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Some(number)
    }

    fn add(&mut self, batch: &RecordBatch, classes: &VisitClasses) -> Result<(), ReadError> {
        let accesses = Accesses::of(batch)?;
        for row in 0..batch.num_rows() {
            let event = accesses.event[row];
            self.event(event).with_access += 1;
            let class = accesses.visit_id.get(row).map(|visit| classes.get(visit));
            if class == Some(None) {
                self.event(event).left_out += 1;
                continue;
            }
            let class = class.flatten();
            let key = Key {
                event,
                slot: class.map(|class| class.slot),
                function: accesses.function_id[row],
                op: self.number(accesses.op.get(row)),
                level: self.number(accesses.level.get(row)),
                snoop: self.number(accesses.snoop.get(row)),
                tlb: self.number(accesses.tlb.get(row)),
                locked: accesses.locked.get(row),
            };
            let own = match class.map(|class| class.class) {
                Some(Class::Slow) => Some(1),
                Some(Class::Typical) => Some(2),
                Some(Class::Between) | None => None,
            };
            let events = accesses.events.get(row);
            let latency = accesses.latency_cycles.get(row);
            let sums = self.rows.entry(key).or_default();
            for class in std::iter::once(0).chain(own) {
                sums[class].add(events, latency);
            }
        }
        Ok(())
    }
}

/// Visits of a section with known details: all, slow, typical.
struct Visits {
    probe: u16,
    counts: [Option<u64>; 3],
}

fn visits_of(trace: &Trace, (probe, section): (u16, Section)) -> Visits {
    let (all, slow) = (section.all.visits, section.slow.visits);
    let counts = if trace.info.keep.is_some() {
        // Visits that were not kept have no rows, so neither all nor the typical ones are complete.
        [None, Some(slow - section.slow_condensed), None]
    } else {
        [Some(all), Some(slow), Some(section.typical.visits)]
    };
    Visits { probe, counts }
}

fn finish(
    trace: &Trace,
    options: &ReportOptions,
    sums: Sums,
    sections: Slots<Section>,
) -> Result<MemoryReport, ReportError> {
    let visits: Vec<Visits> = sections
        .into_iter()
        .map(|section| visits_of(trace, section))
        .collect();
    let names = Names::of(trace, sums.rows.keys().map(|key| key.function))?;
    let mut rows: Vec<(&Key, &Row)> = sums.rows.iter().collect();
    rows.sort_by(|(key_a, a), (key_b, b)| {
        let order = b[0].events.total_cmp(&a[0].events);
        order
            .then(b[0].samples.cmp(&a[0].samples))
            .then(key_a.cmp(key_b))
    });
    let text = |number: Option<u32>| number.map(|number| sums.texts[number as usize].clone());
    let row = |key: &Key, row: &Row, counts: [Option<u64>; 3]| AccessRow {
        function: names.get(Some(key.function)),
        op: text(key.op),
        level: text(key.level),
        snoop: text(key.snoop),
        tlb: text(key.tlb),
        locked: key.locked,
        all: row[0].cell(counts[0]),
        slow: row[1].cell(counts[1]),
        typical: row[2].cell(counts[2]),
    };
    let section = |event: u8, slot: Option<u16>| {
        let of = slot.and_then(|slot| visits.get(usize::from(slot)));
        let counts = of.map_or([None; 3], |it| it.counts);
        let probe_id = of.map(|it| it.probe);
        let spec = trace.info.probes.iter();
        let spec = spec
            .filter(|probe| Some(probe.id.0) == probe_id)
            .map(|probe| probe.spec.to_string())
            .next();
        let own = rows.iter();
        let own = own.filter(|(key, _)| (key.event, key.slot) == (event, slot));
        AccessSection {
            probe_id,
            spec,
            visits: counts[0],
            slow_visits: counts[1],
            typical_visits: counts[2],
            rows: own.map(|(key, sums)| row(key, sums, counts)).collect(),
        }
    };
    let slots = (0..visits.len() as u16).map(Some);
    let outside = options.probe.is_none().then_some(None);
    let slots: Vec<Option<u16>> = slots.chain(outside).collect();
    let events = sums.events.iter().enumerate();
    let events = events.filter(|(_, event)| event.with_access > 0);
    let events = events.filter_map(|(id, of)| {
        let id = EventId(id as u8);
        let event = trace.info.events.iter().find(|event| event.id == id)?;
        let sections = slots.iter().map(|slot| section(id.0, *slot));
        Some(EventAccesses {
            event: event.clone(),
            samples: of.samples,
            with_access: of.with_access,
            left_out: of.left_out,
            sections: sections.filter(|it| !it.rows.is_empty()).collect(),
        })
    });
    Ok(report(trace, events.collect()))
}
