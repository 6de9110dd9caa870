//! Second pass over the visits: the classes of each probe's visits and the slowest of them.

use std::num::NonZeroU64;

use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::classes::{VisitClass, VisitClasses};
use super::model::{SlowVisit, VisitFunction};
use super::tally::Tally;
use super::top::Top;
use crate::compare::arguments::{NamedArg, SharedArgs};
use crate::compare::classes::{Class, Classes, Rank, RankBy, Ranker, Standing, Took, apart_on_cpu};
use crate::compare::condensed::Condensed;
use crate::compare::counted::CountedSums;
use crate::compare::counts::{CountColumns, CountSums, Counts};
use crate::compare::interrupts_and_faults::{InterferenceRow, InterferenceSums};
use crate::compare::pool::{OwnError, Pool};
use crate::compare::report::request::ReportOptions;
use crate::compare::slots::Slots;
use crate::compare::stats::Stats;
use crate::compare::waits::{WaitKey, WaitSum};
use crate::store::args::{ArgRef, ArgView};
use crate::store::reader::{ReadError, Scan, Trace};
use crate::store::run::RunInfo;
use crate::store::schema::{ArgColumn, InterferenceColumns, InterferenceViews, visit_flag, visits};
use crate::store::view::{Select as _, View as _};
use crate::units::{FunctionId, ProbeId};

/// Sums over one class of visits.
#[derive(Debug, Default)]
pub(super) struct ClassSums {
    pub visits: u64,
    /// Without pebs-trace's own time.
    pub duration_ns: f64,
    /// pebs-trace's own time.
    pub own_ns: f64,
    /// Durations of the visits that are pooled.
    pub pooled_duration_ns: f64,
    pub pooled: u64,
    pub pool: Pool,
    /// Of each further event.
    pub further: Vec<Pool>,
    /// Longest and shortest.
    pub range_ns: Option<(i64, i64)>,
    /// Time off the CPU and number of waits, by state and function.
    pub waits: FxHashMap<WaitKey, WaitSum>,
    /// Counts of the threads.
    pub counts: CountSums,
    /// Their interrupts, softirqs and page faults.
    pub interference: InterferenceSums,
}

/// Counts and interruptions of a visit's thread.
struct Happened {
    counts: Counts,
    interference: Option<InterferenceColumns>,
}

impl ClassSums {
    fn happened(&mut self, happened: &Happened) {
        self.counts.add(&happened.counts);
        if let Some(interference) = &happened.interference {
            self.interference.add(interference);
        }
    }

    fn with((pool, further): (Pool, Vec<Pool>)) -> Self {
        Self {
            pool,
            further,
            ..Self::default()
        }
    }

    fn add(&mut self, visit_id: u64, took: Rank, active: Option<i64>) {
        self.visits += 1;
        self.duration_ns += took.ns as f64;
        self.own_ns += took.own_ns as f64;
        let (low, high) = self.range_ns.unwrap_or((took.ns, took.ns));
        self.range_ns = Some((low.min(took.ns), high.max(took.ns)));
        if let Some(active) = active {
            self.pooled += 1;
            self.pooled_duration_ns += took.ns as f64;
            let pools = std::iter::once(&mut self.pool).chain(&mut self.further);
            pools.for_each(|it| it.add_item(visit_id, active));
        }
    }
}

/// Data on one probe of the second and later passes.
#[derive(Debug)]
pub(super) struct Section {
    pub tally: Tally,
    /// Slow and typical classes; `None` if no visit is counted.
    pub classes: Option<Classes>,
    /// Whether times on the CPU have a gap of their own.
    pub is_apart_on_cpu: bool,
    pub all: ClassSums,
    pub typical: ClassSums,
    pub slow: ClassSums,
    /// Sums over all visits of a trace that has not the details of each; then `all` and `slow` are
    /// of the visits that have, and `typical` counts those that have not.
    pub stats: Option<Stats>,
    /// The same of each further event.
    pub further_stats: Vec<Condensed>,
    /// Slow visits whose details were not kept.
    pub slow_condensed: u64,
    /// Time on the CPU of the visits that are pooled.
    pub oncpu_ns: f64,
    /// Counted events of the visits.
    pub counted: CountedSums,
    pub shared_slow: SharedArgs,
    pub shared_others: SharedArgs,
    pub slowest: Top<SlowDraft>,
    /// Numbers of the slowest visits, once these were taken out.
    pub slowest_ids: Vec<u64>,
}

/// Properties of a trace that its intervals depend on.
pub(super) struct Runs<'a> {
    /// [`Trace::visits_in_stretch`].
    visits: NonZeroU64,
    /// Probes whose items samples beat with.
    beating: Vec<ProbeId>,
    info: &'a RunInfo,
    /// Number of further events.
    further: usize,
}

impl<'a> Runs<'a> {
    pub(super) fn of(trace: &'a Trace) -> Result<Self, ReadError> {
        Ok(Self {
            visits: trace.visits_in_stretch()?,
            beating: trace.info.beating().map(|it| it.probe_id).collect(),
            info: &trace.info,
            further: trace.info.events.len().saturating_sub(1),
        })
    }

    fn pools(&self, probe: u16) -> (Pool, Vec<Pool>) {
        let further = vec![Pool::of_runs(self.visits); self.further];
        (self.pool(probe), further)
    }

    fn pool(&self, probe: u16) -> Pool {
        if self.beating.contains(&ProbeId(probe)) {
            return Pool::without_intervals();
        }
        Pool::of_runs(self.visits).with_error(OwnError::of(self.info, probe))
    }
}

impl Section {
    /// The section of a probe after the first pass.
    pub(super) fn new(
        probe: u16,
        mut tally: Tally,
        columns: &[ArgColumn],
        options: &ReportOptions,
        runs: &Runs<'_>,
    ) -> Self {
        let rule = options.slow.and_then(|it| it.rule);
        let classes = std::mem::take(&mut tally.ranks).close(rule);
        let on_cpu = std::mem::take(&mut tally.on_cpu);
        let apart = classes.as_ref().filter(|_| options.slow.is_none());
        let apart = apart.and_then(|it| apart_on_cpu(it, on_cpu));
        Self {
            stats: None,
            further_stats: Vec::new(),
            slow_condensed: 0,
            is_apart_on_cpu: apart.is_some(),
            classes,
            tally,
            all: ClassSums::with(runs.pools(probe)),
            typical: ClassSums::with(runs.pools(probe)),
            slow: ClassSums::with(runs.pools(probe)),
            oncpu_ns: 0.0,
            counted: CountedSums::default(),
            shared_slow: SharedArgs::new(columns.len()),
            shared_others: SharedArgs::new(columns.len()),
            slowest: Top::new(options.slowest),
            slowest_ids: Vec::new(),
        }
    }

    /// Takes the slowest visits out, and notes their order.
    pub(super) fn take_slowest(&mut self) -> Vec<SlowDraft> {
        let slowest = std::mem::replace(&mut self.slowest, Top::new(0)).into_sorted();
        self.slowest_ids = slowest.iter().map(|draft| draft.visit.visit_id).collect();
        slowest
    }

    /// The classes that a visit counts in: all, and its part if it has one.
    pub(super) fn classes_of(&mut self, class: Class) -> impl Iterator<Item = &mut ClassSums> {
        let own = match class {
            Class::Typical => Some(&mut self.typical),
            Class::Slow => Some(&mut self.slow),
            Class::Between => None,
        };
        std::iter::once(&mut self.all).chain(own)
    }

    /// Interrupt, softirq and page-fault time of the visits, if it was recorded.
    pub(super) fn interference(&self) -> Vec<InterferenceRow> {
        let of = |sums: &ClassSums| sums.interference;
        InterferenceSums::rows(&of(&self.all), &of(&self.slow), &of(&self.typical))
    }

    /// Adds a visit that has only its row in `visits`.
    fn add_condensed(&mut self, visit_id: u64, took: Rank, class: Class) {
        self.all.add(visit_id, took, None);
        self.typical.add(visit_id, took, None);
        if class == Class::Slow {
            self.slow.add(visit_id, took, None);
            self.slow_condensed += 1;
        }
    }

    /// Class of a visit; if none is slow, none is typical.
    fn class(&self, rank: Rank) -> Class {
        let classes = self.classes.as_ref().filter(|it| it.limit.is_some());
        classes.map_or(Class::Between, |classes| classes.of(rank))
    }
}

/// One of the slowest visits, before names are known.
#[derive(Debug)]
pub(super) struct SlowDraft {
    /// The visit; its functions and waits are empty.
    pub visit: SlowVisit,
    pub functions: Vec<(FunctionId, VisitFunction)>,
    pub waits: FxHashMap<WaitKey, WaitSum>,
}

/// Columns of a batch of visits.
struct Visits<'a> {
    columns: visits::All<'a>,
    counts: CountColumns<'a>,
    interference: InterferenceViews<'a>,
    is_interference_known: bool,
    args: Vec<ArgView<'a>>,
}

/// Reads the visits for [`Gather`].
pub(super) fn scan(trace: &Trace) -> Result<Scan, ReadError> {
    trace.scan_with_args(visits::All::NAMES)
}

impl<'a> Visits<'a> {
    fn of(batch: &'a RecordBatch, columns: &[ArgColumn]) -> Result<Self, ReadError> {
        let interference = InterferenceViews::of(batch)?;
        Ok(Self {
            columns: visits::All::of(batch)?,
            counts: CountColumns::of(batch)?,
            is_interference_known: interference.is_known(),
            interference,
            args: ArgView::all(batch, columns)?,
        })
    }

    fn took(&self, row: usize) -> Took {
        Took {
            duration_ns: self.columns.duration_ns.get(row),
            net_ns: self.columns.net_ns.get(row),
            samples: self.columns.samples[row],
        }
    }

    fn happened(&self, row: usize) -> Happened {
        Happened {
            counts: self.counts.get(row),
            interference: (self.is_interference_known).then(|| self.interference.get(row)),
        }
    }

    fn draft(&self, row: usize, columns: &[ArgColumn]) -> SlowDraft {
        let args = self
            .args
            .iter()
            .zip(columns)
            .map(|(array, column)| NamedArg {
                name: column.name.clone(),
                value: array.get(row).map(ArgRef::to_value),
            });
        SlowDraft {
            visit: SlowVisit {
                row: self.columns.row(row),
                args: args.collect(),
                functions: Vec::new(),
                waits: Vec::new(),
                counted_events: Vec::new(),
            },
            functions: Vec::new(),
            waits: FxHashMap::default(),
        }
    }
}

/// Second pass.
pub(super) struct Gather<'a> {
    /// Options of the report.
    pub options: &'a ReportOptions,
    /// Argument columns of the trace.
    pub columns: &'a [ArgColumn],
    /// Whether time off the CPU was recorded.
    pub switches: bool,
    /// Index of the state in which a thread sleeps between its turns to an item, if turns are marked.
    pub idle: Option<usize>,
    /// Ranks visits, and computes time on the CPU without pebs-trace's own.
    pub ranker: Ranker,
    /// Sections by probe.
    pub sections: Slots<Section>,
    pub classes: VisitClasses,
}

impl Gather<'_> {
    /// Adds a batch of visits, of [`scan`].
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let visits = Visits::of(batch, self.columns)?;
        let columns = &visits.columns;
        for row in 0..batch.num_rows() {
            let Some((slot, section)) = self.sections.of(columns.probe_id[row]) else {
                continue;
            };
            let standing = Standing::of(visits.took(row), columns.flags[row], self.options.losses);
            let Standing::Counted(of_duration) = standing else {
                continue;
            };
            let of = (columns.probe_id[row], columns.flags[row]);
            let oncpu = columns.oncpu_ns.get(row);
            let Some(rank) = self.ranker.rank(of_duration, oncpu, of) else {
                continue;
            };
            let condensed = columns.flags[row] & visit_flag::CONDENSED != 0;
            let class = match section.class(rank) {
                // A visit was kept for a reason.
                Class::Typical if section.stats.is_some() => Class::Between,
                class => class,
            };
            let oncpu = oncpu.map(|ns| self.ranker.net.net(ns, of_duration, of));
            // Without switches the thread is taken to have run all the time.
            let owns_all = columns.flags[row] & visit_flag::TIME_SHARED == 0;
            let active = oncpu.or((!self.switches && owns_all).then_some(rank.ns));
            // A trace that was cut has visits behind the last row of the aggregates.
            let end = columns.begin_ns[row].saturating_add(of_duration.ns + of_duration.own_ns);
            let stats = section.stats.as_ref();
            let active = active.filter(|_| stats.is_none_or(|stats| end <= stats.until_ns));
            let of_visit = VisitClass {
                slot,
                class,
                pooled: active.is_some() && !condensed,
            };
            self.classes.set(columns.visit_id[row], of_visit);
            let mut happened = visits.happened(row);
            let raw = columns.oncpu_ns.get(row);
            let own_ns = raw.zip(oncpu).map_or(rank.own_ns, |(raw, net)| raw - net);
            happened.interference = happened.interference.map(|it| it.net(raw, own_ns));
            for sums in section.classes_of(class) {
                sums.happened(&happened);
            }
            if condensed {
                // They take the place of the typical ones.
                if class != Class::Typical {
                    section.typical.happened(&happened);
                }
                section.add_condensed(columns.visit_id[row], rank, class);
            } else {
                let idle = columns.idle_ns.get(row).zip(self.idle);
                let by_cpu_time = self.ranker.by == RankBy::CpuTime;
                let idle = idle.filter(|(ns, _)| *ns > 0 && of_visit.pooled && !by_cpu_time);
                for sums in section.classes_of(class) {
                    sums.add(columns.visit_id[row], rank, active);
                    if let Some((ns, state)) = idle {
                        let function = None;
                        let key = WaitKey { state, function };
                        sums.waits.entry(key).or_default().add(ns);
                    }
                }
            }
            section.oncpu_ns += oncpu.unwrap_or(0) as f64;
            if class == Class::Slow {
                section.shared_slow.add(&visits.args, row);
            } else {
                section.shared_others.add(&visits.args, row);
            }
            let draft = || visits.draft(row, self.columns);
            section.slowest.offer(rank.ns, draft);
        }
        Ok(())
    }
}
