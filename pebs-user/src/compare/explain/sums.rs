//! Passes over the functions and the waits of items: sums by group, class and block.

use rustc_hash::FxHashMap;

use super::groups::Section;
use super::interrupts_and_faults::KINDS;
use super::items::{Item, Items};
use super::keys::Key;
use super::model::CauseType;
use crate::compare::batches::Share;
use crate::compare::classes::{Class, RankBy};
use crate::compare::explain::timing::Timing;
use crate::compare::further::FurtherEvent;
use crate::compare::names::Names;
use crate::compare::pool::OwnError;
use crate::compare::rows;
use crate::compare::waits::{IDLE, PREEMPTED, STOPPED, States, WaitKey, is_anywhere};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::FunctionId;
use pebs_stats::blocks::Blocks;

columns! {
    struct Waits of waits {
        visit_id, begin_ns, end_ns, function_id, state, stack_id, woken_by, woken_by_tid, preempted_by,
        preempted_by_tid
    }
}

/// Actor that is not a thread: an interrupt.
pub(super) const NO_THREAD: u32 = 0;

/// Type of the cause for time off the CPU in this state.
pub(crate) fn type_of_wait(state: &str) -> CauseType {
    match state {
        PREEMPTED => CauseType::Preempted,
        STOPPED => CauseType::Stopped,
        _ => CauseType::Wait,
    }
}

/// Rows of the examined items.
pub(crate) type Rows = FxHashMap<u32, Vec<(Key, f64, u64)>>;

/// Events of one further event over the items of a class, as [`crate::compare::further`] estimates them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSums {
    /// Samples of all functions.
    pub samples: u64,
    /// Events of all functions.
    pub events: Blocks,
    /// Events and samples of each.
    pub functions: FxHashMap<FunctionId, (Blocks, u64)>,
}

impl EventSums {
    pub(super) fn add(
        &mut self,
        function: FunctionId,
        block: usize,
        (events, samples): (f64, u64),
    ) {
        self.samples += samples;
        self.events.add(block, events);
        let (sum, count) = self.functions.entry(function).or_default();
        sum.add(block, events);
        *count += samples;
    }
}

/// Sums over the items of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassSums {
    /// Whether samples beat with the items: how far the times of functions are off is unknown.
    pub beats: bool,
    /// Errors of pebs-trace's own time, which is taken off latencies and times on the CPU.
    pub own_error: OwnError,
    /// Samples that it is taken off for, of all events.
    pub own_samples: u64,
    pub items: Blocks,
    /// Latencies without pebs-trace's own time, ns.
    pub latency: Blocks,
    /// pebs-trace's own time, ns.
    pub own: Blocks,
    /// Times on the CPU without pebs-trace's own time, ns.
    pub active: Blocks,
    /// Events of all functions.
    pub events: Blocks,
    /// Samples of all functions.
    pub samples: u64,
    /// Switches, migrations, page faults.
    pub counts: [Blocks; 3],
    /// Interrupt, softirq and page-fault times, ns.
    pub interference: [Blocks; KINDS],
    /// Shortest and longest latency.
    pub range_ns: Option<(i64, i64)>,
    /// By function or wait, and samples or number of waits.
    pub keys: FxHashMap<Key, (Blocks, u64)>,
    /// Of each further event.
    pub further: Vec<EventSums>,
    /// Time of waits, ns, by their call stack as well.
    pub stacks: FxHashMap<(Key, u32), i64>,
    /// Time of waits, ns, by the thread that ended them or took the CPU as well; with the longest wait and the time of
    /// its end.
    pub actors: FxHashMap<(Key, u32), (i64, (i64, i64))>,
}

impl ClassSums {
    pub(super) fn add_item(&mut self, block: usize, item: &Item) {
        self.items.add(block, 1.0);
        self.own_samples += u64::from(item.samples);
        let net_ns = item.net_ns();
        self.latency.add(block, net_ns as f64);
        self.own.add(block, item.own_ns as f64);
        self.active.add(block, item.active_ns.unwrap_or(0) as f64);
        for (sum, count) in self.counts.iter_mut().zip(item.counts) {
            sum.add(block, f64::from(count.unwrap_or(0)));
        }
        for (sum, ns) in self.interference.iter_mut().zip(item.interference) {
            sum.add(block, f64::from(ns.unwrap_or(0.0)));
        }
        let (low, high) = self.range_ns.unwrap_or((net_ns, net_ns));
        self.range_ns = Some((low.min(net_ns), high.max(net_ns)));
    }

    pub(super) fn add(&mut self, key: Key, block: usize, value: f64, samples: u64) {
        if matches!(key, Key::Function(_)) {
            self.events.add(block, value);
            self.samples += samples;
        }
        let (sum, count) = self.keys.entry(key).or_default();
        sum.add(block, value);
        *count += samples;
    }
}

/// Sums over all items of a group, each with its product with the latency.
///
/// Latencies are taken from the group's median, so that products stay small.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllSums {
    pub items: Blocks,
    /// Latencies, and their squares.
    pub latency: (Blocks, Blocks),
    /// Times on the CPU.
    pub active: (Blocks, Blocks),
    /// Events of all functions.
    pub events: (Blocks, Blocks),
    /// By function or wait, and samples or number of waits.
    pub keys: FxHashMap<Key, (Blocks, Blocks, u64)>,
    /// Of each further event, samples and events by function.
    pub further: Vec<FxHashMap<FunctionId, (u64, f64)>>,
    /// Switches, migrations, page faults: how often they are known; sums of the count, its square,
    /// its product with the latency, the latency and its square.
    pub counts: [[f64; 6]; 3],
    /// The same for interrupts, softirqs and page faults, ns.
    pub interference: [[f64; 6]; KINDS],
}

impl AllSums {
    fn add_item(&mut self, block: usize, item: &Item, latency: f64) {
        let active = item.active_ns.unwrap_or(0) as f64;
        self.items.add(block, 1.0);
        self.latency.0.add(block, latency);
        self.latency.1.add(block, latency * latency);
        self.active.0.add(block, active);
        self.active.1.add(block, active * latency);
        let counts = item.counts.map(|count| count.map(f64::from));
        let times = item.interference.map(|ns| ns.map(f64::from));
        let sums = self.counts.iter_mut().chain(&mut self.interference);
        for (sums, value) in sums.zip(counts.into_iter().chain(times)) {
            if let Some(value) = value {
                let terms = [
                    1.0,
                    value,
                    value * value,
                    value * latency,
                    latency,
                    latency * latency,
                ];
                sums.iter_mut()
                    .zip(terms)
                    .for_each(|(sum, term)| *sum += term);
            }
        }
    }

    fn add(&mut self, key: Key, block: usize, value: f64, latency: f64, samples: u64) {
        if matches!(key, Key::Function(_)) {
            self.events.0.add(block, value);
            self.events.1.add(block, value * latency);
        }
        let (sum, product, count) = self.keys.entry(key).or_default();
        sum.add(block, value);
        product.add(block, value * latency);
        *count += samples;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct GroupSums {
    /// Its slow items.
    pub slow: ClassSums,
    /// The items that they are compared with.
    pub typical: ClassSums,
    /// All items.
    pub all: AllSums,
}

/// Adds the rows of items to sums.
pub(crate) struct Summing<'a> {
    pub items: &'a Items,
    /// The groups.
    pub sections: &'a [Section],
    /// By item: its places among the sections.
    pub places: Vec<[(u16, Class); 2]>,
    /// Sums of each section.
    pub sums: Vec<GroupSums>,
    /// Names of states.
    pub states: States,
    /// Names of the threads that ended waits or took the CPU, by tid.
    pub actors: FxHashMap<u32, String>,
    pub block: fn(&Items, u32) -> usize,
    /// Rows of the watched items ([`Summing::watch`]).
    pub rows: Rows,
    /// By item, whether its rows are kept; empty: no item's.
    watched: Vec<bool>,
    /// Number of rows added: decides which item gets an event where a batch has fewer events than items.
    turn: u64,
}

pub(crate) const NO_SECTION: u16 = u16::MAX;

impl<'a> Summing<'a> {
    /// Adds up the items themselves.
    pub(crate) fn new(
        items: &'a Items,
        sections: &'a [Section],
        block: fn(&Items, u32) -> usize,
    ) -> Self {
        let mut places = vec![[(NO_SECTION, Class::Between); 2]; items.all.len()];
        for (number, section) in sections.iter().enumerate() {
            for (&member, &class) in section.members.iter().zip(&section.classes) {
                let places = &mut places[member as usize];
                let free = usize::from(places[0].0 != NO_SECTION);
                places[free] = (number as u16, class);
            }
        }
        let mut summing = Self {
            items,
            sections,
            places,
            sums: vec![GroupSums::default(); sections.len()],
            states: States::default(),
            actors: FxHashMap::default(),
            block,
            rows: Rows::default(),
            watched: Vec::new(),
            turn: 0,
        };
        for (sums, section) in summing.sums.iter_mut().zip(sections) {
            let probe = items.probes.get(usize::from(section.probe));
            let beats = probe.is_some_and(|it| it.beats);
            let own_error = probe.map_or_else(OwnError::default, |it| it.own_error);
            for class in [&mut sums.slow, &mut sums.typical] {
                (class.beats, class.own_error) = (beats, own_error);
            }
        }
        for (index, item) in items.all.iter().enumerate() {
            if item.has_details() {
                summing.add_item(index as u32, item);
            }
        }
        summing
    }

    /// Keeps the rows of these items.
    pub(crate) fn watch(&mut self, items: &[u32]) {
        if self.watched.is_empty() {
            self.watched = vec![false; self.items.all.len()];
        }
        for item in items {
            self.watched[*item as usize] = true;
            self.rows.entry(*item).or_default();
        }
    }

    fn add_item(&mut self, index: u32, item: &Item) {
        let block = (self.block)(self.items, index);
        for (section, class) in self.places[index as usize] {
            let Some(sums) = self.sums.get_mut(usize::from(section)) else {
                continue;
            };
            let median = self.sections[usize::from(section)].summary.quantiles.p50_ns;
            sums.all
                .add_item(block, item, (item.net_ns() - median) as f64);
            match class {
                Class::Slow => sums.slow.add_item(block, item),
                Class::Typical => sums.typical.add_item(block, item),
                Class::Between => {}
            }
        }
    }

    fn add(&mut self, visit_id: u64, key: Key, value: f64, samples: u64) {
        self.turn += 1;
        for (index, share) in self.items.of_visit(visit_id) {
            let samples = share.count(samples, self.turn);
            let value = value * share.of_whole();
            self.add_to(index, key, value, samples);
        }
    }

    /// Calls `take` with the sections in which a visit counts, its class and block there, and its share.
    pub(crate) fn classes_of(
        &self,
        visit_id: u64,
        mut take: impl FnMut(u16, (Class, usize), Share),
    ) {
        for (index, share) in self.items.of_visit(visit_id) {
            if self.items.all[index as usize].has_details() {
                let block = (self.block)(self.items, index);
                let places = self.places[index as usize];
                let places = places.into_iter().filter(|it| it.0 != NO_SECTION);
                places.for_each(|(section, class)| take(section, (class, block), share));
            }
        }
    }

    fn add_to(&mut self, index: u32, key: Key, value: f64, samples: u64) {
        let item = &self.items.all[index as usize];
        if !item.has_details() {
            return;
        }
        if self.watched.get(index as usize) == Some(&true) {
            let rows = self.rows.entry(index).or_default();
            rows.push((key, value, samples));
        }
        let block = (self.block)(self.items, index);
        for (section, class) in self.places[index as usize] {
            let Some(sums) = self.sums.get_mut(usize::from(section)) else {
                continue;
            };
            let median = self.sections[usize::from(section)].summary.quantiles.p50_ns;
            let latency = (item.net_ns() - median) as f64;
            sums.all.add(key, block, value, latency, samples);
            match class {
                Class::Slow => sums.slow.add(key, block, value, samples),
                Class::Typical => sums.typical.add(key, block, value, samples),
                Class::Between => {}
            }
        }
    }

    /// Adds something to the sums of the slow items that have a visit, with the visit's part of each.
    fn add_slow(&mut self, visit_id: u64, mut add: impl FnMut(&mut ClassSums, Share)) {
        for (index, share) in self.items.of_visit(visit_id) {
            let places = self.places[index as usize].iter();
            let is_slow = |place: &&(u16, Class)| place.1 == Class::Slow;
            for (section, _) in places.filter(is_slow) {
                if let Some(sums) = self.sums.get_mut(usize::from(*section)) {
                    add(&mut sums.slow, share);
                }
            }
        }
    }

    /// Adds the time of a wait to those that a thread ended, or took the CPU for, at time `when`.
    fn add_actor(&mut self, visit_id: u64, at: (Key, u32), name: &str, ns: i64, when: i64) {
        self.add_slow(visit_id, |slow, share| {
            let (sum, longest) = slow.actors.entry(at).or_default();
            *sum += share.part(ns);
            *longest = (*longest).max((ns, when));
        });
        self.actors.entry(at.1).or_insert_with(|| name.to_owned());
    }

    /// Adds up the functions, as sampled by one event.
    pub(crate) fn functions(&mut self, trace: &Trace, event: &EventInfo) -> Result<(), ReadError> {
        rows::functions(trace, event, |seen| {
            let key = Key::Function(FunctionId(seen.function));
            self.add(seen.visit, key, seen.weight(), seen.samples.into());
        })
    }

    /// Adds up a further event, number `at` of these.
    fn further(
        &mut self,
        trace: &Trace,
        (at, event): (usize, &FurtherEvent),
    ) -> Result<(), ReadError> {
        for sums in &mut self.sums {
            sums.all.further.push(FxHashMap::default());
            for class in [&mut sums.slow, &mut sums.typical] {
                class.further.push(EventSums::default());
            }
        }
        let Some(info) = trace.info.events.iter().find(|it| it.id == event.id) else {
            return Ok(());
        };
        let (mut turn, sections) = (0, self.sums.len());
        rows::functions(trace, info, |seen| {
            turn += 1;
            let function = FunctionId(seen.function);
            for (index, share) in self.items.of_visit(seen.visit) {
                if !self.items.all[index as usize].has_details() {
                    continue;
                }
                let samples = share.count(seen.samples.into(), turn);
                let events = seen.stands_for() * share.of_whole();
                let block = (self.block)(self.items, index);
                let places = self.places[index as usize].into_iter();
                for (section, class) in places.filter(|it| usize::from(it.0) < sections) {
                    let sums = &mut self.sums[usize::from(section)];
                    let of_all = sums.all.further[at].entry(function).or_default();
                    of_all.0 += samples;
                    of_all.1 += events;
                    match class {
                        Class::Slow => {
                            sums.slow.further[at].add(function, block, (events, samples));
                        }
                        Class::Typical => {
                            sums.typical.further[at].add(function, block, (events, samples));
                        }
                        Class::Between => {}
                    }
                }
            }
        })
    }

    /// Adds up the waits, those between stages as well.
    ///
    /// Time on the CPU has none.
    pub(crate) fn waits(&mut self, trace: &Trace) -> Result<(), ReadError> {
        if self.items.by == RankBy::CpuTime {
            return Ok(());
        }
        for batch in Waits::scan(trace)? {
            let batch = batch?;
            let waits = Waits::of(&batch)?;
            for (row, &visit) in waits.visit_id.iter().enumerate() {
                let function = waits.function_id.get(row);
                let key = wait_key(&mut self.states, waits.state.get(row), function);
                let (begin, end) = (waits.begin_ns[row], waits.end_ns[row]);
                let ns = end.saturating_sub(begin);
                self.add(visit, key, ns as f64, 1);
                if let Some(stack) = waits.stack_id.get(row) {
                    self.add_slow(visit, |slow, share| {
                        *slow.stacks.entry((key, stack)).or_default() += share.part(ns);
                    });
                }
                let took = (&waits.preempted_by, &waits.preempted_by_tid, begin);
                let woke = (&waits.woken_by, &waits.woken_by_tid, end);
                let known = [took, woke].into_iter().find_map(|(names, tids, when)| {
                    Some((names.get(row)?, tids.get(row).unwrap_or(NO_THREAD), when))
                });
                if let Some((name, tid, when)) = known {
                    self.add_actor(visit, (key, tid), name, ns, when);
                }
            }
        }
        for &(item, key, ns) in &self.items.handovers {
            self.add_to(item, key, ns as f64, 1);
        }
        if !trace.info.resumes.is_empty() {
            let idle = wait_key(&mut self.states, IDLE, None);
            for (index, item) in (0..).zip(&self.items.all) {
                if item.idle_ns > 0 {
                    self.add_to(index, idle, item.idle_ns as f64, 1);
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn wait_key(states: &mut States, state: &str, function: Option<u32>) -> Key {
    let index = states.index(state);
    key_of_wait((index, state), function)
}

/// The key of a wait in a state that was met.
pub(super) fn key_of_wait((index, state): (usize, &str), function: Option<u32>) -> Key {
    Key::Wait(WaitKey {
        state: index,
        function: function.filter(|_| !is_anywhere(state)).map(FunctionId),
    })
}

pub(crate) fn sum<'a>(
    trace: &Trace,
    items: &'a Items,
    sections: &'a [Section],
    (timing, watched): (&Timing<'_>, &[Vec<u32>]),
) -> Result<Summing<'a>, ReadError> {
    let mut summing = Summing::new(items, sections, |items, item| items.block_of(item));
    watched.iter().for_each(|it| summing.watch(it));
    if let (Some(event), None) = (timing.event, &timing.reason) {
        summing.functions(trace, event)?;
    }
    for further in timing.further.iter().enumerate() {
        summing.further(trace, further)?;
    }
    summing.waits(trace)?;
    Ok(summing)
}

/// Names of every function met.
pub(crate) fn names(trace: &Trace, sums: &[GroupSums]) -> Result<Names, ReadError> {
    let keys = sums.iter().flat_map(|sums| {
        let classes = sums.slow.keys.keys().chain(sums.typical.keys.keys());
        classes.chain(sums.all.keys.keys())
    });
    let ids = keys.filter_map(|key| key.function().map(|id| id.0));
    let classes = sums.iter().flat_map(|sums| [&sums.slow, &sums.typical]);
    let further = classes.flat_map(|class| &class.further);
    let further = further.flat_map(|it| it.functions.keys().map(|id| id.0));
    Names::of(trace, ids.chain(further))
}
