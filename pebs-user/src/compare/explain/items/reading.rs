//! The pass over the visits that makes the items.

use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::passages::Stages;
use super::{Item, Items, NONE, Places, ProbeItems};
use crate::compare::batches::Batches;
use crate::compare::classes::{NetOnCpu, RankBy, Ranks, Standing, Took};
use crate::compare::counts::CountColumns;
use crate::compare::explain::columns::ArgumentColumns;
use crate::compare::explain::interrupts_and_faults::{self, SLOWER_CLOCK};
use crate::compare::explain::request::{ExplainOptions, Unit};
use crate::compare::frequencies::Frequencies;
use crate::compare::pool::OwnError;
use crate::compare::stages;
use crate::estimate::slow_by::SlowBy;
use crate::store::args::ArgView;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{RunInfo, VisitRule};
use crate::store::schema::{InterferenceColumns, InterferenceViews, visit_flag};
use crate::store::view::{Select as _, View as _, columns};

columns! {
    /// Columns read in the pass, before those of the counts and of the arguments.
    struct Columns of visits {
        visit_id, item_id, probe_id, pid, tid, cpu_begin, begin_ns, duration_ns, oncpu_ns, idle_ns, samples, flags, net_ns
    }
}

impl Items {
    /// Reads the visits of a trace.
    pub(crate) fn read(trace: &Trace, options: &ExplainOptions) -> Result<Self, ReadError> {
        let unit = options
            .unit
            .unwrap_or_else(|| unit_of(&trace.info, options));
        // With a single probe every visit would begin an item.
        let staged =
            unit == Unit::Item && options.probe.is_none() && stages::has_stages(&trace.info);
        let stages = staged.then(|| Stages::read(trace, options.losses));
        let stages = stages.transpose()?;
        let mut reading = Reading {
            info: &trace.info,
            net: NetOnCpu::of(&trace.info),
            options,
            by_id: FxHashMap::default(),
            frequencies: Frequencies::read(trace)?,
            stages,
            batches: match unit {
                Unit::Item => Batches::read(trace)?,
                Unit::Visit => Batches::default(),
            },
            items: Self {
                unit,
                by: RankBy::Duration,
                probes: Vec::new(),
                ranks: Ranks::of(&trace.info),
                all: Vec::new(),
                columns: ArgumentColumns::new(&trace.info.columns),
                parents: Vec::new(),
                stretch_ns: trace.info.stretch_ns(),
                periods: Vec::new(),
                inner: FxHashMap::default(),
                places: Places::default(),
                shared: FxHashMap::default(),
                together: FxHashMap::default(),
                handovers: Vec::new(),
            },
        };
        for probe in &trace.info.probes {
            reading.slot(probe.id.0);
        }
        let names = [
            Columns::NAMES,
            CountColumns::NAMES,
            InterferenceColumns::NAMES,
        ];
        for batch in trace.scan_with_args(&names.concat())? {
            reading.add(&batch?)?;
        }
        let mut items = reading.items;
        if let Some(stages) = reading.stages {
            stages.set_waits(&mut items);
        }
        items.parents = vec![NONE; items.all.len()];
        if unit == Unit::Visit && items.probes.len() > 1 {
            items.nest(&trace.info);
        }
        Ok(items)
    }
}

/// Whether visits are what samples saw of items that take turns on threads.
fn take_turns(info: &RunInfo) -> bool {
    info.probes.iter().any(|it| it.rule == VisitRule::SameId)
}

/// Visits, unless the probes are stages of the same items and no single probe was asked for, or visits are what samples
/// saw of items in turn.
fn unit_of(info: &RunInfo, options: &ExplainOptions) -> Unit {
    if take_turns(info) || options.probe.is_none() && stages::has_stages(info) {
        Unit::Item
    } else {
        Unit::Visit
    }
}

impl Items {
    /// Returns the measure by which slow items are set apart unless one was asked for; `None`: by duration. Between the
    /// turns of an item it may have waited for one, or been done and forgotten: only its time on the CPU is known.
    pub(crate) fn slow_by(&self, info: &RunInfo) -> Option<SlowBy> {
        let by_turns = self.unit == Unit::Item && take_turns(info) && info.switches;
        by_turns.then_some(SlowBy {
            by: RankBy::CpuTime,
            rule: None,
        })
    }
}

/// The pass over the visits.
struct Reading<'a> {
    info: &'a RunInfo,
    net: NetOnCpu,
    options: &'a ExplainOptions,
    /// Items by id, where these may have several visits and the probe is not a stage.
    by_id: FxHashMap<(u16, u64), u32>,
    frequencies: Frequencies,
    /// Stages of the items, and the item of each visit.
    stages: Option<Stages>,
    /// The items of visits that serve several, where these are not the items themselves.
    batches: Batches,
    items: Items,
}

impl Reading<'_> {
    /// Index of a probe's items; `None` if they were not asked for.
    fn slot(&mut self, probe_id: u16) -> Option<u16> {
        if self.options.probe.is_some_and(|only| only.0 != probe_id) {
            return None;
        }
        let probes = &mut self.items.probes;
        let found = probes
            .iter()
            .position(|it| it.probe_ids.contains(&probe_id));
        if let Some(found) = found {
            return Some(found as u16);
        }
        let info = self.info.probes.iter().find(|it| it.id.0 == probe_id);
        let spec = info.map(|info| info.spec.clone());
        if self.items.unit == Unit::Visit || probes.is_empty() {
            probes.push(ProbeItems::default());
        }
        // Not empty: one was added above if it was.
        let last = probes.len() - 1;
        probes[last].probe_ids.push(probe_id);
        probes[last].specs.extend(spec);
        let error = OwnError::of(self.info, probe_id);
        probes[last].own_error.sample = error.sample;
        probes[last].own_error.marks += error.marks;
        probes[last].beats |= self.info.beating().any(|it| it.probe_id.0 == probe_id);
        Some(last as u16)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let visits = Columns::of(batch)?;
        let counted = CountColumns::of(batch)?;
        let interference = InterferenceViews::of(batch)?;
        let args = ArgView::all(batch, &self.info.columns)?;
        for row in 0..batch.num_rows() {
            let Some(slot) = self.slot(visits.probe_id[row]) else {
                continue;
            };
            let probe = &mut self.items.probes[usize::from(slot)];
            probe.visits += 1;
            let flags = visits.flags[row];
            let (stages, items_unit) = (self.stages.as_ref(), self.items.unit);
            let shared = items_unit == Unit::Item && flags & visit_flag::SHARED != 0;
            if !shared
                && stages.is_some_and(|it| !it.counts(visits.visit_id[row], visits.item_id[row]))
            {
                continue;
            }
            let took = Took {
                duration_ns: visits.duration_ns.get(row),
                net_ns: visits.net_ns.get(row),
                samples: visits.samples[row],
            };
            let rank = match Standing::of(took, flags, self.options.losses) {
                Standing::Counted(rank) => rank,
                Standing::Open => {
                    probe.left_out.open += 1;
                    continue;
                }
                Standing::Loss => {
                    probe.left_out.loss += 1;
                    continue;
                }
            };
            // Counted, so it is known.
            let latency_ns = took.duration_ns.unwrap_or(0).max(0);
            let oncpu = visits.oncpu_ns.get(row);
            let owns_all = flags & visit_flag::TIME_SHARED == 0;
            // Without switches the thread is taken to have run all the time.
            let active_ns = oncpu
                .or((!self.info.switches && owns_all).then_some(latency_ns))
                .map(|ns| self.net.net(ns, rank, (visits.probe_id[row], flags)));
            let mut interference = interference.get(row);
            if let (Some(oncpu), Some(net)) = (oncpu, active_ns) {
                interference = interference.net(Some(oncpu), oncpu - net);
            }
            let mut item = Item {
                visit_id: visits.visit_id[row],
                item_id: visits.item_id[row],
                begin_ns: visits.begin_ns[row],
                latency_ns,
                own_ns: rank.own_ns,
                active_ns,
                idle_ns: visits.idle_ns.get(row).unwrap_or(0),
                tid: visits.tid[row],
                pid: visits.pid[row],
                cpu: visits.cpu_begin.get(row),
                probe: slot,
                flags,
                samples: visits.samples[row],
                counts: counted.get(row).values(),
                interference: interrupts_and_faults::times(&interference),
            };
            item.interference[SLOWER_CLOCK] = self.lost_to_clock(&item);
            if shared {
                self.share_out(&item, &args, row);
            } else {
                let index = self.insert(item, &args, row);
                self.items.places.set(item.visit_id, index);
            }
        }
        Ok(())
    }

    /// Time lost in a visit because its CPU ran slower, ns; `None` if the CPU or its frequency is unknown.
    fn lost_to_clock(&self, visit: &Item) -> Option<f32> {
        let cpu = visit
            .cpu
            .filter(|_| visit.flags & visit_flag::MIGRATED == 0)?;
        let range = (visit.begin_ns, visit.end_ns());
        let lost = self.frequencies.lost_ns(cpu, range, visit.active_ns?)?;
        Some(lost as f32)
    }

    /// Adds a visit that serves several items to each of them.
    fn share_out(&mut self, visit: &Item, args: &[ArgView<'_>], row: usize) {
        let batches = std::mem::take(&mut self.batches);
        let mut first = None;
        for member in batches.of_visit(visit.visit_id).known {
            let (item_id, share) = (member.item_id, member.share);
            let stages = self.stages.as_ref();
            if stages.is_some_and(|it| !it.counts(visit.visit_id, item_id)) {
                continue;
            }
            let count = |n: u32| share.count(n.into(), visit.visit_id) as u32;
            let part = Item {
                item_id,
                active_ns: visit.active_ns.map(|ns| share.part(ns)),
                idle_ns: share.part(visit.idle_ns),
                samples: count(visit.samples),
                counts: visit.counts.map(|n| n.map(count)),
                ..*visit
            };
            let index = self.insert(part, args, row);
            let items = &mut self.items;
            let shared = items.shared.entry(visit.visit_id).or_default();
            shared.push((index, share));
            let first = *first.get_or_insert(items.drawn_with(index));
            items.together.entry(index).or_insert(first);
        }
        self.batches = batches;
    }

    /// Adds a visit: a new item, or one more visit of an item; returns its index.
    fn insert(&mut self, visit: Item, args: &[ArgView<'_>], row: usize) -> u32 {
        let items = &mut self.items;
        // Fewer than 2^32: each takes more than a byte of a file.
        let next = items.all.len() as u32;
        let index = match (items.unit, &mut self.stages) {
            (Unit::Visit, _) => next,
            (Unit::Item, Some(stages)) => stages.item(visit.visit_id, visit.item_id, next),
            (Unit::Item, None) => *self
                .by_id
                .entry((visit.probe, visit.item_id))
                .or_insert(next),
        };
        if index == next {
            items.all.push(visit);
            items.columns.push(args, row);
        } else {
            items.all[index as usize].join(&visit);
            items.columns.fill(index as usize, args, row);
        }
        index
    }
}

impl Item {
    /// Joins another visit of the item.
    fn join(&mut self, visit: &Self) {
        let end = self.end_ns().max(visit.end_ns());
        if visit.begin_ns < self.begin_ns {
            (self.visit_id, self.begin_ns) = (visit.visit_id, visit.begin_ns);
            (self.tid, self.pid, self.cpu) = (visit.tid, visit.pid, visit.cpu);
        }
        self.latency_ns = end - self.begin_ns;
        self.own_ns += visit.own_ns;
        self.active_ns = self.active_ns.zip(visit.active_ns).map(|(a, b)| a + b);
        self.idle_ns += visit.idle_ns;
        self.flags |= visit.flags;
        self.samples = self.samples.saturating_add(visit.samples);
        interrupts_and_faults::add(&mut self.interference, visit.interference);
        for (own, more) in self.counts.iter_mut().zip(visit.counts) {
            *own = own.zip(more).map(|(own, more)| own.saturating_add(more));
        }
    }
}
