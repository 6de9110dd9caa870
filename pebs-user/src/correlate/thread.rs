//! One thread: on or off the CPU, and its open visits.

use std::collections::VecDeque;

use pebs_common::record::Interference;

use super::ProbeRule;
use super::counts::Known;
use super::turns::{Owner, Turns};
use super::visit::{OpenVisit, OwnWork, RUNNABLE, RawWait};
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::stream::decode::{Actor, STATE_IN_MARK, STATE_UNKNOWN};
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, Ip, Pid, ProbeId, TraceNs};

/// Two stack pointers further apart than this are on different stacks (signal stacks, coroutines)
/// and say nothing about one another's frames. Threads' stacks are 8 MiB apart by default.
const STACK_SPAN: u64 = 1 << 20;

/// Calls of a thread that were taken for unwound and are remembered.
const MAX_UNWOUND: usize = 64;

/// Bytes of a return address.
pub(super) const RETURN_ADDRESS: u64 = 8;

/// Whether two stack pointers can be compared.
pub(super) const fn same_stack(a: u64, b: u64) -> bool {
    a.abs_diff(b) < STACK_SPAN
}

/// Number of leading `sps` that are still inside the frame entered at `sp`. See [`Thread::frames_gone`].
#[inline]
pub(super) fn inside_frame(sp: u64, sps: &[u64]) -> usize {
    // Of stack pointers above the return address and on the same stack.
    let first = sp.saturating_add(RETURN_ADDRESS + 1);
    let count = sp.saturating_add(STACK_SPAN).saturating_sub(first);
    let gone = |sp: &u64| sp.wrapping_sub(first) < count;
    // Nearly always none is: without an early end, and by the sign, several are compared at once. As `count` has no sign,
    // `distance < count` is the borrow of their difference.
    let borrow = |sp: &u64| {
        let distance = sp.wrapping_sub(first);
        !distance & distance.wrapping_sub(count)
    };
    let any = sps.iter().fold(0, |bits, sp| bits | borrow(sp));
    if any.cast_signed() < 0 {
        sps.iter().position(gone).unwrap_or(sps.len())
    } else {
        sps.len()
    }
}

/// How the thread left the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Off {
    ip: Option<Ip>,
    state: &'static str,
    runnable: bool,
    /// It waits within a mark: time of pebs-trace's own.
    in_mark: bool,
    woken: Option<(TraceNs, Option<Actor>)>,
    displaced: Option<Actor>,
    stack: StackKey,
}

impl Off {
    /// From the switch record's fields.
    ///
    /// Source: `TASK_*`, include/linux/sched.h.
    pub(super) fn new(ip: Option<Ip>, state: u32, preempted: bool) -> Self {
        let runnable = preempted || state & 0xff == 0;
        let in_mark = state == STATE_IN_MARK;
        let state = match state & 0xff {
            _ if runnable => RUNNABLE,
            _ if state == STATE_UNKNOWN => "blocked",
            s if s & 0x02 != 0 => "uninterruptible",
            s if s & 0x01 != 0 => "sleeping",
            s if s & 0x0c != 0 => "stopped",
            _ => "dead",
        };
        Self {
            ip,
            state,
            runnable,
            in_mark,
            woken: None,
            displaced: None,
            stack: StackKey::NONE,
        }
    }

    /// With the call stack at which it left.
    pub(super) const fn at(self, stack: StackKey) -> Self {
        Self { stack, ..self }
    }

    /// Whether it waits for something that another thread, a timer or the network does.
    fn sleeps(&self) -> bool {
        self.state == "sleeping"
    }

    /// Whether the thread could not have gone on, whatever it waits for but a mark.
    const fn is_asleep(&self) -> bool {
        !self.runnable && !self.in_mark
    }

    /// Whether the thread could have gone on.
    pub(super) const fn is_runnable(&self) -> bool {
        self.runnable
    }
}

#[derive(Debug)]
pub(super) struct Thread {
    pub pid: Pid,
    /// CPU that the thread was last seen on.
    pub cpu: Cpu,
    /// Open visits in the order of their begin marks.
    pub visits: Vec<OpenVisit>,
    /// Whose its time is: which of the visits is current.
    pub(super) turns: Turns,
    /// What pebs-trace did on it while it had open visits.
    pub own: OwnWork,
    /// Set while the thread is off the CPU: how, and since when it counts for the current visit.
    pub(super) off: Option<(Off, TraceNs)>,
    /// A wait of a visit ended where the thread was seen, without a switch-in event: see [`Thread::switch_out`].
    came_untold: bool,
    /// Stack pointers of the open visits, the highest first: what few of a deep recursion concern is found by them.
    sps: Vec<u64>,
    /// Calls that were taken for unwound last, oldest first: probe and stack pointer.
    unwound: VecDeque<(ProbeId, u64)>,
    /// A call returned that was taken for unwound: the thread has several stacks close to one another (fibers), so of
    /// a frame's place nothing follows for other frames.
    pub has_stacks: bool,
    /// Time off the CPU so far in which it could not have run, that within marks aside, ns; see [`Thread::slept_ns`].
    slept_ns: i64,
    /// Whether its counts are known up to now.
    pub(super) counts_known: Known,
    /// Who woke it last while it seemed to be on the CPU: see [`Thread::wake`].
    woken_early: Option<Option<Actor>>,
}

impl Thread {
    /// A thread with nothing open. `resumes`: whether it is marked when threads turn to items.
    pub(super) fn new(pid: Pid, cpu: Cpu, resumes: bool) -> Self {
        Self {
            pid,
            cpu,
            visits: Vec::new(),
            sps: Vec::new(),
            unwound: VecDeque::new(),
            has_stacks: false,
            turns: Turns::new(resumes),
            own: OwnWork::default(),
            off: None,
            came_untold: false,
            slept_ns: 0,
            counts_known: Known::default(),
            woken_early: None,
        }
    }

    /// A visit begins: the thread turns to it.
    ///
    /// The thread is on the CPU, even if the switch-in event is missing: time off the CPU so far is no wait of this
    /// visit.
    pub(super) fn open(&mut self, mut visit: OpenVisit, time: TraceNs) {
        self.on_cpu(time, visit.cpu);
        if let Some(before) = self.visits.last_mut() {
            // Where there are several, all but the last were flagged when the next one began.
            before.flags |= visit_flag::OVERLAPPED;
            visit.flags |= visit_flag::OVERLAPPED;
        }
        let at = self.sps.partition_point(|sp| *sp >= visit.sp);
        self.sps.insert(at, visit.sp);
        self.turns.begin(&mut visit, time);
        visit.counts.idle_ns = self.slept_ns(time);
        visit.own = self.own;
        self.visits.push(visit);
        self.turn(time);
    }

    /// Takes the visit at `index` out.
    pub(super) fn close_at(&mut self, index: usize, time: TraceNs) -> OpenVisit {
        if self.turns.owner == Owner::Visit(index) {
            self.leave(time);
        }
        let mut visit = self.visits.remove(index);
        let at = self.sps.partition_point(|sp| *sp > visit.sp);
        debug_assert_eq!(self.sps.get(at), Some(&visit.sp));
        self.sps.remove(at);
        visit.own = self.own.since(&visit.own);
        visit.counts.idle_ns = self.slept_ns(time) - visit.counts.idle_ns - visit.slept_ns();
        self.turns.end(&mut visit, index, time);
        self.turn(time);
        visit
    }

    /// How long it has slept, ns.
    fn slept_ns(&self, time: TraceNs) -> i64 {
        let since = self.off.as_ref().filter(|(off, _)| off.is_asleep());
        self.slept_ns + since.map_or(0, |(_, since)| (time.0 - since.0).max(0))
    }

    /// The visit that the thread's time belongs to.
    #[inline]
    pub(super) fn current(&mut self) -> Option<&mut OpenVisit> {
        match self.turns.owner {
            Owner::Visit(index) => self.visits.get_mut(index),
            Owner::Shared | Owner::Nobody => None,
        }
    }

    /// From now on the thread's time is whose the marks so far say.
    pub(super) fn turn(&mut self, time: TraceNs) {
        let owner = self.turns.choose(&self.visits);
        if owner == self.turns.owner {
            return;
        }
        self.leave(time);
        self.turns.set(owner);
        self.lack_counts();
        if self.off.is_none() {
            self.go_on(time);
        }
    }

    /// The thread's time is nobody's from now on.
    fn leave(&mut self, time: TraceNs) {
        self.lack_counts();
        self.settle_off(time, None);
        self.pause(time);
        self.turns.owner = Owner::Nobody;
    }

    /// Time on the CPU ends for whom it belongs to.
    fn pause(&mut self, time: TraceNs) {
        self.turns.pause(time);
        if let Some(current) = self.current() {
            current.pause(time);
        }
    }

    /// Time on the CPU begins for whom it belongs to.
    fn go_on(&mut self, time: TraceNs) {
        self.turns.go_on(time);
        if let Some(current) = self.current() {
            // Of a resume the thread may leave it somewhat before its mark.
            current.active_since = Some(time.max(current.begin));
        }
    }

    /// Whether an open visit has a stack pointer that shows it gone where a call begins at `sp`. O(log n).
    #[inline]
    pub(super) fn may_be_overwritten(&self, sp: u64) -> bool {
        let first = self.sps.partition_point(|other| *other > sp);
        self.sps
            .get(first)
            .is_some_and(|other| same_stack(*other, sp))
    }

    /// Remembers a call that was taken for unwound.
    pub(super) fn remember_unwound(&mut self, probe: ProbeId, sp: u64) {
        if self.unwound.len() == MAX_UNWOUND {
            self.unwound.pop_front();
        }
        self.unwound.push_back((probe, sp));
    }

    /// A call returned that is not open: whether it was taken for unwound, so that the thread has several stacks.
    pub(super) fn learn_of_stacks(&mut self, probe: ProbeId, sp: u64) {
        self.has_stacks |= self.unwound.contains(&(probe, sp));
    }

    /// Takes the current visit out.
    pub(super) fn close_last(&mut self, time: TraceNs) -> Option<OpenVisit> {
        let last = self.visits.len().checked_sub(1)?;
        Some(self.close_at(last, time))
    }

    /// The thread leaves the CPU. Returns whether its switch-in event is missing, in a visit. A switch
    /// that comes behind a sample by an error of the clock counts as seen.
    pub(super) fn switch_out(&mut self, time: TraceNs, cpu: Cpu, off: Off) -> bool {
        if self.off.is_some() {
            self.on_cpu(time, cpu);
        }
        let untold = std::mem::take(&mut self.came_untold);
        self.counts_end();
        self.cpu = self.place(cpu);
        if off.sleeps() && self.turns.sleep() {
            self.turn(time);
        }
        self.pause(time);
        self.off = Some((off, time));
        self.counts_begin();
        if let Some(current) = self.current() {
            current.counts.switches += 1;
        }
        self.own.switches += 1;
        if off.runnable {
            self.visits
                .iter_mut()
                .for_each(|visit| visit.flags |= visit_flag::PREEMPTED);
        }
        untold
    }

    /// The thread was woken: if several try, by the first.
    ///
    /// Another CPU can wake it before its switch is recorded, but after the scheduler has found it asleep. That is the
    /// last wake-up before the switch: where one came earlier, the thread did not sleep.
    /// Source: `__schedule`, `try_to_wake_up`, kernel/sched/core.c.
    pub(super) fn wake(&mut self, time: TraceNs, by: Option<Actor>) {
        self.encountered();
        match &mut self.off {
            None => self.woken_early = Some(by),
            Some((off, _)) if !off.runnable => {
                off.woken.get_or_insert((time, by));
            }
            Some(_) => {}
        }
    }

    /// Another thread took the CPU from it.
    pub(super) fn displace(&mut self, by: Actor) {
        self.encountered();
        if let Some((off, _)) = &mut self.off {
            off.displaced = Some(by);
        }
    }

    /// An interval of counts ended, and the thread was counted up to now.
    pub(super) fn ticked(&mut self) {
        if let Some(current) = self.current() {
            current.counts.extras.ticks += 1;
        }
        self.own.extras.ticks += 1;
    }

    fn encountered(&mut self) {
        if let Some(current) = self.current() {
            current.counts.extras.encounters += 1;
        }
        self.own.extras.encounters += 1;
    }

    pub(super) fn switch_in(&mut self, time: TraceNs, cpu: Cpu) {
        self.came_untold = false;
        let cpu = self.place(cpu);
        let migrated = cpu != self.cpu && self.cpu != Cpu::UNKNOWN;
        let early = self.woken_early.take();
        if let Some((off, since)) = &mut self.off {
            // Somebody woke it.
            if !off.runnable && off.woken.is_none() {
                off.woken = early.map(|by| (*since, by));
            }
            self.settle_off(time, Some(cpu));
            self.off = None;
            self.go_on(time);
        }
        if migrated {
            if let Some(current) = self.current() {
                current.counts.migrations += 1;
            }
            self.visits
                .iter_mut()
                .for_each(|visit| visit.flags |= visit_flag::MIGRATED);
        }
        self.cpu = cpu;
    }

    /// Where the thread is by a record that may not say it.
    const fn place(&self, cpu: Cpu) -> Cpu {
        if cpu.known().is_some() { cpu } else { self.cpu }
    }

    /// The thread was interrupted, which counts for the current visit.
    pub(super) fn interference(
        &mut self,
        time: TraceNs,
        cpu: Cpu,
        (which, ns): (Interference, u64),
    ) {
        self.on_cpu(time, cpu);
        if let Some(current) = self.current() {
            current.counts.page_faults += u32::from(which == Interference::PageFault);
            current.taken.add(which, ns);
            current.counts.extras.add(which);
        }
        self.own.page_faults += u64::from(which == Interference::PageFault);
        self.own.extras.add(which);
    }

    /// The thread made a mark or a sample, so it is on that CPU, whatever was lost.
    #[inline]
    pub(super) fn on_cpu(&mut self, time: TraceNs, cpu: Cpu) {
        if self.off.is_some() || cpu != self.cpu {
            let is_wait = self.off.is_some() && !self.visits.is_empty();
            let untold = self.came_untold || is_wait;
            self.switch_in(time, cpu);
            self.came_untold = untold;
        }
    }

    /// How many of the next samples, which have these stack pointers, lie in the frame of the current visit, or
    /// are of one that has none.
    #[inline]
    pub(super) fn inside_frame(&self, sps: &[u64], probes: &[ProbeRule]) -> usize {
        if let Some(sp) = self.turns.frame() {
            return inside_frame(sp, sps);
        }
        match self.visits.last() {
            Some(current)
                if !self.has_stacks && probes[current.probe.0 as usize].rule == VisitRule::Call =>
            {
                inside_frame(current.sp, sps)
            }
            _ => sps.len(),
        }
    }

    /// Whether it is on that CPU, in no visit.
    #[inline]
    pub(super) fn is_free_on(&self, cpu: Cpu) -> bool {
        self.off.is_none() && self.cpu == cpu && self.visits.is_empty()
    }

    /// How many of the last visits are calls whose frame lies below the stack pointer: gone.
    ///
    /// A return address above the frame is still the frame's: it is taken off the stack before a
    /// uretprobe makes the return mark.
    #[inline]
    pub(super) fn frames_gone(&self, sp: u64, probes: &[ProbeRule]) -> usize {
        let gone = |visit: &&OpenVisit| {
            !self.has_stacks
                && probes[visit.probe.0 as usize].rule == VisitRule::Call
                && visit.sp.saturating_add(RETURN_ADDRESS) < sp
                && same_stack(visit.sp, sp)
        };
        self.visits.iter().rev().take_while(gone).count()
    }

    /// Books the time off the CPU so far to the current visit.
    fn settle_off(&mut self, time: TraceNs, to: Option<Cpu>) {
        let Some((off, since)) = &mut self.off else {
            return;
        };
        let begin = std::mem::replace(since, time);
        let in_mark = off.in_mark;
        if off.is_asleep() {
            self.slept_ns += (time.0 - begin.0).max(0);
        }
        if in_mark && begin < time {
            self.own.marks_ns += (time.0 - begin.0).cast_unsigned();
        }
        if let Owner::Visit(index) = self.turns.owner
            && let Some(current) = self.visits.get_mut(index)
            && begin < time
        {
            if in_mark {
                current.mark_waits.0 += 1;
                current.mark_waits.1 += time.0 - begin.0;
                return;
            }
            current.waits.push(RawWait {
                begin,
                end: time,
                ip: off.ip,
                state: off.state,
                from: self.cpu,
                to: to.unwrap_or(self.cpu),
                woken: off.woken,
                displaced: off.displaced,
                stack: off.stack,
            });
        }
    }
}
