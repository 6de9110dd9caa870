//! The items of a trace: what is explained, with its time, its arguments and what happened to it.
//!
//! An item is a visit, unless [`Unit::Item`] is asked for or follows from the probes: then it is all
//! visits with the same item id, from the first begin to the last end; of several probes, which are stages,
//! as [`stages`] has it. A visit of another probe that
//! lies within a visit of a call on the same thread is part of it: what its functions and waits took
//! counts for the outer visit as well, as the outer function called it. A visit that serves several items is one
//! of each, with its share of what it took ([`batches`](crate::analysis::batches)).
//!
//! Memory: about 120 bytes an item and 5 to 17 for each argument, whatever the number of samples.

use arrow::array::{Array, RecordBatch};
use rustc_hash::FxHashMap;

use super::columns::ArgumentColumns;
use super::interference::{self, SLOWER_CLOCK, TimeArrays, Times};
use super::model::LeftOut;
use super::sums::Key;
use super::{ExplainOptions, Unit};
use crate::analysis::batches::{Batches, Share};
use crate::analysis::frequencies::Frequencies;
use crate::analysis::report::LossVisits;
use crate::analysis::report::counts::{self, CountArrays};
use crate::analysis::report::shared::ArgArray;
use crate::analysis::stages::{self, Known, Passages};
use crate::store::reader::{ReadError, Trace, column_i64, column_u16, column_u32, column_u64};
use crate::store::run::RunInfo;
use crate::store::schema::{Table, visit_flag};
use crate::target::probe::VisitRule;

/// Columns of the pass; those of the counts and of the arguments follow.
const COLUMNS: [&str; 11] = [
    "visit_id",
    "item_id",
    "probe_id",
    "pid",
    "tid",
    "cpu_begin",
    "begin_ns",
    "duration_ns",
    "oncpu_ns",
    "samples",
    "flags",
];

/// No item, where the index of one is expected.
pub(in crate::analysis) const NONE: u32 = u32::MAX;

/// Visits looked at to find the one that another lies in.
const DEPTH: usize = 64;

/// Visits of a page of [`Places`].
const PAGE: u64 = 4096;

/// One item.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::analysis) struct Item {
    /// Its (first) visit.
    pub visit_id: u64,
    /// Its id.
    pub item_id: u64,
    /// Begin on the trace clock.
    pub begin_ns: i64,
    /// From begin to end.
    pub latency_ns: i64,
    /// Time on the CPU, visits within it included; the latency if switches were not recorded; `None` if unknown.
    pub active_ns: Option<i64>,
    /// Thread of its first visit.
    pub tid: u32,
    /// Process.
    pub pid: u32,
    /// CPU of its begin mark; `None` if unknown.
    pub cpu: Option<u16>,
    /// Index of its probe in [`Items::probes`]; 0 if items have visits of several.
    pub probe: u16,
    /// Flags of all its visits.
    pub flags: u32,
    /// Samples, all events.
    pub samples: u32,
    /// Switches, migrations, page faults.
    pub counts: [Option<u32>; 3],
    /// What came between its threads and their work.
    pub interference: Times,
}

impl Item {
    /// Whether its functions and waits are known.
    pub(in crate::analysis) const fn has_details(&self) -> bool {
        self.active_ns.is_some() && self.flags & visit_flag::CONDENSED == 0
    }

    /// End on the trace clock.
    pub(in crate::analysis) const fn end_ns(&self) -> i64 {
        self.begin_ns + self.latency_ns
    }
}

/// Visits by number.
///
/// Memory: four bytes a visit, as numbers are dense.
#[derive(Debug, Default)]
struct Places(FxHashMap<u64, Box<[u32; PAGE as usize]>>);

impl Places {
    fn set(&mut self, visit_id: u64, item: u32) {
        let page = self.0.entry(visit_id / PAGE);
        let page = page.or_insert_with(|| Box::new([NONE; PAGE as usize]));
        page[(visit_id % PAGE) as usize] = item;
    }

    fn get(&self, visit_id: u64) -> u32 {
        let page = self.0.get(&(visit_id / PAGE));
        page.map_or(NONE, |page| page[(visit_id % PAGE) as usize])
    }
}

/// Items of a probe, or of all.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct ProbeItems {
    /// Numbers of its probes.
    pub probe_ids: Vec<u16>,
    /// SPECs as typed; empty if `trace.json` doesn't know the probe.
    pub specs: Vec<String>,
    /// Visits recorded.
    pub visits: u64,
    /// Visits left out.
    pub left_out: LeftOut,
}

/// All items that are counted.
#[derive(Debug)]
pub(in crate::analysis) struct Items {
    /// What an item is.
    pub unit: Unit,
    /// What items are of.
    pub probes: Vec<ProbeItems>,
    /// The items.
    pub all: Vec<Item>,
    /// Their arguments, row by row.
    pub columns: ArgumentColumns,
    /// For each item the one it lies in.
    parents: Vec<u32>,
    /// For each item the period of the run that it lies in; empty unless divided.
    periods: Vec<u8>,
    /// Visits of other probes within an item, by the index of their probe.
    pub inner: FxHashMap<(u32, u16), u32>,
    places: Places,
    /// Items of visits that serve several, where these are not the items themselves.
    shared: FxHashMap<u64, Vec<(u32, Share)>>,
    /// Items that were served together with another: that one.
    together: FxHashMap<u32, u32>,
    /// Waiting between stages, and for others in one: the item, what, and how long, ns.
    pub handovers: Vec<(u32, Key, i64)>,
}

impl Items {
    /// Reads the visits of a trace.
    pub(in crate::analysis) fn read(
        trace: &Trace,
        options: &ExplainOptions,
    ) -> Result<Self, ReadError> {
        let unit = options
            .unit
            .unwrap_or_else(|| unit_of(&trace.info, options));
        // Of one probe alone every visit would begin an item.
        let staged =
            unit == Unit::Item && options.probe.is_none() && stages::has_stages(&trace.info);
        let stages = staged.then(|| Stages::read(trace, options.losses));
        let stages = stages.transpose()?;
        let mut reading = Reading {
            info: &trace.info,
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
                probes: Vec::new(),
                all: Vec::new(),
                columns: ArgumentColumns::new(&trace.info.columns),
                parents: Vec::new(),
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
        let mut columns = COLUMNS.to_vec();
        columns.extend(counts::COLUMNS);
        columns.extend(interference::COLUMNS);
        columns.extend(trace.info.columns.iter().map(|it| it.name.as_str()));
        for batch in trace.scan(Table::Visits, &columns)? {
            reading.add(&batch?)?;
        }
        let mut items = reading.items;
        if let Some(stages) = reading.stages {
            stages.tell(&mut items);
        }
        items.parents = vec![NONE; items.all.len()];
        if unit == Unit::Visit && items.probes.len() > 1 {
            items.nest(&trace.info);
        }
        Ok(items)
    }

    /// The items that a visit's details count for, and what of them: its own, and those that it lies in; or those
    /// that it serves together.
    pub(in crate::analysis) fn of_visit(
        &self,
        visit_id: u64,
    ) -> impl Iterator<Item = (u32, Share)> + '_ {
        let own = self.places.get(visit_id);
        let up = |item: &u32| Some(self.parents[*item as usize]).filter(|it| *it != NONE);
        let alone = std::iter::successors((own != NONE).then_some(own), up);
        let shared = self.shared.get(&visit_id).into_iter().flatten().copied();
        shared.chain(alone.map(|item| (item, Share::WHOLE)))
    }

    /// Whether a visit is one of an item's own.
    pub(in crate::analysis) fn is_own(&self, visit_id: u64, item: u32) -> bool {
        self.shared.contains_key(&visit_id) || self.places.get(visit_id) == item
    }

    /// The item with which this one is drawn by a bootstrap: they were served together and vary together.
    pub(in crate::analysis) fn drawn_with(&self, item: u32) -> u32 {
        self.together.get(&item).copied().unwrap_or(item)
    }

    /// Divides the items of each probe into periods of as many items each, in order of their begin.
    pub(in crate::analysis) fn divide(&mut self, periods: usize) {
        self.periods = vec![0; self.all.len()];
        let item = |index: u32| &self.all[index as usize];
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_by_key(|&index| (item(index).probe, item(index).begin_ns));
        for of_probe in order.chunk_by(|a, b| item(*a).probe == item(*b).probe) {
            for (rank, &index) in of_probe.iter().enumerate() {
                self.periods[index as usize] = (rank * periods / of_probe.len()) as u8;
            }
        }
    }

    /// The period of an item, after [`Items::divide`].
    pub(in crate::analysis) fn period(&self, item: u32) -> u8 {
        self.periods.get(item as usize).copied().unwrap_or(0)
    }

    /// Finds the visits that others lie in, and adds to them what these took.
    fn nest(&mut self, info: &RunInfo) {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        let item = |index: u32| &self.all[index as usize];
        order.sort_by_key(|&index| {
            let it = item(index);
            (it.tid, it.begin_ns, -it.latency_ns, it.visit_id)
        });
        let calls: Vec<bool> = self
            .probes
            .iter()
            .map(|probe| probe.probe_ids.iter().all(|id| is_nesting(info, *id)))
            .collect();
        let mut open: Vec<u32> = Vec::new();
        for &index in &order {
            let it = *item(index);
            open.retain(|&outer| {
                let outer = item(outer);
                outer.tid == it.tid && outer.end_ns() > it.begin_ns
            });
            let holds = |outer: &&u32| {
                let outer = item(**outer);
                outer.end_ns() >= it.end_ns()
                    && outer.probe != it.probe
                    && calls[usize::from(outer.probe)]
            };
            if let Some(&outer) = open.iter().rev().take(DEPTH).find(holds) {
                self.parents[index as usize] = outer;
            }
            open.push(index);
            if open.len() > DEPTH {
                open.remove(0);
            }
        }
        // Innermost first: what lies within was added to before it is added itself.
        for &index in order.iter().rev() {
            let outer = self.parents[index as usize];
            if outer != NONE {
                let inner = self.all[index as usize];
                *self.inner.entry((outer, inner.probe)).or_default() += 1;
                self.all[outer as usize].take_in(&inner);
            }
        }
    }
}

impl Item {
    /// Adds what a visit within this item took.
    fn take_in(&mut self, inner: &Self) {
        self.active_ns = self.active_ns.map(|own| own + inner.active_ns.unwrap_or(0));
        self.samples = self.samples.saturating_add(inner.samples);
        self.flags |= inner.flags & !visit_flag::CONDENSED;
        interference::add(&mut self.interference, inner.interference);
        for (own, more) in self.counts.iter_mut().zip(inner.counts) {
            *own = own.zip(more).map(|(own, more)| own.saturating_add(more));
        }
    }
}

/// Whether what lies within a visit of the probe on its thread is part of it: not so in an event loop,
/// where items take turns.
fn is_nesting(info: &RunInfo, probe_id: u16) -> bool {
    let probe = info.probes.iter().find(|probe| probe.id.0 == probe_id);
    probe.is_some_and(|probe| matches!(probe.rule, VisitRule::Call | VisitRule::ByThread))
}

/// Visits, unless the probes are stages of the same items and not one of them was asked for.
fn unit_of(info: &RunInfo, options: &ExplainOptions) -> Unit {
    if options.probe.is_none() && stages::has_stages(info) {
        Unit::Item
    } else {
        Unit::Visit
    }
}

/// The pass over the visits.
struct Reading<'a> {
    info: &'a RunInfo,
    options: &'a ExplainOptions,
    /// Items by id, where these may have several visits and the probe is no stage.
    by_id: FxHashMap<(u16, u64), u32>,
    frequencies: Frequencies,
    /// Stages: what is known of the items, and the item of each visit.
    stages: Option<Stages>,
    /// The items of visits that serve several, where these are not the items themselves.
    batches: Batches,
    items: Items,
}

/// Items that go through stages.
struct Stages {
    passages: Passages,
    /// For each visit its passage.
    places: Places,
    /// For each item of a visit that serves several its passage.
    shared: FxHashMap<(u64, u64), u32>,
    /// For each passage its item, [`NONE`] before one of its visits was met; `None`: not counted.
    items: Vec<Option<u32>>,
}

impl Stages {
    fn read(trace: &Trace, losses: LossVisits) -> Result<Self, ReadError> {
        let passages = Passages::read(trace)?;
        let (mut places, mut items) = (Places::default(), Vec::new());
        let mut shared = FxHashMap::default();
        for (number, passage) in (0..).zip(passages.iter()) {
            for step in passage.steps {
                if step.is_shared() {
                    shared.insert((step.visit_id, step.item_id()), number);
                } else {
                    places.set(step.visit_id, number);
                }
            }
            items.push(passage.counts(losses).then_some(NONE));
        }
        Ok(Self {
            passages,
            places,
            shared,
            items,
        })
    }

    /// The passage that the visit of an item is part of.
    fn passage(&self, visit_id: u64, item_id: u64) -> usize {
        let shared = self.shared.get(&(visit_id, item_id)).copied();
        shared.unwrap_or_else(|| self.places.get(visit_id)) as usize
    }

    /// Whether the item of a visit is counted.
    fn counts(&self, visit_id: u64, item_id: u64) -> bool {
        let item = self.items.get(self.passage(visit_id, item_id));
        item.is_some_and(Option::is_some)
    }

    /// The item of a visit that is counted: `next` if it is the first one met.
    fn item(&mut self, visit_id: u64, item_id: u64, next: u32) -> u32 {
        let passage = self.passage(visit_id, item_id);
        match self.items.get_mut(passage) {
            Some(Some(item)) => {
                *item = if *item == NONE { next } else { *item };
                *item
            }
            _ => next,
        }
    }

    /// Tells of the items what is left out, and the waiting between stages.
    fn tell(self, items: &mut Items) {
        for (passage, item) in self.passages.iter().zip(&self.items) {
            match item {
                Some(item) => {
                    let waits = passage.waits();
                    items.handovers.extend(
                        waits.map(|(step, waited)| (*item, Key::Handover(step.probe), waited)),
                    );
                    let steps = passage.steps.iter().filter(|step| step.others_ns > 0);
                    items
                        .handovers
                        .extend(steps.map(|step| (*item, Key::Others(step.probe), step.others_ns)));
                }
                None => {
                    let all = items.probes.iter_mut();
                    all.take(1)
                        .for_each(|it| it.left_out.passage(passage.known));
                }
            }
        }
    }
}

impl LeftOut {
    fn passage(&mut self, known: Known) {
        match known {
            Known::Whole => {}
            Known::Loss => self.loss += 1,
            Known::Open => self.open += 1,
            Known::Headless => self.headless += 1,
        }
    }
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
        // Not empty: one was added if it was.
        let last = probes.len() - 1;
        probes[last].probe_ids.push(probe_id);
        probes[last].specs.extend(spec);
        Some(last as u16)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let visit_ids = column_u64(batch, 0)?.values();
        let item_ids = column_u64(batch, 1)?.values();
        let probe_ids = column_u16(batch, 2)?.values();
        let (pids, tids) = (
            column_u32(batch, 3)?.values(),
            column_u32(batch, 4)?.values(),
        );
        let cpus = column_u16(batch, 5)?;
        let begins = column_i64(batch, 6)?.values();
        let (durations, oncpus) = (column_i64(batch, 7)?, column_i64(batch, 8)?);
        let (samples, flags) = (
            column_u32(batch, 9)?.values(),
            column_u32(batch, 10)?.values(),
        );
        let counted = CountArrays::of(batch, COLUMNS.len())?;
        let first = COLUMNS.len() + counts::COLUMNS.len();
        let times = TimeArrays::of(batch, first)?;
        let first = first + interference::COLUMNS.len();
        let args = ArgArray::all(batch, first, &self.info.columns)?;
        for row in 0..batch.num_rows() {
            let Some(slot) = self.slot(probe_ids[row]) else {
                continue;
            };
            let probe = &mut self.items.probes[usize::from(slot)];
            probe.visits += 1;
            let (stages, items_unit) = (self.stages.as_ref(), self.items.unit);
            let shared = items_unit == Unit::Item && flags[row] & visit_flag::SHARED != 0;
            if !shared && stages.is_some_and(|it| !it.counts(visit_ids[row], item_ids[row])) {
                continue;
            }
            if durations.is_null(row) {
                probe.left_out.open += 1;
                continue;
            }
            let latency_ns = durations.value(row).max(0);
            if flags[row] & visit_flag::LOSS != 0 && self.options.losses == LossVisits::LeaveOut {
                probe.left_out.loss += 1;
                continue;
            }
            let oncpu = oncpus.is_valid(row).then(|| oncpus.value(row));
            let mut item = Item {
                visit_id: visit_ids[row],
                item_id: item_ids[row],
                begin_ns: begins[row],
                latency_ns,
                // Without switches the thread is taken to have run all the time.
                active_ns: oncpu.or((!self.info.switches).then_some(latency_ns)),
                tid: tids[row],
                pid: pids[row],
                cpu: cpus.is_valid(row).then(|| cpus.value(row)),
                probe: slot,
                flags: flags[row],
                samples: samples[row],
                counts: counted.get(row).values(),
                interference: times.get(row),
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

    /// What a visit's CPU took longer as it ran slower; `None` if its frequency, or which CPU it was, is unknown.
    fn lost_to_clock(&self, visit: &Item) -> Option<f32> {
        let cpu = visit
            .cpu
            .filter(|_| visit.flags & visit_flag::MIGRATED == 0)?;
        let range = (visit.begin_ns, visit.end_ns());
        let lost = self.frequencies.lost_ns(cpu, range, visit.active_ns?)?;
        Some(lost as f32)
    }

    /// Adds a visit that serves several items to each of them.
    fn share_out(&mut self, visit: &Item, args: &[ArgArray<'_>], row: usize) {
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

    /// Adds a visit: a new item, or one more visit of an item; gives its index.
    fn insert(&mut self, visit: Item, args: &[ArgArray<'_>], row: usize) -> u32 {
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
        self.active_ns = self.active_ns.zip(visit.active_ns).map(|(a, b)| a + b);
        self.flags |= visit.flags;
        self.samples = self.samples.saturating_add(visit.samples);
        interference::add(&mut self.interference, visit.interference);
        for (own, more) in self.counts.iter_mut().zip(visit.counts) {
            *own = own.zip(more).map(|(own, more)| own.saturating_add(more));
        }
    }
}
