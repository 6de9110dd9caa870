//! Visits while they are open, and as they come out.

use std::ops::{Deref, DerefMut};

use super::counts::EventCounts;
use super::interrupts_and_faults::{ExtraRecords, Taken};
use super::turns::Spells;
use super::{Batch, CorrelateOptions};
use crate::store::schema::{ArgValue, InterferenceColumns, visit_flag};
use crate::stream::decode::Actor;
use crate::stream::samples::{SampleBuf, Samples};
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, Ip, Pid, ProbeId, Tid, TraceNs};

/// State of a thread off the CPU that could have gone on.
pub(super) const RUNNABLE: &str = "runnable";

/// An interval that the thread spent off the CPU while the visit was current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawWait {
    /// Switched out.
    pub begin: TraceNs,
    /// Switched in, or the end of the visit.
    pub end: TraceNs,
    /// Where the thread left user space.
    pub ip: Option<Ip>,
    /// Why: the wire's state in words.
    pub state: &'static str,
    /// CPU it left.
    pub from: Cpu,
    /// CPU it came back on.
    pub to: Cpu,
    /// When it was woken, and by whom; no thread: by an interrupt. `None`: not recorded, or it was not asleep.
    pub woken: Option<(TraceNs, Option<Actor>)>,
    /// Who took the CPU from it, if it could have gone on and that was recorded.
    pub displaced: Option<Actor>,
    /// The call stack at which it went to wait, if that was recorded.
    pub stack: StackKey,
}

impl RawWait {
    /// How long it could have run but did not get a CPU, ns; `None` if that is unknown.
    #[must_use]
    pub fn runnable_ns(&self) -> Option<i64> {
        let since = match (self.woken, self.state) {
            (_, RUNNABLE) => self.begin,
            (Some((woken, _)), _) => woken.max(self.begin),
            (None, _) => return None,
        };
        Some((self.end.0 - since.0).max(0))
    }
}

/// What happened to a visit's thread while the visit was its current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that it left the CPU.
    pub switches: u32,
    /// Times that it came back on another CPU.
    pub migrations: u32,
    /// Page faults that it took.
    pub page_faults: u32,
    /// What was recorded of it beside.
    pub extras: ExtraRecords,
    /// While the visit is open how long its thread had slept when it began; then how long it slept meanwhile without
    /// this being a wait of the visit, ns.
    pub idle_ns: i64,
}

/// What pebs-trace did on a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnWork {
    /// Time of marks, ns.
    pub marks_ns: u64,
    pub samples: u64,
    /// Times that the thread left the CPU.
    pub switches: u64,
    /// Page faults that were counted.
    pub page_faults: u64,
    /// What was recorded beside.
    pub extras: ExtraRecords,
}

impl OwnWork {
    /// What was done since there was only this.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            marks_ns: self.marks_ns - before.marks_ns,
            samples: self.samples - before.samples,
            switches: self.switches - before.switches,
            page_faults: self.page_faults - before.page_faults,
            extras: self.extras.since(&before.extras),
        }
    }
}

/// Time that a mark takes of its thread, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkTime {
    /// Until its time is read.
    pub before_ns: u64,
    /// From there on.
    pub after_ns: u64,
}

/// What happened within the visits that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenLoad {
    /// Time on the CPU, ns.
    pub oncpu_ns: i64,
    /// Samples held.
    pub samples: u64,
    pub page_faults: u64,
    /// What was recorded beside.
    pub extras: ExtraRecords,
}

/// A visit that has begun. Boxed, as it moves from the pool to its thread and back.
#[derive(Debug, Default)]
pub(super) struct OpenVisit(Box<VisitState>);

impl Deref for OpenVisit {
    type Target = VisitState;

    fn deref(&self) -> &VisitState {
        &self.0
    }
}

impl DerefMut for OpenVisit {
    fn deref_mut(&mut self) -> &mut VisitState {
        &mut self.0
    }
}

/// What is known of a visit that has begun.
#[derive(Debug)]
pub(super) struct VisitState {
    pub probe: ProbeId,
    pub pid: Pid,
    pub tid: Tid,
    pub item_id: u64,
    /// Id of the begin mark, for matching.
    pub id: Option<u64>,
    /// Its end is matched by id: the thread may do other things meanwhile.
    pub by_id: bool,
    /// Its number among those of its thread.
    pub number: u64,
    /// What the thread had shared when it began; time shared since then once it closed. See [`super::turns`].
    pub shared: Spells,
    pub begin: TraceNs,
    pub cpu: Cpu,
    pub sp: u64,
    pub flags: u32,
    pub counts: Counts,
    pub taken: Taken,
    /// While it is open what pebs-trace had done on its thread before; then what it did meanwhile.
    pub own: OwnWork,
    pub args: Vec<Option<ArgValue>>,
    /// The items, if there are several.
    pub batch: Batch,
    /// Intervals on the CPU as the current visit.
    pub active: Vec<(TraceNs, TraceNs)>,
    /// Begin of the interval that is open.
    pub active_since: Option<TraceNs>,
    pub samples: SampleBuf,
    pub waits: Vec<RawWait>,
    /// Waits within marks as the current visit, and their time, ns.
    pub mark_waits: (u32, i64),
    /// What was counted while it was current.
    pub events: EventCounts,
}

impl Default for VisitState {
    fn default() -> Self {
        Self {
            probe: ProbeId(0),
            pid: Pid(0),
            tid: Tid(0),
            item_id: 0,
            id: None,
            by_id: false,
            number: 0,
            shared: Spells::default(),
            begin: TraceNs(0),
            cpu: Cpu(0),
            sp: 0,
            flags: 0,
            counts: Counts::default(),
            taken: Taken::default(),
            own: OwnWork::default(),
            args: Vec::new(),
            batch: Batch::default(),
            active: Vec::new(),
            active_since: None,
            samples: SampleBuf::default(),
            waits: Vec::new(),
            mark_waits: (0, 0),
            events: EventCounts::default(),
        }
    }
}

impl VisitState {
    /// Makes a used visit new, keeping its buffers.
    pub(super) fn reset(
        &mut self,
        probe: ProbeId,
        item_id: u64,
        (begin, cpu): (TraceNs, Cpu),
        sp: u64,
    ) {
        self.probe = probe;
        self.item_id = item_id;
        self.begin = begin;
        self.cpu = cpu;
        self.sp = sp;
        self.id = None;
        self.by_id = false;
        self.shared = Spells::default();
        self.flags = 0;
        self.counts = Counts::default();
        self.taken = Taken::default();
        self.active_since = None;
        self.args.clear();
        self.batch.clear();
        self.active.clear();
        self.samples.clear();
        self.waits.clear();
        self.mark_waits = (0, 0);
    }

    /// The visit as it comes out.
    pub(super) fn closed(
        &self,
        visit_id: u64,
        end: Option<(TraceNs, Option<Cpu>)>,
        recorded: CorrelateOptions,
    ) -> ClosedVisit<'_> {
        ClosedVisit {
            visit_id,
            item_id: self.item_id,
            probe: self.probe,
            pid: self.pid,
            tid: self.tid,
            begin: (self.begin, self.cpu),
            end,
            flags: self.flags,
            args: &self.args,
            batch: &self.batch,
            active: &self.active,
            shared_ns: self.shared.ns,
            switches: recorded.switches,
            page_faults: recorded.page_faults,
            counts: self.counts,
            interference: self.taken.columns(recorded.interference),
            own: self.own,
            samples: self.samples.samples(),
            waits: &self.waits,
            mark_waits: self.mark_waits,
            events: &self.events,
        }
    }

    /// Time on the CPU as the current visit up to an instant, ns.
    pub(super) fn active_ns(&self, until: TraceNs) -> i64 {
        let since = self.active_since.filter(|since| *since < until);
        let past = self.active.iter().map(|(begin, end)| end.0 - begin.0);
        past.sum::<i64>() + since.map_or(0, |since| until.0 - since.0)
    }

    /// How long its thread slept as its current visit, ns.
    pub(super) fn slept_ns(&self) -> i64 {
        let waits = self.waits.iter().filter(|wait| wait.state != RUNNABLE);
        waits.map(|wait| wait.end.0 - wait.begin.0).sum()
    }

    /// The visit stops being active at `time`.
    pub(super) fn pause(&mut self, time: TraceNs) {
        if let Some(since) = self.active_since.take()
            && since < time
        {
            self.active.push((since, time));
        }
    }
}

/// A visit as it comes out of the correlator.
#[derive(Clone, Copy, Debug)]
pub struct ClosedVisit<'a> {
    /// Number, from 1, in order of closing on its thread.
    pub visit_id: u64,
    pub item_id: u64,
    pub probe: ProbeId,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    pub begin: (TraceNs, Cpu),
    /// End, and the CPU of the end mark if there was one; `None` if the trace ended first.
    pub end: Option<(TraceNs, Option<Cpu>)>,
    /// [`crate::store::schema::visit_flag`].
    pub flags: u32,
    /// Named arguments, one per column.
    pub args: &'a [Option<ArgValue>],
    /// The items, with [`crate::store::schema::visit_flag::SHARED`].
    pub batch: &'a Batch,
    /// Intervals on the CPU as the thread's current visit: sorted, disjoint, half-open. Without
    /// switches: as the current visit.
    pub active: &'a [(TraceNs, TraceNs)],
    /// Time, as `active`, of the thread meanwhile that is of no single item, ns.
    pub shared_ns: i64,
    /// Whether `active` is time on the CPU.
    pub switches: bool,
    /// Whether page faults were recorded.
    pub page_faults: bool,
    /// What happened to the thread, as far as recorded.
    pub counts: Counts,
    /// Interrupts, softirqs and page faults of the thread, as far as recorded.
    pub interference: InterferenceColumns,
    /// What pebs-trace did on the thread from begin to end, other visits' marks and samples included.
    pub own: OwnWork,
    /// Samples, in time order.
    pub samples: Samples<'a>,
    /// Intervals off the CPU, in time order.
    pub waits: &'a [RawWait],
    /// Waits within marks, which are none of its own, and their time, ns.
    pub mark_waits: (u32, i64),
    /// What was counted while it was current.
    pub events: &'a EventCounts,
}

impl ClosedVisit<'_> {
    /// Time on the CPU as the current visit, ns; `None` if unknown.
    #[must_use]
    pub fn oncpu_ns(&self) -> Option<i64> {
        self.least_oncpu_ns().filter(|_| self.owns_all())
    }

    /// Time on the CPU that is known to be the visit's, waits within marks included, ns; `None` if unknown.
    #[must_use]
    pub fn least_oncpu_ns(&self) -> Option<i64> {
        let active = self.active.iter().map(|(begin, end)| end.0 - begin.0);
        (self.switches && self.end.is_some()).then(|| active.sum::<i64>() + self.mark_waits.1)
    }

    /// Whether all of its time is known to be its own: it shared none.
    #[must_use]
    pub const fn owns_all(&self) -> bool {
        self.flags & visit_flag::TIME_SHARED == 0
    }

    /// Time on the CPU of its thread meanwhile that is of no single item, ns; `None` if unknown.
    #[must_use]
    pub fn shared_ns(&self) -> Option<i64> {
        (self.switches && self.end.is_some()).then_some(self.shared_ns)
    }

    /// Time in which its thread slept while it was turned to no item, or to another one, ns; `None` if unknown.
    #[must_use]
    pub fn idle_ns(&self) -> Option<i64> {
        let known = self.switches && self.end.is_some() && self.owns_all();
        known.then_some(self.counts.idle_ns)
    }

    /// Times that the thread left the CPU while the visit was current; `None` if unknown.
    #[must_use]
    pub fn switches(&self) -> Option<u32> {
        self.switches.then_some(self.counts.switches)
    }

    /// Times that it came back on another CPU; `None` if unknown.
    #[must_use]
    pub fn migrations(&self) -> Option<u32> {
        let known = self.switches && self.begin.1 != Cpu::UNKNOWN;
        known.then_some(self.counts.migrations)
    }

    /// Page faults that it took while the visit was current; `None` if unknown.
    #[must_use]
    pub fn page_faults(&self) -> Option<u32> {
        self.page_faults.then_some(self.counts.page_faults)
    }
}
