//! Visits, open and closed.

use std::ops::{AddAssign, Deref, DerefMut};

use pebs_common::record::Role;

use super::counts::EventCounts;
use super::interrupts_and_faults::{ExtraRecords, InterruptionTimes};
use super::{Batch, CorrelateOptions};
use crate::store::schema::{ArgValue, InterferenceColumns, visit_flag};
use crate::stream::decode::Actor;
use crate::stream::sample::SamplesBy;
use crate::stream::samples::{SampleBuf, Samples};
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, Ip, Pid, ProbeId, Tid, TraceNs};

/// State of a thread that is off the CPU but could run.
pub const RUNNABLE: &str = "runnable";

/// State of a goroutine that no thread runs: it waits for something, or for its turn.
pub const PARKED: &str = "parked";

/// An interval that the thread spent off the CPU, or the goroutine on no thread, while the visit was current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawWait {
    /// Time of the switch-out.
    pub begin: TraceNs,
    /// Time of the switch-in, or the end of the visit.
    pub end: TraceNs,
    /// The thread; of a goroutine the one that took it up.
    pub tid: Tid,
    /// Instruction pointer where the thread left user space.
    pub ip: Option<Ip>,
    /// Of a goroutine: the address to which the function at `ip` returns.
    pub caller: Option<Ip>,
    /// Thread state in words: "runnable", "sleeping", "uninterruptible", "blocked", "stopped" or "dead"; or "parked",
    /// of a goroutine.
    pub state: &'static str,
    /// CPU that it left.
    pub from: Cpu,
    /// CPU that it came back on.
    pub to: Cpu,
    /// Time of the wake-up, and the waker (`None`: an interrupt). `None` if not recorded, or if the thread was not
    /// asleep.
    pub woken: Option<(TraceNs, Option<Actor>)>,
    /// Thread that took the CPU, if this one was preempted and that was recorded.
    pub displaced: Option<Actor>,
    /// Call stack at which it left the CPU, if recorded.
    pub stack: StackKey,
}

impl RawWait {
    /// Time in which it could run but did not get a CPU, ns; `None` if unknown.
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

/// Counts of a thread while the visit was its current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of switch-outs.
    pub switches: u32,
    /// Number of switch-ins on another CPU.
    pub migrations: u32,
    /// Number of page faults.
    pub page_faults: u32,
    /// Numbers of the other interruptions.
    pub extras: ExtraRecords,
    /// While the visit is open: time that its thread had slept before it began, ns. Once closed: time that the
    /// thread slept during the visit but not as a wait of it, ns.
    pub idle_ns: i64,
}

/// Time that a mark takes from its thread, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkTime {
    /// Up to the reading of the mark's time.
    pub before_ns: u64,
    /// After the reading of the mark's time.
    pub after_ns: u64,
}

/// The same for the marks of a probe, by [`Role`] and whether the instruction is single-stepped: those of one role may be at
/// several places, which take different times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkTimes([[MarkTime; 2]; 4]);

impl MarkTimes {
    #[must_use]
    pub const fn of(&self, role: Role, stepped: bool) -> MarkTime {
        self.0[role as usize][stepped as usize]
    }

    pub const fn set(&mut self, role: Role, stepped: bool, time: MarkTime) {
        self.0[role as usize][stepped as usize] = time;
    }

    /// Largest part of its own two marks that a visit can have within it, ns: the begin mark's time after its own time,
    /// and the end mark's before.
    pub(crate) fn ends(&self) -> Vec<(u64, u64)> {
        let of = |roles: &[Role], ns: fn(&MarkTime) -> u64| -> Vec<u64> {
            let of_role = roles.iter().flat_map(|role| &self.0[*role as usize]);
            let known: Vec<u64> = of_role.map(ns).filter(|ns| *ns > 0).collect();
            if known.is_empty() { vec![0] } else { known }
        };
        let begins = of(&[Role::Begin, Role::Next], |it| it.after_ns);
        let ends = of(&[Role::End, Role::Return, Role::Next], |it| it.before_ns);
        let all = begins
            .iter()
            .flat_map(|begin| ends.iter().map(move |end| (*begin, *end)));
        all.collect()
    }
}

/// Own time and records on a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnWork {
    /// Time of marks as they are right after another, ns.
    pub marks_ns: u64,
    /// Time that they took longer, ns.
    pub cold_ns: i64,
    pub samples: u64,
    /// Number of switch-outs.
    pub switches: u64,
    /// Number of page faults counted.
    pub page_faults: u64,
    /// Numbers of the other interruptions.
    pub extras: ExtraRecords,
}

impl OwnWork {
    /// Difference to an earlier state.
    #[inline]
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            marks_ns: self.marks_ns - before.marks_ns,
            cold_ns: self.cold_ns - before.cold_ns,
            samples: self.samples - before.samples,
            switches: self.switches - before.switches,
            page_faults: self.page_faults - before.page_faults,
            extras: self.extras.since(&before.extras),
        }
    }
}

impl AddAssign for OwnWork {
    #[inline]
    fn add_assign(&mut self, more: Self) {
        self.marks_ns += more.marks_ns;
        self.cold_ns += more.cold_ns;
        self.samples += more.samples;
        self.switches += more.switches;
        self.page_faults += more.page_faults;
        self.extras += more.extras;
    }
}

/// Up to where own work was counted for a visit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnCounted {
    pub own: OwnWork,
    /// Number of times that the thread had gone to sleep.
    pub sleeps: u64,
}

/// Time that was shared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spells {
    /// On the CPU, ns.
    pub ns: i64,
    /// Number of times that shared time began.
    pub count: u64,
}

/// Sums of the visits that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenLoad {
    /// Time on the CPU, ns.
    pub oncpu_ns: i64,
    /// Samples held.
    pub samples: SamplesBy,
    pub page_faults: u64,
    /// Numbers of the other interruptions.
    pub extras: ExtraRecords,
}

/// An open visit. Boxed, because it moves from the pool to its thread and back.
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

/// State of a visit.
#[derive(Debug)]
pub(super) struct VisitState {
    pub probe: ProbeId,
    pub pid: Pid,
    pub tid: Tid,
    pub item_id: u64,
    /// Id of the begin mark, for matching.
    pub id: Option<u64>,
    /// Whether its end is matched by id: the thread may do other things meanwhile.
    pub by_id: bool,
    /// The goroutine with which it moves from thread to thread; 0: it stays on its thread.
    pub goroutine: u64,
    /// The threads on which it went on, each with the number of samples before that.
    pub threads: Vec<(usize, Tid)>,
    /// Number among the visits of its thread.
    pub number: u64,
    /// While the visit is open: the thread's shared time when it began. Once closed: the shared time since then. See
    /// [`super::turns`].
    pub shared: Spells,
    pub begin: TraceNs,
    pub cpu: Cpu,
    pub sp: u64,
    pub flags: u32,
    pub counts: Counts,
    pub taken: InterruptionTimes,
    /// Own work during it, up to `counted`.
    pub own: OwnWork,
    /// Up to where its thread's own work was counted.
    pub counted: OwnCounted,
    pub args: Vec<Option<ArgValue>>,
    /// The items, if it serves several.
    pub batch: Batch,
    /// Intervals on the CPU as the current visit.
    pub active: Vec<(TraceNs, TraceNs)>,
    /// Begin of the open interval.
    pub active_since: Option<TraceNs>,
    pub samples: SampleBuf,
    pub waits: Vec<RawWait>,
    /// Time that its thread slept while it was current, ns.
    pub slept_ns: i64,
    /// Number of waits within marks as the current visit, and their time, ns.
    pub mark_waits: (u32, i64),
    /// Event counts while it was current.
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
            goroutine: 0,
            threads: Vec::new(),
            number: 0,
            shared: Spells::default(),
            begin: TraceNs(0),
            cpu: Cpu(0),
            sp: 0,
            flags: 0,
            counts: Counts::default(),
            taken: InterruptionTimes::default(),
            own: OwnWork::default(),
            counted: OwnCounted::default(),
            args: Vec::new(),
            batch: Batch::default(),
            active: Vec::new(),
            active_since: None,
            samples: SampleBuf::default(),
            waits: Vec::new(),
            slept_ns: 0,
            mark_waits: (0, 0),
            events: EventCounts::default(),
        }
    }
}

impl VisitState {
    /// Resets a used visit, keeping its buffers.
    pub(super) fn reset(
        &mut self,
        probe: ProbeId,
        item_id: u64,
        begin: TraceNs,
        cpu: Cpu,
        sp: u64,
    ) {
        self.probe = probe;
        self.item_id = item_id;
        self.begin = begin;
        self.cpu = cpu;
        self.sp = sp;
        self.id = None;
        self.by_id = false;
        self.goroutine = 0;
        self.threads.clear();
        self.own = OwnWork::default();
        self.slept_ns = 0;
        self.shared = Spells::default();
        self.flags = 0;
        self.counts = Counts::default();
        self.taken = InterruptionTimes::default();
        self.active_since = None;
        self.args.clear();
        self.batch.clear();
        self.active.clear();
        self.samples.clear();
        self.waits.clear();
        self.mark_waits = (0, 0);
    }

    /// Returns the visit as it is handed on.
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
            threads: &self.threads,
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

    /// Time on the CPU as the current visit up to `until`, ns.
    pub(super) fn active_ns(&self, until: TraceNs) -> i64 {
        let since = self.active_since.filter(|since| *since < until);
        let past = self.active.iter().map(|(begin, end)| end.0 - begin.0);
        past.sum::<i64>() + since.map_or(0, |since| until.0 - since.0)
    }

    /// Adds a wait of its thread.
    pub(super) fn waited(&mut self, wait: RawWait) {
        if wait.state != RUNNABLE {
            self.slept_ns += wait.end.0 - wait.begin.0;
        }
        self.waits.push(wait);
    }

    /// The thread that it is on, or was on last.
    pub(super) fn thread(&self) -> Tid {
        self.threads.last().map_or(self.tid, |(_, tid)| *tid)
    }

    /// Goes on on a thread.
    pub(super) fn goes_on(&mut self, tid: Tid) {
        if self.thread() != tid {
            self.threads.push((self.samples.len(), tid));
        }
    }

    /// Closes the open interval at `time`.
    pub(super) fn pause(&mut self, time: TraceNs) {
        if let Some(since) = self.active_since.take()
            && since < time
        {
            self.active.push((since, time));
        }
    }
}

/// A closed visit, as handed to the sink.
#[derive(Clone, Copy, Debug)]
pub struct ClosedVisit<'a> {
    /// Number from 1, in order of closing on its thread.
    pub visit_id: u64,
    pub item_id: u64,
    pub probe: ProbeId,
    pub pid: Pid,
    /// The thread of its begin mark.
    pub tid: Tid,
    /// The threads on which it went on (of a goroutine), each with the number of samples before that.
    pub threads: &'a [(usize, Tid)],
    pub begin: (TraceNs, Cpu),
    /// End, and the CPU of the end mark if there was one; `None` if the trace ended first.
    pub end: Option<(TraceNs, Option<Cpu>)>,
    /// See [`crate::store::schema::visit_flag`].
    pub flags: u32,
    /// Named arguments, one per column.
    pub args: &'a [Option<ArgValue>],
    /// The items, with [`crate::store::schema::visit_flag::SHARED`].
    pub batch: &'a Batch,
    /// Intervals on the CPU as the thread's current visit: sorted, disjoint, half-open. Without switches: intervals
    /// as the current visit.
    pub active: &'a [(TraceNs, TraceNs)],
    /// Part of the thread's shared time during the visit, ns; measured like `active`.
    pub shared_ns: i64,
    /// Whether switches were recorded, so that `active` is time on the CPU.
    pub switches: bool,
    /// Whether page faults were recorded.
    pub page_faults: bool,
    /// Counts of the thread, as far as recorded.
    pub counts: Counts,
    /// Interrupt, softirq and page-fault time of the thread, as far as recorded.
    pub interference: InterferenceColumns,
    /// Own work on the thread from begin to end, including marks and samples of other visits.
    pub own: OwnWork,
    /// Samples, in time order.
    pub samples: Samples<'a>,
    /// Intervals off the CPU, in time order.
    pub waits: &'a [RawWait],
    /// Number of waits within marks, which are not in `waits`, and their time, ns.
    pub mark_waits: (u32, i64),
    /// Event counts while it was current.
    pub events: &'a EventCounts,
}

impl ClosedVisit<'_> {
    /// Time on the CPU as the current visit, ns; `None` if unknown.
    #[must_use]
    pub fn oncpu_ns(&self) -> Option<i64> {
        self.least_oncpu_ns().filter(|_| self.owns_all())
    }

    /// Time on the CPU that is certainly the visit's, including waits within marks, ns; `None` if unknown.
    #[must_use]
    pub fn least_oncpu_ns(&self) -> Option<i64> {
        let active = self.active.iter().map(|(begin, end)| end.0 - begin.0);
        (self.switches && self.end.is_some()).then(|| active.sum::<i64>() + self.mark_waits.1)
    }

    /// Whether the visit shared no time with others.
    #[must_use]
    pub const fn owns_all(&self) -> bool {
        self.flags & visit_flag::TIME_SHARED == 0
    }

    /// The thread's shared time on the CPU during the visit, ns; `None` if unknown.
    #[must_use]
    pub fn shared_ns(&self) -> Option<i64> {
        (self.switches && self.end.is_some()).then_some(self.shared_ns)
    }

    /// Time that its thread slept while no visit or another one was current, ns; `None` if unknown.
    #[must_use]
    pub fn idle_ns(&self) -> Option<i64> {
        let known = self.switches && self.end.is_some() && self.owns_all();
        known.then_some(self.counts.idle_ns)
    }

    /// Number of switch-outs while the visit was current; `None` if unknown.
    #[must_use]
    pub fn switches(&self) -> Option<u32> {
        self.switches.then_some(self.counts.switches)
    }

    /// Number of switch-ins on another CPU; `None` if unknown.
    #[must_use]
    pub fn migrations(&self) -> Option<u32> {
        let known = self.switches && self.begin.1 != Cpu::UNKNOWN;
        known.then_some(self.counts.migrations)
    }

    /// Page faults while the visit was current; `None` if unknown.
    #[must_use]
    pub fn page_faults(&self) -> Option<u32> {
        self.page_faults.then_some(self.counts.page_faults)
    }
}
