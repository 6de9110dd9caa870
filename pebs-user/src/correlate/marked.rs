//! Items that marks begin and end, and whose turns samples show.
//!
//! Marks with ids give an item's begin and end, on whichever threads. Between them the id that samples read says which
//! item a thread is at: a run of samples with the same id ([`super::runs`]) is a *turn* of the open item with that id. A
//! turn's own ends are known to a sample's distance, or by a mark of its thread, and it is cut at the item's marks. What
//! samples with an id saw while no item with it was open belongs to none.
//!
//! The end of a turn follows from the thread's next sample, which may come long after the item's end mark. So an item that
//! has ended waits until no thread may still be at it.
//!
//! Invariant: the turns of an item are disjoint. Where the estimated ends of two overlap, they are cut half way between. A
//! turn with samples among those of another one is no turn: two threads had the id at a time. The item is flagged.

use rustc_hash::FxHashMap;

use pebs_common::record::Role;

use super::marks::{MAX_OPEN, MarkAt, read_args};
use super::visit::{MarkTime, OpenVisit, RawWait};
use super::{Correlator, Lost, Sink};
use crate::estimate::cold::Cold;
use crate::ledger::Reason;
use crate::store::schema::visit_flag;
use crate::stream::samples::{SampleBuf, Samples};
use crate::units::{Cpu, Pid, ProbeId, Tid, TraceNs};

/// Process and id of an item.
type Key = (Pid, u64);

/// The items that are open, or wait.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// By id; several with one id in the order of their begin.
    items: FxHashMap<Key, Vec<Item>>,
    /// Number of items without an end.
    open: usize,
    /// Keys of items that have ended, perhaps several times.
    ended: Vec<Key>,
}

#[derive(Debug)]
struct Item {
    /// Its visit, on no thread.
    visit: OpenVisit,
    end: Option<(TraceNs, Option<Cpu>)>,
    turns: Vec<Turn>,
}

/// A thread's time at an item.
#[derive(Debug)]
pub(super) struct Turn {
    tid: Tid,
    begin: TraceNs,
    end: TraceNs,
    /// Intervals on the CPU.
    pub(super) active: Vec<(TraceNs, TraceNs)>,
    waits: Vec<RawWait>,
    pub(super) samples: SampleBuf,
}

/// The samples in a half-open interval.
fn between(samples: Samples<'_>, (begin, end): (TraceNs, TraceNs)) -> Samples<'_> {
    let first = samples.times.partition_point(|it| *it < begin);
    let (_, rest) = samples.split_at(first);
    rest.split_at(rest.times.partition_point(|it| *it < end)).0
}

/// The common part of two intervals.
fn common(
    (begin, end): (TraceNs, TraceNs),
    (from, to): (TraceNs, TraceNs),
) -> Option<(TraceNs, TraceNs)> {
    let part = (begin.max(from), end.min(to));
    (part.0 < part.1).then_some(part)
}

impl Turn {
    /// The part of a run in an interval.
    fn of(run: &OpenVisit, part: (TraceNs, TraceNs)) -> Self {
        let mut turn = Self {
            tid: run.tid,
            begin: part.0,
            end: part.1,
            active: run.active.clone(),
            waits: run.waits.clone(),
            samples: SampleBuf::default(),
        };
        turn.samples.extend(between(run.samples.samples(), part));
        turn.cut(part);
        turn
    }

    /// Leaves out what lies outside of an interval. Samples stay.
    fn cut(&mut self, part: (TraceNs, TraceNs)) {
        (self.begin, self.end) = (self.begin.max(part.0), self.end.min(part.1));
        let active = self.active.iter().filter_map(|it| common(*it, part));
        self.active = active.collect();
        let waits = self.waits.iter().filter_map(|wait| {
            let (begin, end) = common((wait.begin, wait.end), part)?;
            Some(RawWait {
                begin,
                end,
                ..*wait
            })
        });
        self.waits = waits.collect();
    }

    /// Its first and its last sample.
    fn sampled(&self) -> Option<(TraceNs, TraceNs)> {
        let times = self.samples.samples().times;
        Some((*times.first()?, *times.last()?))
    }

    /// Whether samples of either lie among those of the other.
    fn is_among(&self, other: &Self) -> bool {
        let both = self.sampled().zip(other.sampled());
        both.is_some_and(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }
}

impl Item {
    /// From begin to end.
    fn bounds(&self) -> (TraceNs, TraceNs) {
        let end = self.end.map_or(TraceNs(i64::MAX), |it| it.0);
        (self.visit.begin, end)
    }

    /// Adds a turn; returns its samples if it is none.
    fn add(&mut self, turn: Turn) -> Option<SampleBuf> {
        if self.turns.iter().any(|it| it.is_among(&turn)) {
            self.visit.flags |= visit_flag::TIME_SHARED;
            return Some(turn.samples);
        }
        self.turns.push(turn);
        None
    }

    /// Adds what a thread did in its turn beside running and waiting.
    fn count(&mut self, run: &OpenVisit) {
        let visit = &mut self.visit;
        visit.counts.switches += run.counts.switches;
        visit.counts.migrations += run.counts.migrations;
        visit.counts.page_faults += run.counts.page_faults;
        visit.counts.extras += run.counts.extras;
        visit.taken += run.taken;
        visit.own += run.own;
        visit.slept_ns += run.slept_ns;
        visit.mark_waits.0 += run.mark_waits.0;
        visit.mark_waits.1 += run.mark_waits.1;
        visit.flags |=
            run.flags & (visit_flag::PREEMPTED | visit_flag::MIGRATED | visit_flag::LOSS);
    }

    /// The visit with its turns, in order.
    fn whole(self) -> OpenVisit {
        let Self {
            mut visit,
            mut turns,
            ..
        } = self;
        // Samples are in the order of the turns.
        turns.sort_by_key(|turn| turn.sampled().map_or(turn.begin, |it| it.0));
        for at in 1..turns.len() {
            let [earlier, later] = &mut turns[at - 1..=at] else {
                continue;
            };
            if earlier.end > later.begin {
                // No farther than to the samples on either side.
                let first = earlier
                    .sampled()
                    .map_or(earlier.begin, |it| TraceNs(it.1.0 + 1));
                let last = later.sampled().map_or(later.end, |it| it.0);
                let middle = TraceNs(later.begin.0.midpoint(earlier.end.0));
                let at = middle.max(first).min(last);
                earlier.cut((earlier.begin, at));
                later.cut((at, later.end));
            }
        }
        for turn in turns {
            visit.goes_on(turn.tid);
            visit.samples.extend(turn.samples.samples());
            visit.active.extend(turn.active);
            visit.waits.extend(turn.waits);
        }
        visit
    }
}

impl Marked {
    /// All turns of the items that are open or wait.
    pub(super) fn turns(&self) -> impl Iterator<Item = &Turn> {
        let items = self.items.values().flatten();
        items.flat_map(|item| &item.turns)
    }

    /// Number of items that are open or wait.
    pub(super) fn len(&self) -> usize {
        self.items.values().map(Vec::len).sum()
    }

    fn begin(&mut self, visit: OpenVisit) {
        self.open += 1;
        let items = self.items.entry((visit.pid, visit.item_id)).or_default();
        items.push(Item {
            visit,
            end: None,
            turns: Vec::new(),
        });
    }

    /// The open item of a probe with this id.
    fn of(&mut self, key: Key, probe: ProbeId) -> Option<&mut Item> {
        let items = self.items.get_mut(&key)?.iter_mut();
        let mut open = items.filter(|it| it.end.is_none() && it.visit.probe == probe);
        open.next_back()
    }

    /// Ends an item that is open.
    fn end(
        &mut self,
        (key, probe): (Key, ProbeId),
        end: (TraceNs, Option<Cpu>),
    ) -> Option<&mut OpenVisit> {
        self.of(key, probe)?;
        self.open -= 1;
        self.ended.push(key);
        let item = self.of(key, probe)?;
        item.end = Some((end.0.max(item.visit.begin), end.1));
        Some(&mut item.visit)
    }

    /// Divides a run among the items with its id, those that began last first; returns the samples that are of none.
    fn add(&mut self, run: &OpenVisit, end: TraceNs) -> Vec<SampleBuf> {
        let (mut left, mut none) = (vec![(run.begin, end)], Vec::new());
        let mut is_counted = false;
        let items = self.items.get_mut(&(run.pid, run.item_id));
        for item in items.into_iter().flatten().rev() {
            let bounds = item.bounds();
            let parts: Vec<_> = left.iter().filter_map(|it| common(*it, bounds)).collect();
            for part in parts {
                none.extend(item.add(Turn::of(run, part)));
                if !std::mem::replace(&mut is_counted, true) {
                    item.count(run);
                }
            }
            let before = left.iter().filter_map(|it| common(*it, (it.0, bounds.0)));
            let after = left.iter().filter_map(|it| common(*it, (bounds.1, it.1)));
            left = before.chain(after).collect();
        }
        none.extend(left.into_iter().map(|part| {
            let mut samples = SampleBuf::default();
            samples.extend(between(run.samples.samples(), part));
            samples
        }));
        none
    }

    /// Takes out the items that have ended, of a process or of all, and that no thread may still be at.
    fn take_ended(
        &mut self,
        of: Option<Pid>,
        may_be_at: impl Fn(Key, TraceNs) -> bool,
    ) -> Vec<Item> {
        let mut taken = Vec::new();
        let mut keys = std::mem::take(&mut self.ended);
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| {
            if of.is_some_and(|of| of != key.0) {
                return true;
            }
            let Some(items) = self.items.get_mut(key) else {
                return false;
            };
            let is_over = |item: &mut Item| item.end.is_some_and(|it| !may_be_at(*key, it.0));
            taken.extend(items.extract_if(.., is_over));
            let waits = items.iter().any(|it| it.end.is_some());
            if items.is_empty() {
                self.items.remove(key);
            }
            waits
        });
        self.ended = keys;
        taken
    }

    /// The key and the probe of the item that has been open for longest.
    fn oldest(&self) -> Option<(Key, ProbeId)> {
        let items = self.items.iter();
        let items = items.flat_map(|(key, items)| items.iter().map(move |it| (key, it)));
        let open = items.filter(|(_, it)| it.end.is_none());
        let oldest = open.min_by_key(|(_, it)| it.visit.begin)?;
        Some((*oldest.0, oldest.1.visit.probe))
    }

    /// Ends all open items of a process.
    fn end_all(&mut self, pid: Pid, time: TraceNs) {
        for (key, items) in &mut self.items {
            if key.0 != pid {
                continue;
            }
            for item in items.iter_mut().filter(|it| it.end.is_none()) {
                item.end = Some((time.max(item.visit.begin), None));
                item.visit.flags |= visit_flag::THREAD_ENDED;
                self.open -= 1;
                self.ended.push(*key);
            }
        }
    }
}

impl Correlator {
    /// Handles a mark of an item whose turns samples show.
    pub(super) fn mark_item(
        &mut self,
        role: Role,
        own: MarkTime,
        cold: Cold,
        mark: &MarkAt<'_>,
        sink: &mut impl Sink,
    ) {
        let (time, pid, cpu) = (mark.record.time, mark.record.pid, mark.record.cpu);
        let Some(id) = mark.id else {
            return sink.lost(cpu, Lost::Mark, Reason::UnmatchedMark);
        };
        let at = ((pid, id), mark.probe);
        if let Some(runs) = &mut self.runs {
            runs.marked(mark.record.tid, (role == Role::Begin, id), time);
        }
        if role == Role::Begin {
            let mut visit = self.begun(mark);
            visit.own.marks_ns = own.after_ns;
            visit.own.cold_ns = cold.after_ns;
            visit.flags |= visit_flag::SAMPLED_TURNS;
            let Some(marked) = &mut self.marked else {
                return;
            };
            let too_many = (marked.open >= MAX_OPEN).then(|| marked.oldest()).flatten();
            for old in [Some(at), too_many].into_iter().flatten() {
                if let Some(before) = marked.end(old, (time, None)) {
                    before.flags |= visit_flag::END_MISSING;
                }
            }
            marked.begin(visit);
            return;
        }
        let marked = self.marked.as_mut();
        let Some(visit) = marked.and_then(|it| it.end(at, (time, Some(cpu)))) else {
            return self.without_begin(mark, sink);
        };
        visit.own.marks_ns += own.before_ns;
        visit.own.cold_ns += cold.before_ns;
        if visit.tid != mark.record.tid {
            visit.flags |= visit_flag::ENDED_ELSEWHERE;
        }
        let fields = &self.probes[usize::from(mark.probe.0)].end_fields;
        read_args(fields, mark.args, mark.payloads, &mut visit.args);
    }

    /// Handles a run of samples that is over: it is turns of the items with its id.
    pub(super) fn add_turns(&mut self, run: OpenVisit, end: TraceNs, sink: &mut impl Sink) {
        let Some(marked) = &mut self.marked else {
            return;
        };
        for samples in marked.add(&run, end) {
            self.held -= samples.len();
            if !samples.is_empty() {
                sink.strays(samples.samples(), run.pid, run.tid);
            }
        }
        self.pool.push(run);
    }

    /// Closes the items that have ended and that no thread may still be at, of a process or of all. All records up to
    /// then were handled.
    pub(super) fn close_ended(&mut self, of: Option<Pid>, sink: &mut impl Sink) {
        let Some(marked) = self.marked.as_mut().filter(|it| !it.ended.is_empty()) else {
            return;
        };
        let runs = self.runs.as_ref();
        let ended = marked.take_ended(of, |key, end| runs.is_some_and(|it| it.may_be_at(key, end)));
        self.close_items(ended, sink);
    }

    /// Closes all items, whose end will not be seen.
    pub(super) fn pause_items(&mut self, at: TraceNs, sink: &mut impl Sink) {
        if let Some(marked) = &mut self.marked {
            let items = std::mem::take(marked);
            self.close_all(items, visit_flag::END_MISSING, at, sink);
        }
    }

    /// Closes all items at the end of the trace.
    pub(super) fn finish_items(&mut self, end: TraceNs, sink: &mut impl Sink) {
        if let Some(items) = self.marked.take() {
            self.close_all(items, visit_flag::OPEN_AT_END, end, sink);
        }
    }

    /// Closes items; those without an end get the flag.
    fn close_all(&mut self, marked: Marked, flag: u32, at: TraceNs, sink: &mut impl Sink) {
        let mut items: Vec<Item> = marked.items.into_values().flatten().collect();
        items.sort_by_key(|it| (it.visit.begin, it.visit.item_id));
        for item in &mut items {
            if item.end.is_none() {
                item.visit.flags |= flag;
            }
        }
        for item in items {
            let known = item.end;
            let seen = known.map_or(at, |it| it.0);
            let visit = item.whole();
            self.close(visit, known, seen, sink);
        }
    }

    fn close_items(&mut self, items: Vec<Item>, sink: &mut impl Sink) {
        for item in items {
            if let Some(end) = item.end {
                let visit = item.whole();
                self.close(visit, Some(end), end.0, sink);
            }
        }
    }

    /// Ends the items of a process.
    pub(super) fn end_items(&mut self, pid: Pid, time: TraceNs) {
        if let Some(marked) = &mut self.marked {
            marked.end_all(pid, time);
        }
    }
}
