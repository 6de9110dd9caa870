//! The items of a trace, with their times, arguments and counts.
//!
//! An item is a visit, unless [`Unit::Item`] is asked for or follows from the probes: then it is all visits with the
//! same item id, from the first begin to the last end; of several probes, which are stages, as described in
//! [`stages`](crate::compare::stages). A visit of another probe nested in a visit of a call on the same thread is part
//! of it: its functions and waits count for the outer visit as well. A visit that serves several items counts for each
//! of them by its share ([`batches`](crate::compare::batches)).
//!
//! Memory: about 120 bytes an item and 5 to 17 for each argument, whatever the number of samples.

mod nesting;
mod passages;
mod reading;

use rustc_hash::FxHashMap;

use super::columns::ArgumentColumns;
use super::interrupts_and_faults::Times;
use super::model::LeftOut;
use crate::compare::batches::Share;
use crate::compare::classes::{Rank, RankBy, Ranks};
use crate::compare::explain::keys::Key;
use crate::compare::explain::request::Unit;
use crate::compare::pool::OwnError;
use crate::store::run::RecordedSpec;
use crate::store::schema::visit_flag;
use pebs_stats::blocks::block_of;

/// No item, where the index of one is expected.
pub(crate) const NONE: u32 = u32::MAX;

/// Visits of a page of [`Places`].
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Item {
    /// Its (first) visit.
    pub visit_id: u64,
    pub item_id: u64,
    /// Begin on the trace clock.
    pub begin_ns: i64,
    /// From begin to end.
    pub latency_ns: i64,
    /// pebs-trace's own time in it, as far as known, ns.
    pub own_ns: i64,
    /// Time on the CPU, nested visits included, without pebs-trace's own, ns; the latency if switches were not
    /// recorded; `None` if unknown.
    pub active_ns: Option<i64>,
    /// Time in which its threads slept between their turns to it, ns; 0 if unknown.
    pub idle_ns: i64,
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
    /// Interrupts, softirqs and page faults of its threads.
    pub interference: Times,
}

impl Item {
    /// Whether its functions and waits are known.
    pub(crate) const fn has_details(&self) -> bool {
        self.active_ns.is_some() && self.flags & visit_flag::CONDENSED == 0
    }

    pub(crate) fn rank(&self) -> Rank {
        Rank {
            ns: self.net_ns(),
            own_ns: self.own_ns,
            samples: self.samples,
        }
    }

    /// From begin to end without pebs-trace's own time, ns.
    pub(crate) fn net_ns(&self) -> i64 {
        (self.latency_ns - self.own_ns).max(0)
    }

    /// End on the trace clock.
    pub(crate) const fn end_ns(&self) -> i64 {
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
pub(crate) struct ProbeItems {
    /// Numbers of its probes.
    pub probe_ids: Vec<u16>,
    /// SPECs as typed; empty if `trace.json` doesn't know the probe.
    pub specs: Vec<RecordedSpec>,
    /// Whether samples beat with them.
    pub beats: bool,
    /// Errors of pebs-trace's own time in them: marks of one visit of each probe.
    pub own_error: OwnError,
    /// Visits recorded.
    pub visits: u64,
    /// Visits left out.
    pub left_out: LeftOut,
}

/// All items that are counted.
#[derive(Debug)]
pub(crate) struct Items {
    /// Unit of an item.
    pub unit: Unit,
    /// Meaning of latencies: durations, unless [`Items::take_cpu_time`] was called.
    pub by: RankBy,
    pub probes: Vec<ProbeItems>,
    /// Empty ranks for these items.
    pub ranks: Ranks,
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
    /// Length of a stretch ([`crate::store::run::RunInfo::stretch_ns`]).
    stretch_ns: Option<i64>,
    /// Items that were served together with another: that one.
    together: FxHashMap<u32, u32>,
    /// Waiting between stages, and for other items in one: item, kind, and ns.
    pub handovers: Vec<(u32, Key, i64)>,
}

impl Items {
    /// The items that a visit's details count for, with their shares: its own, and those that it is nested in; or those
    /// that it serves together.
    pub(crate) fn of_visit(&self, visit_id: u64) -> impl Iterator<Item = (u32, Share)> + '_ {
        let own = self.places.get(visit_id);
        let up = |item: &u32| Some(self.parents[*item as usize]).filter(|it| *it != NONE);
        let alone = std::iter::successors((own != NONE).then_some(own), up);
        let shared = self.shared.get(&visit_id).into_iter().flatten().copied();
        shared.chain(alone.map(|item| (item, Share::WHOLE)))
    }

    /// The items that a visit serves together, with their shares, where these are not the items themselves.
    pub(crate) fn served(&self, visit_id: u64) -> &[(u32, Share)] {
        self.shared.get(&visit_id).map_or(&[], Vec::as_slice)
    }

    /// Makes the time on the CPU of each item its latency, without waits.
    pub(crate) fn take_cpu_time(&mut self) {
        self.by = RankBy::CpuTime;
        self.handovers.clear();
        for item in &mut self.all {
            if let Some(active) = item.active_ns {
                item.latency_ns = active + item.own_ns;
                item.idle_ns = 0;
            }
        }
    }

    /// Whether the latency of an item is known.
    pub(crate) fn has_latency(&self, item: &Item) -> bool {
        self.by == RankBy::Duration || item.active_ns.is_some()
    }

    /// Whether a visit belongs to the item itself, not to one nested in it.
    pub(crate) fn is_own(&self, visit_id: u64, item: u32) -> bool {
        self.shared.contains_key(&visit_id) || self.places.get(visit_id) == item
    }

    /// The block in which an item is drawn by a bootstrap. Items served together vary together and share a block, and so
    /// do items of the same stretch of time, in which the distances between samples are one draw.
    pub(crate) fn block_of(&self, item: u32) -> usize {
        let first = self.drawn_with(item);
        let begin = self.all.get(first as usize).map(|it| it.begin_ns);
        match (self.stretch_ns, begin) {
            (Some(stretch), Some(begin)) => block_of((begin / stretch) as u32),
            _ => block_of(first),
        }
    }

    /// The item with which this one was served, or itself.
    fn drawn_with(&self, item: u32) -> u32 {
        self.together.get(&item).copied().unwrap_or(item)
    }

    /// Divides the items of each probe into periods of equally many items, in order of their begin.
    pub(crate) fn divide(&mut self, periods: usize) {
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
    pub(crate) fn period(&self, item: u32) -> u8 {
        self.periods.get(item as usize).copied().unwrap_or(0)
    }
}
